"""Records a tree of runs once, then plays it back offline, every answer in its original order.

A cassette is a file of JSON lines: a header, then one line for each answer of a model or a tool. A
line has a logical key (where in the tree, which turn, what for), what was asked (as digests) and
what was answered. Run ids depend on the time, so they are stored as numbers and put back when the
answer is played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from retinue.config import environment_secrets
from retinue.core.answer_layout import Laid
from retinue.core.effects import ChildOutcome
from retinue.core.ids import digest
from retinue.core.messages import ModelReply
from retinue.core.redaction import Redactor
from retinue.core.spec import Actions
from retinue.core.values import ModelInfo, Restart, ToolSchema, Usage, Value
from retinue.errors import ConfigError, ModelError, ModelRejected, ModelUnavailable, RetinueError
from retinue.models.base import Model, ModelRequest
from retinue.option_types import RetinueOptions
from retinue.runtime.secret_filter import clean_value, learn_from
from retinue.testing.cassette_excerpt import (
    Shown,
    difference,
    excerpt,
    few,
    filled,
    ids_in,
    read_request,
    with_holes,
)
from retinue.testing.taped_catalog import PlayedCatalog, RecordedCatalog
from retinue.testing.virtual_clock import VirtualLoop
from retinue.tools.base import Ask, Context, Returned, Submission, Tool, ToolResult
from retinue.tools.function import FunctionTool

VERSION = 1
NAMED_CHILDREN = 64
"""So many children of one call may be named by id in what its tool returns."""

_RETURNED: dict[str, type[Returned]] = {
    "Answer": ToolResult,
    "Orders": Actions,
    "Submission": Submission,
    "Ask": Ask,
}
"""What a tool returned, by the word that recordings have for it."""
_WORD_OF = {kind: word for word, kind in _RETURNED.items()}
_ERRORS: dict[str, type[ModelError]] = {
    t.__name__: t for t in (ModelError, ModelRejected, ModelUnavailable)
}


class CassetteError(RetinueError):
    """What is asked now is not what was recorded. The message names the first difference, and `key`
    the answer that was recorded for it, if there is one."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class CassetteLine(Value):
    """One answer. `n` is its place in the order of all; `kind` says what `value` is."""

    n: int
    key: str
    shown: Shown
    kind: str
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Failure(Value):
    type: str
    message: str
    kind: str = "server_error"
    after_seconds: float = 0.0
    usage: Usage | None = None
    sent: bool = True


class _Header(Value):
    cassette: int


