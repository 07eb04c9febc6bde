"""One palette for overlays and figures."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

Color = tuple[int, int, int]
"""Red, green, blue, 0 to 255."""

PALETTE = (
    "#2F7ED8",
    "#F2802B",
    "#2E9E5B",
    "#E0474C",
    "#8A63D2",
    "#14A8B8",
    "#E667AF",
    "#A8891C",
    "#8C6D5A",
    "#5B8C1E",
    "#4453B8",
    "#C2571A",
    "#0B7A75",
    "#B01E5C",
    "#6A7F8F",
)
INK = "#22303C"
MUTED = "#8795A1"
GRID = "#DDE3E8"
ACCENT = PALETTE[0]
PAPER: Color = (246, 248, 250)
_GOLDEN_RATIO = 0.618033988749895


def class_color(label: int) -> Color:
    """Color of a class: the palette first, then hues a golden angle apart; the same label always has the same color."""
    if label < len(PALETTE):
        return _from_hex(PALETTE[label])
    extra = label - len(PALETTE)
    hue = (0.05 + extra * _GOLDEN_RATIO) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, (0.85, 0.6, 0.75)[extra % 3], (0.8, 0.9, 0.6)[extra % 3])
    return round(255 * red), round(255 * green), round(255 * blue)


def class_hex(label: int) -> str:
    """Color of a class as ``#RRGGBB``."""
    return "#{:02X}{:02X}{:02X}".format(*class_color(label))


def text_color(background: Color) -> Color:
    """White or near-black, whichever reads better (WCAG relative luminance)."""
    linear = [(c / 255 / 12.92) if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in background]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return (255, 255, 255) if luminance < 0.36 else (20, 26, 32)


def shorten(text: str, limit: int) -> str:
    """Cut the middle out of a text that is longer than ``limit`` characters; the ends tell names apart."""
    if len(text) <= limit:
        return text
    tail = (limit - 2) // 2
    return f"{text[: limit - 2 - tail]}..{text[len(text) - tail :]}"


def class_name(label: int, class_names: Sequence[str]) -> str:
    """Name of a class, or its number where the list is too short."""
    return class_names[label] if 0 <= label < len(class_names) else f"class {label}"


def count(number: int, noun: str) -> str:
    """Number and noun, in the plural where it belongs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _from_hex(color: str) -> Color:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
