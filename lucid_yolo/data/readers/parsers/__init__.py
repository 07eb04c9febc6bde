"""What the formats say of an object, by kind of label: one module a kind, each with a ``PARSER``."""

from __future__ import annotations

from importlib import import_module

from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.readers.parsers.base import LabelParser


def get_parser(labels: LabelKind) -> LabelParser:
    """The parser of a kind of label."""
    parser: LabelParser = import_module(f"{__name__}.{labels.value}").PARSER
    return parser
