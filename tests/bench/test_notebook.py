"""What a notebook shows is what a terminal shows."""

from __future__ import annotations

import lucid_yolo as ly
from lucid_yolo.bench.notebook import as_html
from tests.engine.tiny import tiny_overrides


def test_a_renderable_becomes_html() -> None:
    assert as_html("a < b") == "<pre>a &lt; b\n</pre>"


def test_a_plan_is_shown() -> None:
    page = ly.plan(ly.compose(tiny_overrides()))._repr_html_()
    for text in ("Run plan", "precision", "32-true", "model tiny:"):
        assert text in page
