"""Reports in a notebook and in a script."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

WIDTH = 120


def as_text(what: RenderableType) -> str:
    """What a terminal would show, as plain text."""
    console = Console(width=WIDTH, file=io.StringIO(), no_color=True)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def as_html(what: RenderableType) -> str:
    """What a terminal would show, as HTML."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())  # what a capture holds back is not recorded
    console.print(what)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
