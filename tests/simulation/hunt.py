"""Seeds in a row until one fails: what the mutation test and `main` share."""

from __future__ import annotations

import argparse
import sys
import traceback

from tests.simulation import trials
from tests.simulation.pure import Simulation
from tests.simulation.violation import Violation


def run_seed(kind: str, seed: int) -> tuple[int, int]:
    """One schedule; returns how many steps and crashes it had."""
    if kind == "engine":
        # Imported here: half of what a hunt on the pure machine takes would be for importing what
        # it does not use.
        from tests.simulation.engine import run_engine_seed

        return 0, run_engine_seed(seed).lives - 1
    if why := trials.check(seed) if seed % 4 == 0 else "":
        raise Violation(why)
    simulation = Simulation(seed)
    simulation.run()
    return simulation.steps, simulation.crashes


def replay(kind: str, seed: int) -> str:
    return f"python -m tests.simulation.hunt --kind {kind} --first {seed} --seeds 1"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("pure", "engine"), default="pure")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=2_000)
    arguments = parser.parse_args()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            run_seed(arguments.kind, seed)
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {error}")
            print(f"replay with: {replay(arguments.kind, seed)}")
            traceback.print_exc(file=sys.stderr)
            return 1
    print(f"{arguments.seeds} seeds, no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
