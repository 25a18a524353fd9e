"""Facts that a project's manifests state: its name, its commands, its dependencies."""

from __future__ import annotations

from dataclasses import dataclass, field
from posixpath import dirname

from msgspec import Struct

from retinue.syntax.project.places import Place, Quote


class ProjectCommand(Struct, frozen=True):
    """Something to type. `note` is what the manifest says behind it; `target` names what it leads
    to, as the manifest writes it: a module and a function, or a file."""

    text: str
    place: Place
    note: str = ""
    target: str = ""


@dataclass
class Manifest:
    """One manifest. `needs` are sentences' parts such as "Python >=3.9", `requires` the packages it
    depends on, `requires_at` where they are listed, `package` the name by which it is imported."""

    path: str
    name: str = ""
    version: str = ""
    description: Quote | None = None
    commands: list[ProjectCommand] = field(default_factory=list)
    needs: list[Quote] = field(default_factory=list)
    builder: Quote | None = None
    requires: list[str] = field(default_factory=list)
    requires_at: Place | None = None
    package: str = ""

    @property
    def folder(self) -> str:
        return dirname(self.path)


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """All manifests, the root's first."""

    manifests: tuple[Manifest, ...] = ()

    @property
    def root(self) -> list[Manifest]:
        return [m for m in self.manifests if not m.folder]

    @property
    def name(self) -> str:
        return next((m.name for m in self.root if m.name), "")

    @property
    def version(self) -> str:
        return next((m.version for m in self.root if m.name and m.version), "")

    @property
    def description(self) -> Quote | None:
        return next((m.description for m in self.root if m.description), None)
