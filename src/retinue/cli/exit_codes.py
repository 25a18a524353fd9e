"""The exit code of each error and outcome."""

from __future__ import annotations

import errno

from retinue import errors
from retinue.formats.safe_text import one_line

OK = 0
FAILED = 1
USAGE = 2
CHILD_FAILED = 3
NEEDS_INPUT = 4
LIMIT = 5
NO_PROVIDER = 6
INTERRUPTED = 130
TERMINATED = 143

MEANING: dict[int, str] = {
    OK: "the run completed, or the command succeeded",
    FAILED: "the run failed or was cancelled, or the command failed",
    USAGE: "usage error: unknown option, id, model or agent, or an invalid file",
    CHILD_FAILED: "the run completed, but a sub-agent failed (only with --strict)",
    NEEDS_INPUT: "the run needs an answer (it waits if a limit asks), or a permission was denied",
    LIMIT: "a limit of money, tokens, turns or time ended the run",
    NO_PROVIDER: "no provider, or the provider rejected the API key (the run waits for another)",
    INTERRUPTED: "Ctrl-C",
    TERMINATED: "SIGTERM",
}
LIMITS = ("turn_limit", "length")
UNAUTHORISED = ("auth", "billing", "permission", "inactive", "spent")


def of_error(error: BaseException) -> int:
    """The exit code of an exception."""
    if isinstance(error, errors.NoKey):
        return NO_PROVIDER
    if isinstance(error, errors.ModelError):
        return NO_PROVIDER if any(word in error.kind for word in UNAUTHORISED) else FAILED
    if isinstance(error, (errors.ConfigError, errors.NotFound)):
        return USAGE
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return FAILED


def of_outcome(
    state: str, stop: str, *, strict: bool = False, failed_children: int = 0, denials: int = 0
) -> int:
    """The exit code of a run that has ended."""
    if state == "completed":
        if strict and failed_children:
            return CHILD_FAILED
        return NEEDS_INPUT if strict and denials else OK
    if state == "timed_out" or (state == "incomplete" and (stop in LIMITS or "budget" in stop)):
        return LIMIT
    if any(word in stop for word in UNAUTHORISED):
        return NO_PROVIDER
    return NEEDS_INPUT if denials and state == "failed" else FAILED


def sentence(error: BaseException) -> str:
    """What went wrong and what to do next, on one line."""
    return (
        one_line(_of_system(error) if isinstance(error, OSError) else str(error))
        or type(error).__name__
    )


def mistakes(error: BaseException) -> list[str]:
    """The mistakes in a configuration, a line each, where there are several."""
    problems = getattr(error, "problems", ())
    return [one_line(str(problem)) for problem in problems] if len(problems) > 1 else []


def _of_system(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    advice = {
        errno.ENOSPC: "Free some space and try again.",
        errno.EDQUOT: "Free some space and try again.",
        errno.EROFS: "Use another directory with --store or XDG_DATA_HOME.",
        errno.EACCES: "Check its file permissions, or use another --store.",
        errno.EPERM: "Check its file permissions, or use another --store.",
        errno.ENOENT: "Check the path.",
        errno.ENOTDIR: "Check the path.",
    }.get(error.errno or 0, "Nothing was changed.")
    return f"{where}{error.strerror or error}. {advice}"
