"""Problems of a data set, gathered so that a user sees many at once and not one a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lucid_yolo.config.errors import DataError

_SHOWN = 10


class LabelError(DataError):
    """Labels of a split that cannot be used, with what was found out before.

    Args:
        message: what the user reads.
        count: number of problems.
        images: files of the split that exist; empty where that is not known.
    """

    def __init__(self, message: str, *, count: int = 1, images: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.count = count
        self.images = tuple(images)


class Problems:
    """Collects problems of one source; the first ten are shown in full, all are counted.

    Args:
        source: file or folder that they concern.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._shown: list[str] = []
        self._count = 0
        self._hints: list[str] = []

    def add(self, problem: str) -> None:
        """Note a problem: one sentence that names the place, the value and what is allowed."""
        self._count += 1
        if self._count <= _SHOWN:
            self._shown.append(problem)

    def hint(self, sentence: str) -> None:
        """Add a sentence about the likely cause of several problems, once."""
        if sentence not in self._hints:
            self._hints.append(sentence)

    def raise_if_any(self, images: Sequence[str] = ()) -> None:
        """Raise all problems as one error.

        Args:
            images: files of the split, where they are known by now.

        Raises:
            LabelError: there is at least one problem.
        """
        if not self._count:
            return
        if self._count == 1:
            raise LabelError(". ".join([f"{self._source}: {self._shown[0]}", *self._hints]), images=images)
        lines = [f"{self._count} problems in {self._source}:", *(f"  {p}" for p in self._shown)]
        if self._count > _SHOWN:
            lines.append(f"  ... and {self._count - _SHOWN} more")
        raise LabelError("\n".join(lines + self._hints), count=self._count, images=images)


def some(items: Iterable[object], *, shown: int = 5) -> str:
    """First items of a list, and how many there are beyond."""
    texts = [str(item) for item in items]
    rest = len(texts) - shown
    return ", ".join(texts[:shown]) + (f" and {rest} more" if rest > 0 else "")


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun: "1 box", "2 boxes"."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def allowed_ids(ids: Sequence[int]) -> str:
    """Ids for a message: as a range where they have no gap."""
    if len(ids) > 3 and ids[-1] - ids[0] == len(ids) - 1:
        return f"{ids[0]} to {ids[-1]}"
    return some(ids, shown=20)
