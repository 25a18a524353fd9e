"""`python -m docs.images [SCENE...]` takes the pictures again, and ends with one line of JSON."""

import json
import sys

from docs.images.scenes import LARGE, SCENES, SMALL, Stage

argv = sys.argv[1:]
stages = (Stage(*SMALL), Stage(*LARGE, "-wide"))
for scene in SCENES:
    for stage in stages if not argv or scene.__name__ in argv else ():
        print(f"{scene.__name__} at {stage.columns}x{stage.lines}", file=sys.stderr)  # noqa: T201
        scene(stage)
problems = [text for stage in stages for text in stage.problems]
for text in problems:
    print(text, file=sys.stderr)  # noqa: T201
n_taken = sum(len(stage.taken) for stage in stages)
print(json.dumps({"ok": not problems, "pictures": n_taken, "problems": len(problems)}))  # noqa: T201
sys.exit(bool(problems))
