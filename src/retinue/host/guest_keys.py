"""Keys of guests: programs that use a store on behalf of a user, each with its own runs. One secret
is kept in the folder of plans. The key of a guest follows from it and the guest's name, so that it
is the same after every restart."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets

SIZE = 32


def guest_key(store: str, guest: str) -> bytes:
    return hmac.digest(
        _secret(os.path.join(store + ".plans", "guests.key")), guest.encode(), hashlib.sha256
    )


def _secret(path: str) -> bytes:
    """The secret at this place, made if there is none. The first process that links it wins."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        if len(secret := file.read()) == SIZE:
            return secret
    draft = f"{path}.{secrets.token_hex(4)}"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(SIZE))
        file.flush()
        os.fsync(file.fileno())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)
    with open(path, "rb") as file:
        return file.read()
