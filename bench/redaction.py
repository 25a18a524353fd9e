"""What it costs to look for 20 secrets in text that has none, by the kilobyte; and in text that is
full of them."""

from __future__ import annotations

import base64
import random
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retinue.core.redaction import Redactor

N_SECRETS = 20
BOUND_US = 3.0
SOURCES = Path(__file__).parent.parent / "src" / "retinue"


def redaction() -> dict[str, Any]:
    """Clean source code, prose and long rows of hexadecimal in pieces of 16 KiB. `ok`: source code
    within the bound."""
    chance = random.Random(7)
    letters = string.ascii_letters + string.digits + "-_"
    kinds: list[Callable[[], str]] = [
        lambda: "sk-ant-api03-" + "".join(chance.choices(letters, k=80)),
        lambda: "sk-proj-" + "".join(chance.choices(letters, k=48)),
        lambda: "ghp_" + "".join(chance.choices(string.ascii_letters + string.digits, k=36)),
        lambda: base64.b64encode(chance.randbytes(30)).decode(),
    ]
    secrets = {f"KEY_{n}": kinds[n % len(kinds)]() for n in range(N_SECRETS)}
    redactor = Redactor(secrets)
    code = "".join(path.read_text() for path in sorted(SOURCES.rglob("*.py")))[: 1 << 20]
    hashes = "\n".join(f"{chance.randbytes(20).hex()} some change" for _ in range(4_000))
    blob = base64.b64encode(chance.randbytes(150_000)).decode()
    full = "\n".join(f"key = {value}" for value in secrets.values()) * 20
    figures = {
        "code_us_per_kb": _cost(redactor, code),
        "hashes_us_per_kb": _cost(redactor, hashes),
        "base64_us_per_kb": _cost(redactor, blob),
        "full_of_secrets_us_per_kb": _cost(redactor, full),
        "stream_us_per_kb": _streamed(redactor, code),
    }
    return {"ok": figures["code_us_per_kb"] <= BOUND_US, "secrets": N_SECRETS, **figures}


def _cost(redactor: Redactor, text: str) -> float:
    pieces = [text[i : i + (16 << 10)] for i in range(0, len(text), 16 << 10)]
    best = float("inf")
    for _ in range(15):
        began = time.process_time()
        for piece in pieces:
            redactor.clean(piece)
        best = min(best, time.process_time() - began)
    return round(best * 1e6 / (len(text) / 1024), 2)


def _streamed(redactor: Redactor, text: str) -> float:
    data, best = text.encode(), float("inf")
    for _ in range(3):
        stream, began = redactor.byte_stream(), time.process_time()
        for i in range(0, len(data), 64 << 10):
            stream.feed(data[i : i + (64 << 10)])
        stream.close()
        best = min(best, time.process_time() - began)
    return round(best * 1e6 / (len(data) / 1024), 2)
