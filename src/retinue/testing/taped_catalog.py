"""The catalog of a cassette: models by name, recorded or played back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from retinue.config import environment_catalog
from retinue.core.values import ModelInfo
from retinue.models.base import Model


class PlayedCatalog:
    """The models whose facts a recording has. `missing` is raised for any other."""

    offered: Sequence[str] = ()

    def __init__(
        self,
        infos: Mapping[str, ModelInfo],
        play: Callable[[ModelInfo], Model],
        missing: Callable[[str], Exception],
    ) -> None:
        self._infos, self._play, self._missing = infos, play, missing

    def knows(self, name: str) -> bool:
        return name in self._infos

    def resolve(self, name: str) -> str:
        return self._infos[name].resolved or name

    def find(self, name: str) -> Model:
        if name not in self._infos:
            raise self._missing(name)
        return self._play(self._infos[name])

    async def close(self) -> None:
        """Nothing is open."""


class RecordedCatalog:
    """The models that the environment has keys for. `note` writes down what is known of one,
    `tape` what it says."""

    def __init__(
        self, note: Callable[[str, ModelInfo], None], tape: Callable[[Model], Model]
    ) -> None:
        self._real = environment_catalog()
        self._note, self._tape = note, tape
        self.offered = self._real.offered
        self.secrets = self._real.secrets

    def knows(self, name: str) -> bool:
        return self._real.knows(name)

    def resolve(self, name: str) -> str:
        return self._real.resolve(name)

    def find(self, name: str) -> Model:
        model = self._real.find(name)
        self._note(name, replace(model.info, resolved=self._real.resolve(name)))
        return self._tape(model)

    async def close(self) -> None:
        await self._real.close()
