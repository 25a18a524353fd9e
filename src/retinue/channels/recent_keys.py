"""The most recent delivery keys, so that a channel can drop repetitions with bounded memory."""

from __future__ import annotations

from collections import deque


class RecentKeys:
    """The newest `n` keys. An older one is forgotten, and would be taken again."""

    def __init__(self, n: int) -> None:
        self._most = n
        self._order: deque[str] = deque()
        self._keys: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: str) -> None:
        if key in self._keys:
            return
        self._keys.add(key)
        self._order.append(key)
        if len(self._order) > self._most:
            self._keys.discard(self._order.popleft())
