"""The nearest known name of a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

CUTOFF = 0.6
SHORTEST = 3  # letters that say something anywhere in a name; its beginning may be shorter


def nearest(name: str, known: Iterable[str], *, limit: int = 3) -> tuple[str, ...]:
    """Find the known names that a misspelt or shortened one may mean, best first.

    Dotted names are compared as a whole and by their last part, so that ``lr`` finds ``optimizer.lr``.
    Where none is alike, those count that begin with what was written or hold it: ``bf16`` finds ``bf16-mixed``.

    Args:
        name: what was written.
        known: what exists.
        limit: at most this many.
    """
    known = tuple(known)
    scored = sorted((-_likeness(name, candidate), candidate) for candidate in set(known))
    best = [(-score, candidate) for score, candidate in scored if -score >= CUTOFF][:limit]
    if not best:
        return _holding(name, known)[:limit]
    return tuple(candidate for score, candidate in best if score >= best[0][0] - 0.15)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Word the nearest names as a question with a leading space; empty when nothing is near."""
    found = nearest(name, known)
    if not found:
        return ""
    return f" Did you mean {' or '.join(repr(candidate) for candidate in found)}?"


def _holding(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known names whose last part begins with a name, else those that hold it; the shortest first."""
    written = name.lower()
    leaves = sorted((len(candidate), candidate) for candidate in set(known))
    leading = [candidate for _, candidate in leaves if candidate.lower().rpartition(".")[2].startswith(written)]
    holding = [candidate for _, candidate in leaves if written in candidate.lower()]
    return tuple((leading if len(written) > 1 else []) or (holding if len(written) >= SHORTEST else []))


def _likeness(name: str, candidate: str) -> float:
    whole = SequenceMatcher(None, name.lower(), candidate.lower()).ratio()
    stem, _, leaf = name.lower().rpartition(".")
    known_stem, _, known_leaf = candidate.lower().rpartition(".")
    by_leaf = SequenceMatcher(None, leaf, known_leaf).ratio()
    if not stem:
        return max(whole, 0.97 * by_leaf if known_stem else 0.0)
    by_stem = SequenceMatcher(None, stem, known_stem).ratio()
    return max(whole, 0.7 * by_leaf + 0.3 * by_stem - 0.05)
