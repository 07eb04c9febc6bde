"""Run lengths of COCO JSON (``{"size": [height, width], "counts": ...}``): checked, and written out as masks.

Runs of zeros and ones alternate, zeros first, column by column. ``counts`` is a list of their lengths, or a text with
five bits a character (the compression of pycocotools).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.labels.runs import Run
from lucid_yolo.data.readers.parsers.base import UnusableLabelError

_FIRST = 48  # character of the value 0
_VALUES = 64  # five bits and the mark that more follow
_MORE, _SIGN, _BITS = 32, 16, 5
_MOST = 2**30  # pixels; OpenCV decodes no larger picture
_LONGEST = 7  # characters of a number of 32 bits


def read_run_lengths(segmentation: Mapping[str, Any]) -> tuple[Run, NDArray[np.bool_]]:
    """Read a mask.

    Returns:
        The mask as pycocotools compresses it, and (H, W) bool.

    Raises:
        UnusableLabelError: it has no usable size, or run lengths that do not fill it.
    """
    size: Any = segmentation.get("size")
    counts: Any = segmentation.get("counts")
    if not _are_counts(size) or len(size) != 2 or not 1 <= size[0] * size[1] <= _MOST:
        raise UnusableLabelError(f"the size of its RLE is {size!r}; [height, width] in pixels is needed")
    height, width = size
    if isinstance(counts, str):
        lengths = _decompressed(counts)
    elif _are_counts(counts):
        lengths = np.array(counts, np.int64)
    else:
        raise UnusableLabelError("the counts of its RLE are neither a text nor a list of whole numbers of at least 0")
    if lengths.min(initial=0) < 0 or lengths.sum() != height * width:
        raise UnusableLabelError(
            f"the counts of its RLE cover {lengths.sum()} pixels, and its size has {height} x {width} = "
            f"{height * width}"
        )
    pixels = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
    compressed = counts.encode("ascii") if isinstance(counts, str) else _compressed(height, width, counts)
    return Run(height, width, compressed), pixels.reshape(width, height).T


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one <= _MOST for one in value)


def _compressed(height: int, width: int, counts: list[int]) -> bytes:
    from pycocotools import mask  # noqa: PLC0415 - most files hold outlines

    compressed: bytes = mask.frPyObjects({"size": [height, width], "counts": counts}, height, width)["counts"]
    return compressed


def _decompressed(text: str) -> NDArray[np.int64]:
    """Run lengths of a text, which pycocotools reads without a check and past its memory where the text is wrong.

    They are numbers in groups of five bits, lowest first, from the fourth on as differences to the number two before.
    """
    raw = np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int64) - _FIRST
    last = np.flatnonzero((raw & _MORE) == 0)
    lengths = np.diff(last, prepend=-1)
    whole = len(raw) > 0 and len(last) > 0 and last[-1] == len(raw) - 1
    if not whole or raw.min() < 0 or raw.max() >= _VALUES or lengths.max() > _LONGEST:
        raise UnusableLabelError("the counts of its RLE are no text that pycocotools writes")
    place = np.arange(len(raw)) - np.repeat(last + 1 - lengths, lengths)
    numbers = np.add.reduceat((raw & (_MORE - 1)) << (_BITS * place), last + 1 - lengths)
    numbers -= np.where(raw[last] & _SIGN, np.int64(1) << (_BITS * lengths), 0)
    numbers[1::2] = numbers[1::2].cumsum()
    numbers[2::2] = numbers[2::2].cumsum()
    return numbers
