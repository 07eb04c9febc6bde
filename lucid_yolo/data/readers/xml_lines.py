"""XML with line numbers, which the standard library's trees do not keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from lucid_yolo.config.errors import DataError


@dataclass(slots=True)
class Element:
    """An element of an XML file.

    Attributes:
        tag: its name.
        line: on which it begins, from 1.
        text: what stands in it beside other elements, without spaces at both ends.
        children: the elements in it.
    """

    tag: str
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """Children of a name."""
        return [child for child in self.children if child.tag == tag]

    def first(self, tag: str) -> Element | None:
        """First child of a name."""
        return next(iter(self.all(tag)), None)


def read_xml(file: Path) -> Element:
    """Read a file.

    Returns:
        Its outermost element.

    Raises:
        DataError: it cannot be read or is not XML.
    """
    parser = expat.ParserCreate()
    top = Element("", 0)
    stack = [top]

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def end(tag: str) -> None:
        element = stack.pop()
        element.text = element.text.strip()

    def text(data: str) -> None:
        stack[-1].text += data

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    try:
        parser.Parse(file.read_bytes(), True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, "malformed")
        raise DataError(f"{file}: not XML: {reason} in line {error.lineno}, column {error.offset + 1}") from None
    except OSError as error:
        raise DataError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    return top.children[0]
