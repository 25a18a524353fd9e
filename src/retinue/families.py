"""Families: ready-made tools with which a model starts and looks after children."""

from retinue.tools.families.base import Family
from retinue.tools.families.profiles import FamilyName, family
from retinue.tools.families.setting_types import (
    AgentFamilySettings,
    CommonSettings,
    DelegateFamilySettings,
    FanoutFamilySettings,
    SessionsFamilySettings,
    SubagentFamilySettings,
)

__all__ = [
    "AgentFamilySettings",
    "CommonSettings",
    "DelegateFamilySettings",
    "Family",
    "FamilyName",
    "FanoutFamilySettings",
    "SessionsFamilySettings",
    "SubagentFamilySettings",
    "family",
]
