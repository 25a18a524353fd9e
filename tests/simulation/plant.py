"""One module of ours from another file: a bug is planted without a copy of everything, which would
have no byte code.

`python -m tests.simulation.plant core/lanes.py changed.py --kind pure` hunts for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType


class Planted(MetaPathFinder):
    """Finds the module of `file`, a path in our package, in `instead`."""

    def __init__(self, file: str, instead: str) -> None:
        name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._name, self._instead, self._is_package = (
            f"retinue.{name}",
            instead,
            file.endswith("/__init__.py"),
        )

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        assert path is not None
        places = (
            [f"{place}/{fullname.rpartition('.')[2]}" for place in path]
            if self._is_package
            else None
        )
        return spec_from_file_location(fullname, self._instead, submodule_search_locations=places)


def main() -> int:
    assert "retinue" not in sys.modules, "what is imported already has no bug"
    sys.meta_path.insert(0, Planted(sys.argv.pop(1), sys.argv.pop(1)))
    from tests.simulation import hunt

    return hunt.main()


if __name__ == "__main__":
    sys.exit(main())
