"""Detections as files."""

from __future__ import annotations

import json
from pathlib import PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_yolo.eval.predictions_io import detection_records, output_stems, write_json, write_yolo, yolo_lines


def test_records(make_detections):
    found = make_detections([(10, 20, 40, 60, 0.5, 1)])
    assert detection_records("a/b.jpg", found, ("cat", "dog"), (7, 90)) == [
        {
            "file_name": "a/b.jpg",
            "class_id": 1,
            "category_id": 90,
            "class_name": "dog",
            "score": 0.5,
            "bbox": [10.0, 20.0, 30.0, 40.0],
        }
    ]


def test_yolo_lines(make_detections):
    found = make_detections([(10, 20, 40, 60, 0.5, 1)])  # centre (25, 40), size (30, 40) in 200 x 100
    assert yolo_lines(found, width=200, height=100) == ["1 0.125000 0.400000 0.150000 0.400000 0.500000"]
    assert yolo_lines(make_detections([]), width=200, height=100) == []


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["/d/a.jpg", "/d/b.jpg"], ["a", "b"]),
        (["/d/x/a.jpg", "/d/y/a.jpg", "/d/y/b.jpg"], ["x/a", "y/a", "b"]),
        (["/d/a.jpg", "/d/a.png", "/d/b.png"], ["a_jpg", "a_png", "b"]),
        (["/d/x/a.jpg", "/d/x/a.png", "/d/y/a.jpg"], ["x/a_jpg", "x/a_png", "y/a"]),
        (["a.jpg", "a.jpg"], ["a_jpg", "a_jpg_2"]),
        (["/d/A.jpg", "/d/e/a.jpg"], ["A", "e/a"]),
        (["../a.jpg", "x/a.jpg"], ["a", "x/a"]),
        (["image 0", "image 1"], ["image 0", "image 1"]),
        (["/d/a.v1.jpg"], ["a.v1"]),
        (["/d/...jpg", "/d/b.jpg"], ["...jpg", "b"]),  # without its suffix it would name the folder above
        ([], []),
    ],
)
def test_output_stems(sources, expected):
    assert list(output_stems(sources)) == expected


names = st.text("aAb._", min_size=1, max_size=4).filter(lambda name: name.strip("."))


@settings(deadline=None)
@given(st.lists(st.tuples(st.lists(names, max_size=2), names, st.sampled_from(["", ".jpg", ".png"])), max_size=8))
def test_output_stems_are_distinct_and_stay_inside(parts):
    sources = ["/".join([*folders, stem + suffix]) for folders, stem, suffix in parts]
    stems = output_stems(sources)
    assert len({stem.casefold() for stem in stems}) == len(sources)
    assert not any(PurePath(stem).is_absolute() or ".." in PurePath(stem).parts for stem in stems)


def test_written_files(tmp_path, make_detections):
    records = detection_records("b\u00e4r.jpg", make_detections([(0, 0, 1, 1, 0.25, 0)] * 2), ("B\u00e4r",), (0,))
    path = write_json(tmp_path / "out/predictions.json", records)
    assert json.loads(path.read_text(encoding="utf-8")) == records
    assert json.loads(write_json(tmp_path / "none.json", []).read_text()) == []
    text = write_yolo(tmp_path / "labels", "x/a.v1", ["0 0.5 0.5 1 1 0.9"])
    assert text == tmp_path / "labels/x/a.v1.txt"
    assert text.read_text() == "0 0.5 0.5 1 1 0.9\n"
    assert write_yolo(tmp_path / "labels", "b", []).read_text() == ""
