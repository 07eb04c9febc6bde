"""Colors and names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lucid_yolo.viz.style import PALETTE, class_color, class_hex, class_name, count, shorten, text_color


def luminance(color):
    """WCAG 2.1, relative luminance."""
    linear = [c / 255 / 12.92 if c / 255 <= 0.03928 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_classes_have_colors_of_their_own():
    colors = [class_color(label) for label in range(200)]
    assert len(set(colors)) == 200
    assert colors[0] == (0x2F, 0x7E, 0xD8)
    assert [class_hex(label) for label in range(len(PALETTE))] == list(PALETTE)


def test_text_is_readable_on_every_class_color():
    for label in range(300):
        color = class_color(label)
        assert contrast(color, text_color(color)) >= 2.5
    assert text_color((255, 255, 0)) != (255, 255, 255)
    assert text_color((0, 0, 120)) == (255, 255, 255)


@given(st.text(max_size=40), st.integers(5, 30))
def test_shortened_text_fits_and_keeps_its_ends(text, limit):
    short = shorten(text, limit)
    assert len(short) <= limit
    assert short == text or (short[0] == text[0] and short[-1] == text[-1] and ".." in short)


def test_names_and_numbers():
    assert class_name(1, ("a", "b")) == "b"
    assert class_name(2, ("a", "b")) == "class 2"
    assert [count(n, "object") for n in (0, 1, 2)] == ["0 objects", "1 object", "2 objects"]
