"""Entry point: finds and imports the command, and turns every error into one line and an
exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


FIRST = """\
Retinue runs AI agents that can start sub-agents.
No API key found, so runs use the offline explorer: no model, no cost.
It reads the files of this folder and changes nothing."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        from retinue import __version__

        sys.stdout.write(f"retinue {__version__}\n")
        return 0
    return _guarded(arguments)


def _guarded(arguments: list[str]) -> int:
    import signal

    import click

    from retinue.cli import exit_codes
    from retinue.cli.command_list import cli
    from retinue.errors import RetinueError

    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = cli.main(args=arguments, prog_name="retinue", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as request_to_exit:
        return request_to_exit.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        if not arguments and (offered := _offer()) is not None:
            return _guarded(offered)
        sys.stdout.write(f"{error.format_message()}\n")
        return exit_codes.OK
    except click.UsageError as error:
        return _complain(_usage(error), exit_codes.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return exit_codes.INTERRUPTED
    except click.ClickException as error:
        return _complain(error.format_message(), exit_codes.FAILED)
    except BrokenPipeError:
        # No one reads the output; what is still in the buffer must not raise again when the program
        # ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exit_codes.FAILED
    except (RetinueError, OSError) as error:
        _debug()
        if lines := exit_codes.mistakes(error):
            return _complain_of_each(lines)
        return _complain(exit_codes.sentence(error), exit_codes.of_error(error))
    except UnicodeEncodeError as error:
        _debug()
        return _complain(f"An argument is not valid UTF-8 ({error.reason}).", exit_codes.USAGE)
    except Exception as error:
        _debug()
        text = f"Internal error: {type(error).__name__}: {exit_codes.sentence(error).rstrip('.')}. "
        return _complain(text + "Set RETINUE_DEBUG=1 to see the traceback.", exit_codes.FAILED)


def _offer() -> list[str] | None:
    """For who comes here the first time, in a directory with source code: what this is, and the
    first thing to try. With a yes it is what the command becomes. A user who has a key gets
    help."""
    from retinue.host.project_paths import has_source, name_and_size

    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()) or not has_source(
        os.getcwd()
    ):
        return None
    from retinue.cli.context import note
    from retinue.cli.terminal.typed_answer import line_after
    from retinue.host.model_choice import has_key

    if has_key(os.environ):
        return None
    name, size = name_and_size(os.getcwd())
    note(FIRST)
    answer = line_after(f"Map this repository now? {name}, {size}  [Y/n] ")
    is_yes = answer is not None and answer.lower() in ("", "y", "yes")
    return ["run", "map this repository"] if is_yes else None


def _terminate(signal_number: int, frame: object) -> None:
    raise SystemExit(143)


def _complain(text: str, code: int) -> int:
    from retinue.cli.context import note

    note(f"retinue: {text}")
    return code


def _complain_of_each(lines: list[str]) -> int:
    """Several mistakes in files: a line each, then what became of the command."""
    from retinue.cli import exit_codes
    from retinue.cli.context import note

    for line in lines:
        note(line)
    return _complain(f"{len(lines)} mistakes. Correct them; nothing was started.", exit_codes.USAGE)


def _usage(error: click.UsageError) -> str:
    text = " ".join(error.format_message().split())
    path = error.ctx.command_path if error.ctx is not None else "retinue"
    return f"{text} See `{path} --help`."


def _debug() -> None:
    if os.environ.get("RETINUE_DEBUG"):
        import traceback

        traceback.print_exc()