class Cassette:
    """One recording in one file. A model is wrapped by `record`, or replaced by `replay`; a tool by
    `tool`.

    On replay an answer is held back until every earlier one was given out. One that no one asks for
    within `patience_seconds` (an hour on a virtual loop, else ten seconds) is an error, and so is a
    request that differs from the recorded one; the first error breaks the cassette, so that the
    whole tree fails with it; `check` raises it. Secrets of the environment, of models and tools and
    `secrets`, by name, are not written."""

    def __init__(
        self,
        path: str | Path,
        *,
        record: bool = False,
        patience_seconds: float | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.is_recorded = record
        self._redactor = Redactor({**environment_secrets(), **(secrets or {})})
        self._infos: dict[str, ModelInfo] = {}
        self.error: CassetteError | None = None
        self._patience = patience_seconds
        self._mode: Literal["", "record", "replay"] = ""
        self._asked: dict[str, int] = {}
        self._written = 0
        self._waiting: dict[str, list[CassetteLine]] = {}
        self._lines: list[CassetteLine] = []
        self._taken: set[int] = set()
        self._given: set[int] = set()
        self._next = 0
        self._turns: dict[int, asyncio.Future[None]] = {}

    def record(self, model: Model) -> Model:
        """The model, with everything it says written down. The file is begun anew."""
        self._enter("record")
        return _Recorder(self, model)

    def replay(self, info: ModelInfo | Model) -> Model:
        """A replacement for the model of these facts; nothing is called."""
        self._enter("replay")
        return _Player(self, info if isinstance(info, ModelInfo) else info.info)

    @property
    def options(self) -> RetinueOptions:
        """Options that put the cassette before all models that are given by name:
        `Retinue(**cassette.options)`. With `record=True` the real ones are asked; else they are
        played from the file, facts and all, and no key is needed."""
        if self.is_recorded:
            self._enter("record")
            return {"models": RecordedCatalog(self._write_facts, self.record)}
        self._enter("replay")
        return {"models": PlayedCatalog(self._infos, self.replay, self._no_facts)}

    def tool(self, tool: Tool | Callable[..., Any]) -> Tool:
        """The tool, with what it returns written down; on replay it is not run."""
        return _TapedTool(self, cast(Tool, tool) if hasattr(tool, "schema") else FunctionTool(tool))

    def unused(self) -> list[str]:
        """Keys of recorded answers that no one has asked for."""
        return [line.key for line in self._lines if line.n not in self._taken]

    def check(self) -> None:
        """Raise the first error, or one that names the answers that were left over."""
        if self.error is not None:
            raise self.error
        rest = self.unused()
        if rest:
            raise CassetteError(
                f"{self.path.name}: {len(rest)} recorded answers were not used: {few(rest)}",
                key=rest[0],
            )

    def _enter(self, mode: Literal["record", "replay"]) -> None:
        if self._mode == mode:
            return
        if self._mode:
            raise ConfigError(
                f"{self.path.name}: one cassette cannot both record and replay. Make a second one."
            )
        self._mode = mode
        if mode == "record":
            self.path.write_bytes(msgspec.json.encode(_Header(cassette=VERSION)) + b"\n")
        else:
            self._load()

    def _load(self) -> None:
        name = self.path.name
        try:
            first, *rest = self.path.read_bytes().splitlines()
            version = msgspec.json.decode(first, type=_Header).cassette
        except OSError as error:
            raise CassetteError(
                f"Cannot read {name} ({error.strerror}). Record it first."
            ) from None
        except (ValueError, msgspec.MsgspecError) as error:
            raise CassetteError(f"{name} is not a cassette ({error}). Record it again.") from None
        if version != VERSION:
            raise CassetteError(
                f"{name} has version {version}; this version of Retinue supports {VERSION}. "
                "Record it again."
            )
        decoder = msgspec.json.Decoder(CassetteLine)
        for n, text in enumerate(rest, 2):
            try:
                line = decoder.decode(text)
            except msgspec.MsgspecError as error:
                raise CassetteError(
                    f"Line {n} of {name} is damaged ({error}). Record it again."
                ) from None
            if line.kind == "model":
                self._infos[line.key] = msgspec.json.decode(line.value, type=ModelInfo)
                continue
            self._lines.append(line)
            self._waiting.setdefault(_act(line.key), []).append(line)

    # recording

    def _secrets_of(self, holder: object) -> Mapping[str, str]:
        learn_from(self._redactor, holder)
        return getattr(holder, "secrets", {})

    def _name(self, act: str) -> str:
        """The key of one more asking of `act`."""
        n = self._asked.get(act, 0)
        self._asked[act] = n + 1
        return f"{act} #{n}"

    def _no_facts(self, name: str) -> CassetteError:
        contents = f"it has {few(list(self._infos))}" if self._infos else "it has no model by name"
        return CassetteError(
            f"{self.path.name}: the model {name!r} was not recorded; {contents}. Record it again."
        )

    def _write_facts(self, name: str, info: ModelInfo) -> None:
        """What is known of a model, so that replay needs no provider."""
        facts = msgspec.Raw(msgspec.json.encode(info))
        line = CassetteLine(n=-1, key=name, shown=Shown(), kind="model", value=facts)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def _write(self, key: str, extract: Shown, kind: str, value: Any, ids: Sequence[str]) -> None:
        value, extract = clean_value(self._redactor, value), clean_value(self._redactor, extract)
        raw = msgspec.Raw(with_holes(msgspec.json.encode(value).decode(), ids).encode())
        line = CassetteLine(n=self._written, key=key, shown=extract, kind=kind, value=raw)
        self._written += 1
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    # playing

    async def _take(self, act: str, extract: Shown) -> CassetteLine:
        """The recorded answer to this request, when its turn has come."""
        if self.error is not None:
            raise self.error
        line = self._find(act, extract)
        self._taken.add(line.n)
        try:
            await self._turn(line)
            if line.kind == "cancelled":
                # It was cancelled and had no answer; the replay will cancel it again.
                await asyncio.get_running_loop().create_future()
        finally:
            self._give(line.n)
        return line

    def _find(self, act: str, extract: Shown) -> CassetteLine:
        """Roots have equal paths, so among equal keys the one that was asked the same is meant."""
        open = self._waiting.get(act)
        if not open:
            raise self._broken(
                CassetteError(
                    f"{self.path.name}: no recorded answer for {act!r}; {self._near(act)}",
                    key=act,
                )
            )
        line = next((e for e in open if e.shown == extract), None)
        if line is None:
            raise self._broken(
                CassetteError(
                    f"{self.path.name}: {open[0].key!r} {difference(open[0].shown, extract)}",
                    key=open[0].key,
                )
            )
        open.remove(line)
        return line

    def _near(self, act: str) -> str:
        if any(_act(line.key) == act for line in self._lines):
            return "all its answers were already used"
        path = act.split(" ", 1)[0]
        same = [line.key for line in self._lines if line.key.split(" ", 1)[0] == path]
        return f"recorded for {path!r}: {few(same)}" if same else f"no run at {path!r} was recorded"

    async def _turn(self, line: CassetteLine) -> None:
        while line.n > self._next and self.error is None:
            turn = self._turns[line.n] = asyncio.get_running_loop().create_future()
            ready, _ = await asyncio.wait([turn], timeout=self._seconds())
            if not ready and self._next not in self._taken:
                due = self._lines[self._next].key
                why = (
                    f"{line.key!r} waits for {due!r}, which was recorded before it and is "
                    "not requested now"
                )
                raise self._broken(CassetteError(f"{self.path.name}: {why}", key=due))
        if self.error is not None:
            raise self.error

    def _seconds(self) -> float:
        if self._patience is not None:
            return self._patience
        return 3_600.0 if isinstance(asyncio.get_running_loop(), VirtualLoop) else 10.0

    def _give(self, n: int) -> None:
        """Number `n` is out: the next one may go. It goes in a later pass of the loop, so `n` is
        there first."""
        self._given.add(n)
        while self._next in self._given:
            self._next += 1
        self._open(self._next)

    def _open(self, n: int) -> None:
        turn = self._turns.pop(n, None)
        if turn is not None and not turn.done():
            turn.set_result(None)

    def _broken(self, error: CassetteError) -> CassetteError:
        if self.error is None:
            self.error = error
            for n in list(self._turns):
                self._open(n)
        return self.error


class _Recorder:
    def __init__(self, cassette: Cassette, model: Model) -> None:
        self.info = model.info
        self.says_progress = bool(getattr(model, "says_progress", False))
        self._cassette, self._model = cassette, model
        self.secrets = cassette._secrets_of(model)

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        ids, extract = read_request(request)
        key = self._cassette._name(_model_act(request))
        try:
            reply = await self._model.complete(request, emit)
        except asyncio.CancelledError:
            self._cassette._write(key, extract, "cancelled", None, ids)
            raise
        except Exception as error:
            self._cassette._write(key, extract, "error", _failure(error), ids)
            raise
        self._cassette._write(key, extract, "reply", reply, ids)
        return reply


class _Player:
    says_progress = True

    def __init__(self, cassette: Cassette, info: ModelInfo) -> None:
        self.info = info
        self._cassette = cassette

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        ids, extract = read_request(request)
        request.progress.leave()
        line = await self._cassette._take(_model_act(request), extract)
        raw = filled(bytes(line.value).decode(), ids)
        if line.kind == "error":
            raise _raised(msgspec.json.decode(raw, type=_Failure))
        reply = msgspec.json.decode(raw, type=ModelReply)
        if reply.message.text:
            emit(reply.message.text)
        return reply


class _TapedTool:
    schema: ToolSchema
    restart: Restart

    def __init__(self, cassette: Cassette, tool: Tool) -> None:
        self.schema, self.restart = tool.schema, tool.restart
        self._cassette, self._tool = cassette, tool
        self.secrets = cassette._secrets_of(tool)

    async def run(self, context: Context, args: dict[str, Any]) -> Returned:
        cassette = self._cassette
        act = f"{context.spec.path} turn {context.row.turn} call {context.index} {self.schema.name}"
        text = msgspec.json.encode(args, order="sorted").decode()
        children = (context.child_id(item) for item in range(NAMED_CHILDREN))
        ids = ids_in([context.run_id, context.spec.parent, context.spec.root, *children, text])
        text = with_holes(text, ids)
        call_excerpt = Shown(messages=(digest(text)[:12],), last=excerpt(text))
        if cassette._mode == "replay":
            line = await cassette._take(act, call_excerpt)
            raw = filled(bytes(line.value).decode(), ids)
            if line.kind == "error":
                raise _raised(msgspec.json.decode(raw, type=_Failure))
            return msgspec.json.decode(raw, type=_RETURNED[line.kind])
        if not cassette._mode:
            raise ConfigError(
                "This cassette neither records nor replays. Give it a model with "
                "record() or replay()."
            )
        key = cassette._name(act)
        try:
            returned = await self._tool.run(context, args)
        except asyncio.CancelledError:
            cassette._write(key, call_excerpt, "cancelled", None, ids)
            raise
        except Exception as error:
            cassette._write(key, call_excerpt, "error", _failure(error), ids)
            raise
        safe = clean_value(context.redactor, returned)
        cassette._write(key, call_excerpt, _WORD_OF[type(returned)], safe, ids)
        return returned

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> str | Laid:
        return self._tool.format_results(outcomes)


def _model_act(request: ModelRequest) -> str:
    return f"{request.path} turn {request.turn} {request.purpose}"


def _act(key: str) -> str:
    return key.rsplit(" #", 1)[0]


def _failure(error: Exception) -> _Failure:
    """Exceptions of other libraries are kept in words, as the runtime would put them."""
    if isinstance(error, ModelError):
        error_type = next(
            t for t in (ModelUnavailable, ModelRejected, ModelError) if isinstance(error, t)
        )
        after = error.retry_after if isinstance(error, ModelUnavailable) else 0.0
        details = {
            "message": str(error),
            "kind": error.kind,
            "usage": error.usage,
            "sent": error.sent,
        }
        return _Failure(type=error_type.__name__, after_seconds=after, **details)
    return _Failure(type=type(error).__name__, message=str(error))


def _raised(failure: _Failure) -> Exception:
    error_type = _ERRORS.get(failure.type)
    if error_type is not None:
        error = error_type(failure.message, failure.kind, usage=failure.usage, sent=failure.sent)
        if isinstance(error, ModelUnavailable):
            error.retry_after = failure.after_seconds
        return error
    # A class of the same name, so that code that prints "Type: message" prints what it printed
    # then.
    return cast(Exception, type(failure.type, (RuntimeError,), {})(failure.message))
