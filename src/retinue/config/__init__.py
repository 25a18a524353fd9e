"""Configuration: files, the environment and flags become one frozen value, and every value knows
where it came from. A file is data, never code; all its mistakes are reported together, each with
its line and with what was probably meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retinue.config.config_value import Config
    from retinue.core.values import ModelInfo
    from retinue.models.base import Model
    from retinue.models.catalog import Catalog
    from retinue.models.declared import Provider
    from retinue.sandbox.private_paths import Private


def environment_secrets() -> dict[str, str]:
    """The secret values of the environment by their names: what must not be written down
    anywhere."""
    from retinue.core.secret_values import secrets_of

    return secrets_of(os.environ)


def own_places(store: str = "") -> Private:
    """What belongs to Retinue itself on this machine, and is shown to no model."""
    from retinue.config.user_folders import private_places

    return private_places(os.environ, store)


def database_files(address: str) -> str:
    """Where files of this machine lie that belong to a store in a database."""
    from retinue.config.user_folders import beside_database
    from retinue.sandbox.open_beneath import make_folder

    place = beside_database(os.environ, address)
    make_folder(os.path.dirname(place))
    return place


def cache_folder() -> Path:
    """Where what can be made again is kept between runs."""
    from retinue.config.user_folders import cache_home

    return Path(cache_home(os.environ))


def environment_catalog(
    providers: Mapping[str, Provider] | None = None,
    models: Mapping[str, Model | ModelInfo | str] | None = None,
) -> Catalog:
    """The models that the environment has keys for, and those that a program declares."""
    from retinue.models.declared import declared_catalog

    return declared_catalog(os.environ, providers, models)


def read_config(path: str | Path) -> Config:
    """Read a configuration file; its suffix tells TOML from JSON5. Raises `ConfigError` with
    everything that is wrong."""
    from retinue.config.config_value import Config
    from retinue.config.layer_reader import read_layer
    from retinue.config.layers import EffectiveSettings

    settings = EffectiveSettings([read_layer(str(path), "user")]).checked()
    return Config(families=settings.families, path=str(path), value=settings.value)
