"""The settings that type checkers know of a family are those that it has."""

import pytest

from retinue import ConfigError, family
from retinue.tools.families.profiles import FAMILIES, family_type
from retinue.tools.families.setting_types import SETTING_TYPES


@pytest.mark.parametrize("name", FAMILIES)
def test_each_setting_of_a_family_is_known_to_type_checkers(name: str) -> None:
    fields = family_type(name).settings_type.__struct_fields__
    assert set(SETTING_TYPES[name].__annotations__) == set(fields)


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_tasks"):
        family("fanout", max_task=5)
