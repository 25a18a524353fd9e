"""Context of every command: the environment, the project's paths, and output."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retinue.cli.command_help import Flag
from retinue.formats.durations import seconds
from retinue.formats.safe_text import several_lines
from retinue.host import project_paths
from retinue.host.project import Project
from retinue.view.ascii_marks import VARIABLE as ASCII_VARIABLE
from retinue.view.ascii_marks import as_shown, use_charset

if TYPE_CHECKING:
    from retinue.config.layers import EffectiveSettings

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class CommandContext:
    """One use of the command line. `store` and `cwd` are what was asked for, "" when nothing
    was."""

    environ: Mapping[str, str]
    store: str = ""
    cwd: str = ""
    is_quiet: bool = False
    color: str = "auto"
    is_reader: bool = False
    _project: Project | None = field(default=None, repr=False)
    _is_configured: bool = field(default=False, repr=False)

    @property
    def project(self) -> Project:
        if self._project is None:
            self.store = self.store or _configured_store(self.environ)
            self._project = Project.of(
                self.environ, project_paths.find(self.environ, cwd=self.cwd, store=self.store)
            )
        return self._project

    def enter(self, directory: str) -> None:
        """Work with the project of this directory."""
        self.cwd, self._project = directory, None

    @property
    def paths(self) -> project_paths.ProjectPaths:
        return self.project.paths

    def configure(self, settings: EffectiveSettings | None = None) -> Mapping[str, str]:
        """The environment with what is configured, once; of what is wrong with a file nothing is
        said here."""
        if settings is not None or not self._is_configured:
            from retinue.host.run_defaults import environment

            self.environ, self._is_configured = environment(self.project, settings), True
            self._project = dataclasses.replace(self.project, environ=self.environ)
        return self.environ

    def prepare(self) -> project_paths.ProjectPaths:
        paths = self.paths
        project_paths.prepare(self.environ, paths, is_project=not self.store)
        return paths

    def say(self, text: str, *, styled: bool = False) -> None:
        """A line for the person: never on stdout."""
        if not self.is_quiet:
            note(text, styled=styled)


def _configured_store(environ: Mapping[str, str]) -> str:
    from retinue.host.project_config import stored

    return stored(environ)


def now_ms() -> int:
    return int(time.time() * 1000)


def note(text: str, *, styled: bool = False) -> None:
    """To stderr, for people. With `styled` the text has colours of ours, and its parts were made
    fit to be shown."""
    try:
        sys.stderr.write(as_shown(text if styled else _broken(several_lines(text))) + "\n")
        sys.stderr.flush()
    except (BrokenPipeError, ValueError):
        pass


def _broken(text: str) -> str:
    """As it is on a terminal, which would break long lines in the middle of words."""
    if len(text) < 20 or not sys.stderr.isatty():
        return text
    from retinue.cli.terminal.terminal_style import size

    width = max(20, size(sys.stderr)[0] - 1)
    if all(len(line) * 2 <= width for line in text.split("\n")):
        return text
    from retinue.cli.terminal.note_lines import note_lines

    return "\n".join(part for line in text.split("\n") for part in note_lines(line, width))


def out(text: str, end: str = "\n", *, styled: bool = False) -> None:
    """To stdout, whole: a slow reader is waited for. A file or a pipe gets the text as it is; on a
    terminal only what it can show, unless the text is `styled` by us."""
    if styled:
        text = as_shown(text)
    elif os.isatty(sys.stdout.fileno()):
        text = several_lines(text)
    put((text + end).encode("utf-8", "replace"))


def put(data: bytes) -> None:
    """These bytes to stdout, whole."""
    sys.stdout.flush()
    fd, view = sys.stdout.fileno(), memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            _until_writable(fd)


def _until_writable(fd: int) -> None:
    import select

    select.select([], [fd], [])


def option(*names: str, compat: tuple[str, ...] = (), **settings: Any) -> Callable[[F], F]:
    """A flag that can also be set by RETINUE_<its name>, also under the name of each spelling in
    `compat`: those are accepted and not shown in help."""
    longs = [name for name in names if name.startswith("--")][:1]
    longs += [name for name in compat if name.startswith("--")]
    settings.setdefault("envvar", [_variable(name) for name in longs])
    return click.option(*names, cls=Flag, compat=compat, **settings)


def _variable(flag: str) -> str:
    return "RETINUE_" + flag.lstrip("-").replace("-", "_").upper()


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        if value:
            setattr(context.find_object(CommandContext), name, value)
        return value

    return callback


def common(command: F) -> F:
    """The options of every command that touches a store."""
    for names, field_name, text in (
        (("--store",), "store", "Database file to use instead of the project's."),
        (("-C", "--cwd"), "cwd", "Directory to work in."),
    ):
        command = option(
            *names, callback=_keep(field_name), expose_value=False, metavar="PATH", help=text
        )(command)
    return command


def dispatch_option(command: F) -> F:
    return option(
        "--dispatch",
        callback=_keep_dispatch,
        expose_value=False,
        metavar="DISPATCHER",
        help="What gives runs to workers: database, procrastinate or temporal://HOST:PORT.",
    )(command)


def _keep_dispatch(click_context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    from retinue.formats.dispatch_address import dispatch

    context = click_context.find_object(CommandContext)
    if value and context is not None:
        try:
            dispatch(value)
        except ValueError as error:
            raise click.BadParameter(f"{error}.") from None
        context.environ = {**context.environ, "RETINUE_DISPATCH": value}
    return value


def _keep_theme(click_context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    context = click_context.find_object(CommandContext)
    if value and context is not None:
        context.environ = {**context.environ, "RETINUE_THEME": value}
    return value


def _keep_ascii(click_context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    context = click_context.find_object(CommandContext)
    if value and context is not None:
        context.environ = {**context.environ, ASCII_VARIABLE: "1"}
        choose_charset(context.environ)
    return value


def choose_charset(environ: Mapping[str, str]) -> None:
    """Which marks the terminal of this process is shown."""
    encoding = getattr(sys.stderr, "encoding", "") or "utf-8"
    use_charset(environ, is_terminal=sys.stderr.isatty(), encoding=encoding)


def theme_option(command: F, group: str = "") -> F:
    """Whether the terminal is dark or light and can show marks, for those who know better than it
    does."""
    command = option(
        "--ascii",
        is_flag=True,
        callback=_keep_ascii,
        expose_value=False,
        group=group,
        help="Use only ASCII for states, trees and boxes.",
    )(command)
    return option(
        "--theme",
        type=click.Choice(["auto", "dark", "light"]),
        default="auto",
        callback=_keep_theme,
        expose_value=False,
        group=group,
        help="Colors for a dark or a light terminal. Default: auto.",
    )(command)


class Duration(click.ParamType[float]):
    """`90`, `45s`, `10m`, `1h30m`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, float):
            return value
        try:
            return seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


pass_context = click.make_pass_decorator(CommandContext)
