"""Draws a part of a set, in a process of its own: ``python -m lucid_yolo.data.shapes.part`` is run by the cache only.

A process started by ``multiprocessing`` would run the user's script again where it lacks the usual guard.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lucid_yolo.data.shapes.cache import ShapesSpec, draw_pictures


def main() -> None:
    """Draw every n-th picture of a split, and write their annotations beside them."""
    root, split, spec, first, step, out = sys.argv[1:]
    made = ShapesSpec(**json.loads(spec))
    labels = draw_pictures(Path(root), split, made, range(int(first), made.count(split), int(step)))
    Path(out).write_text(json.dumps(labels), encoding="utf-8")


if __name__ == "__main__":
    main()
