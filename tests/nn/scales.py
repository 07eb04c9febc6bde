"""The variants, as the paper's scale table gives them."""

from __future__ import annotations

from lucid_yolo.nn.model import Scale

SCALES = {
    "n": Scale("n", 0.50, 0.25, 1024),
    "s": Scale("s", 0.50, 0.50, 1024),
    "m": Scale("m", 0.50, 1.00, 512),
    "l": Scale("l", 1.00, 1.00, 512),
    "x": Scale("x", 1.00, 1.50, 512),
}
TINY = Scale("tiny", 0.50, 0.0625, 1024)
