"""Every exception of Retinue. The type says whose fault it was; a run that fails is an `Outcome`,
not an exception.

RetinueError
  ConfigError          settings or definitions are wrong
    NoKey              a provider has no key, or no address
  NotFound             no such run, agent, artifact or delivery
  Refused              a limit said no (`limit` names it); nothing was done
  InvalidTransition    an event that the run's state does not take; the engine records it as stale
  ModelError
    ModelUnavailable   worth trying again (`retry_after`: not before)
    ModelRejected      trying again cannot help
  RunFailed            raised by `unwrap()` only; carries the outcome
  ToolError            raised in a tool: the model reads it as the error of its call
  WrongThread          a runtime was used from another thread or event loop
  StoreError           the log could not be read or written
    StoreLocked        another process holds it
    StoreCorrupt       a row or page is not what was written
    StoreTooNew        written by a newer version
    StoreFull          no space, or the file may not be written; the batch is kept and tried again
  SandboxMissing       no sandbox is available to run a command in
  Defect               a bug in Retinue; the run that met it is set aside, all others continue
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class RetinueError(Exception):
    """The root: catch this to catch everything that Retinue raises on purpose."""


class ConfigError(RetinueError):
    """A setting or a definition is wrong. `problem` says what is wrong and `fix` what to do; a
    message that was not given in two parts is all `problem`. `field` is the option that is wrong
    and `suggestion` the one that was meant, where that is known."""

    def __init__(
        self, problem: str, fix: str = "", *, field: str = "", suggestion: str = ""
    ) -> None:
        super().__init__(f"{problem}. {fix}" if fix else problem)
        self.problem, self.fix = problem, fix
        self.field, self.suggestion = field, suggestion


class NoKey(ConfigError):
    """A provider cannot be used: it has no API key, or no base URL."""


class NotFound(RetinueError):
    """The thing named does not exist, or no longer exists. `kind` says what it would be (`run`,
    `agent`, `question`, `artifact`, `delivery`, ...) and `id` which, where that is known."""

    def __init__(self, message: str, kind: str = "", id: str = "") -> None:
        super().__init__(message)
        self.kind, self.id = kind, id


class Refused(RetinueError):
    """A limit refused the request. `limit` is its name. Nothing was changed. `allowed` and `wanted`
    are its numbers, where it has some."""

    def __init__(
        self,
        limit: str,
        message: str,
        numbers: tuple[float | None, float | None] = (None, None),
    ) -> None:
        super().__init__(message)
        self.limit = limit
        self.allowed, self.wanted = numbers


class ToolError(RetinueError):
    """Raise it in a tool: the model reads the message as the error of its call. Nothing is logged
    as a defect."""


class InvalidTransition(RetinueError):
    """An event reached a run in a state that does not take it. `refusal` is what a limit said to
    it, if one did."""

    def __init__(self, message: str, refusal: Refused | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal


class WhyStale(str):
    """Why an event was refused; `refusal` is what a limit said, if it was one."""

    refusal: Refused | None = None


class ModelError(RetinueError):
    """A model call failed. `kind` says how; `model` and the HTTP `status` are given where they are
    known.

    `sent` is False when nothing ever left. `usage` (a `core.values.Usage`) is what the failed call
    has cost all the same, as far as it is known: nothing when it was not sent or was refused, an
    estimate when its answer broke off. None if unknown. `trouble` (a `core.values.ProviderTrouble`)
    names the provider and what it answered; `cause` is a word for what happened where it answered
    nothing."""

    def __init__(
        self,
        message: str,
        kind: str = "server_error",
        *,
        model: str = "",
        status: int | None = None,
        usage: Any = None,
        sent: bool = True,
    ) -> None:
        super().__init__(message)
        self.kind, self.usage, self.sent = kind, usage, sent
        self.model, self.status = model, status
        self.trouble: Any = None
        self.cause = ""


class ModelUnavailable(ModelError):
    """Overload, rate limit, network: the same call may succeed later. `hearers` are called, by run,
    when it may: they got the error that another call had met."""

    def __init__(
        self,
        message: str,
        kind: str = "server_error",
        retry_after: float = 0.0,
        *,
        model: str = "",
        status: int | None = None,
        usage: Any = None,
        sent: bool = True,
    ) -> None:
        super().__init__(message, kind, model=model, status=status, usage=usage, sent=sent)
        self.retry_after = retry_after
        self.hearers: dict[str, Callable[[], None]] | None = None


class ModelRejected(ModelError):
    """Bad key, unknown model, refused content: the same call will fail again."""


class RunFailed(RetinueError):
    """`unwrap()` was called on a run that did not complete. `outcome` says how it ended."""

    def __init__(self, message: str, outcome: Any) -> None:
        super().__init__(message)
        self.outcome = outcome


class WrongThread(RetinueError):
    """A runtime was used from another thread or event loop than its own. Use `portal()`."""


class StoreError(RetinueError):
    """The log could not be read or written; nothing acknowledged was lost. `path` is the store's
    file, where it is known."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class StoreLocked(StoreError):
    """Another process holds the same file."""


class StoreCorrupt(StoreError):
    """The file is damaged; it was left untouched."""


class StoreTooNew(StoreError):
    """The file was written by a newer version; it was left untouched."""


class StoreFull(StoreError):
    """The file cannot grow or be written now; the batch is kept and tried again."""


class StoreUnreachable(StoreFull):
    """The database does not answer now; the batch is kept and tried again."""


class TreeTaken(StoreError):
    """Another worker owns the tree now; this batch was not saved, and this worker must stop it."""


class SandboxMissing(RetinueError):
    """No sandbox is available to run the command in. `problem` says why and `fix` what to do;
    nothing was run."""

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(" ".join(filter(None, (f"{problem}.", fix, "Nothing was run."))))
        self.problem, self.fix = problem, fix


class Defect(RetinueError):
    """A mistake of Retinue's own in a step of one tree. The tree is set aside as it is recorded;
    others continue."""


class NoProvider(NoKey):
    """No model is available; the message says what to set."""


class HostGone(RetinueError):
    """The process that holds the store went away in the middle of a request."""


class HostSilent(HostGone):
    """The process that holds the store is there and does not answer. `pid` is 0 where the system
    does not tell it."""

    def __init__(self, pid: int) -> None:
        super().__init__(
            f"The host of this project{f' (process {pid})' if pid else ''} does not "
            "respond. Recorded work is safe. Run `retinue host stop` to stop it, then "
            "`retinue resume` to continue its runs."
        )
        self.pid = pid


class HostOutdated(HostGone):
    """The process that holds the store speaks another protocol than this command."""

    def __init__(self, pid: int) -> None:
        super().__init__(
            f"The host of this project{f' (process {pid})' if pid else ''} is another version of "
            "Retinue. Recorded work is safe. Run `retinue host stop`, then try again."
        )
        self.pid = pid
