"""A provider that answers from a script, in four dialects, over real HTTP."""

from retinue.testing.fake_llm.dialect import ParsedRequest
from retinue.testing.fake_llm.fake_provider import FakeLLM
from retinue.testing.fake_llm.fake_request import FakeSettings
from retinue.testing.fake_llm.fault_catalog import FAULTS

__all__ = ["FAULTS", "FakeLLM", "FakeSettings", "ParsedRequest"]
