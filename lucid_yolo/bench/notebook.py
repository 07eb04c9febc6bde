"""Reports in a notebook."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

WIDTH = 120


def as_html(what: RenderableType) -> str:
    """What a terminal would show, as HTML."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())  # what a capture holds back is not recorded
    console.print(what)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
