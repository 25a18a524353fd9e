"""Planted secrets, and the search for them: whole, in part, and in every form that an encoder gives
them."""

from __future__ import annotations

import base64
import os
import random
import string
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

PART = 10
"""So much of a secret is too much to show."""


def planted(*names: str) -> dict[str, str]:
    """Secrets that look like keys, the same in every run."""
    chance = random.Random(" ".join(names))
    letters = string.ascii_letters + string.digits

    def some(n: int) -> str:
        return "".join(chance.choices(letters, k=n))

    return {name: f"cnry-{some(24)}/{some(8)}" for name in names}


def traces(secret: str) -> list[bytes]:
    """What must not be found: every part of a certain length, of the secret and of its
    encodings."""
    data = secret.encode()
    forms = [
        data,
        data.hex().encode(),
        data.hex().upper().encode(),
        quote(secret, safe="").encode(),
    ]
    out = [form[i : i + PART] for form in forms[:1] for i in range(5, len(form) - PART + 1)]
    out += [
        form[i : i + 2 * PART] for form in forms[1:3] for i in range(10, len(form) - 2 * PART + 1)
    ]
    for n in range(3):
        core = base64.b64encode(bytes(n) + data)[(0, 2, 3)[n] : (n + len(data)) * 8 // 6]
        out += [core[i : i + 14] for i in range(8, len(core) - 13)]
    return [*out, forms[3], "\0".join(secret[5:15]).encode()]


class Search:
    """Looks for all of them; `found` are places, each with the name of the secret that is there."""

    def __init__(self, secrets: dict[str, str]) -> None:
        self._traces = {name: traces(value) for name, value in secrets.items()}
        self.found: list[str] = []
        self.n_bytes = 0

    def look(self, where: str, data: bytes | str) -> None:
        data = data.encode("utf-8", "replace") if isinstance(data, str) else data
        self.n_bytes += len(data)
        for name, all_of in self._traces.items():
            if (hit := next((t for t in all_of if t in data), None)) is not None:
                at = data.index(hit)
                self.found.append(f"{name} in {where}: ...{data[max(0, at - 60) : at + 60]!r}")

    def look_below(self, *folders: Path) -> None:
        for folder in folders:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and not path.is_symlink():
                    self.look(str(path), path.read_bytes())


class ProcessList:
    """Every command line of the machine, looked at again and again while something goes on."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ProcessList:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.02):
            for name in filter(str.isdigit, os.listdir("/proc")):
                with suppress(OSError), open(f"/proc/{name}/cmdline", "rb", 0) as file:
                    self.seen.add(file.read())


def every_form(secrets: Iterable[str]) -> str:
    """Text with all of them in all forms, as somebody would write it who wants them to be kept."""
    lines = []
    for secret in secrets:
        data = secret.encode()
        wrapped = base64.encodebytes(b"x" * 50 + data + b"y" * 40).decode()
        lines += [secret, data.hex(), data.hex().upper(), quote(secret, safe=""), wrapped]
        lines += [base64.b64encode(b"." * n + data).decode() for n in range(3)]
        lines += [f"\x1b[31m{secret[:9]}\x1b[m{secret[9:]}", "\0".join(secret)]
    return "\n".join(lines)
