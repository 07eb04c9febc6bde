"""The site builds without the network, and a broken link fails the build."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from lucid_yolo.perf import docs
from lucid_yolo.perf.flag import find_flags
from tests.checkout import ROOT, run_python

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Sources of the site, to plant things in."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


def build(folder: Path) -> tuple[int, str]:
    """Exit status and words of a strict build."""
    done = run_python("-m", "mkdocs", "build", "--strict", "--site-dir", folder / "site", cwd=folder)
    return done.returncode, done.stdout + done.stderr


def broken_links(page: Path) -> list[str]:
    """Relative links of a Markdown page that lead nowhere."""
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    return [t for t in targets if "://" not in t and not t.startswith("mailto:") and not (page.parent / t).exists()]


def test_site_builds_and_fetches_nothing(site):
    status, words = build(site)
    assert status == 0, words
    pages = list((site / "site").rglob("*.html"))
    assert len(pages) >= len(list((ROOT / "docs").glob("*.md")))
    for page in pages:
        fetched = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)", page.read_text("utf-8"))
        assert not fetched, page


@pytest.mark.parametrize(
    ("planted", "words"),
    [("[nowhere](nowhere.md)", "nowhere.md"), ("[no heading](flags.md#nothing)", "nothing"), ("", "orphan.md")],
)
def test_a_planted_fault_fails_the_build(site, planted, words):
    if planted:
        page = site / "docs" / "data.md"
        page.write_text(f"{page.read_text('utf-8')}\n{planted}\n")
    else:
        (site / "docs" / "orphan.md").write_text("# In no menu\n")
    status, printed = build(site)
    assert status != 0
    assert words in printed


@pytest.mark.parametrize(
    "page", [p.relative_to(ROOT) for p in sorted([*ROOT.glob("*.md"), *ROOT.glob("multirun_sweeps/*.md")])]
)
def test_links_of_pages_outside_the_site(page):
    assert broken_links(ROOT / page) == []


def test_a_planted_broken_link_is_found(tmp_path):
    page = tmp_path / "README.md"
    page.write_text("[a](NOTICE) [b](https://example.org) [c](README.md#top)")
    assert broken_links(page) == ["NOTICE"]


def test_generated_tables_are_up_to_date():
    assert docs.main(["--check", str(ROOT / "docs")]) == 0


def test_a_stale_table_is_noticed_and_then_written(site, capsys):
    page = site / "docs" / "flags.md"
    fresh = page.read_text("utf-8")
    page.write_text(fresh.replace("precision.bf16-needs-torch", "precision.gone"))
    assert docs.main(["--check", str(site / "docs")]) == 1
    assert "is out of date; write it with: python -m lucid_yolo.perf.docs" in capsys.readouterr().err
    assert docs.main([str(site / "docs")]) == 0
    assert page.read_text("utf-8") == fresh


def test_tables_hold_every_flag_and_every_rule():
    page = (ROOT / "docs" / "flags.md").read_text("utf-8")
    for flag in find_flags():
        assert page.count(f"\n| `{flag.key}` |") == 1
        for rule in flag.rules:
            assert page.count(f"\n| `{rule.id}` | `{flag.key}` | {rule.stage} | {rule.kind} |") == 1


@pytest.mark.parametrize("page", ["no markers", "<!-- x: begin --><!-- x: end -->" * 2])
def test_markers_must_be_there_once(page):
    with pytest.raises(ValueError, match="expected one pair of markers"):
        docs.fill(page, "x", "table")
