"""What the tests of the fake provider share."""

from __future__ import annotations
import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any
import pytest
from retinue.core.values import Assistant, Call, Reply, Result, Usage, User
from retinue.errors import ConfigError, ModelRejected, ModelUnavailable
from retinue.testing import call, fake_llm
from retinue.testing.fake_llm import FAULTS, FakeLLM, Heard, Settings, main
from tests.testing.fake_llm_support import (
    ALL,
    KEY,
    SCHEMA,
    Post,
    calls_of,
    connect,
    good,
    raw,
    send,
    text_of,
    tools,
    until,
    wire,
)


BOTH = [False, True]
