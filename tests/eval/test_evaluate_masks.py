"""Mask AP by hand and against the COCO tools called directly on files."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from pycocotools.coco import COCO

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.eval.coco import IouType, evaluate_boxes
from lucid_yolo.eval.masks import evaluate_masks, score_masks
from lucid_yolo.eval.results import result_types, to_coco_json
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.rle import Rle
from tests.eval.coco_files import evaluate_files, export_truth, numbers, objects_of, perfect, read_coco


@dataclass(frozen=True)
class Masks:
    """Labels with a mask an object."""

    masks: list[Rle]

    def coco_rle(self, row: int, height: int, width: int) -> dict[str, Any]:
        assert (self.masks[row].height, self.masks[row].width) == (height, width)
        return self.masks[row].as_coco()


def rectangle(left: int, top: int, right: int, bottom: int) -> Rle:
    """Mask of a 200 x 100 picture."""
    mask = np.zeros((100, 200), bool)
    mask[top:bottom, left:right] = True
    return Rle.encode(mask)


def ellipse(box: np.ndarray, *, share: float = 1.0) -> Rle:
    """Ellipse in a box, scaled about its centre: its area is less than that of the box."""
    rows, columns = np.mgrid[0:100, 0:200] + 0.5
    (x, y), (a, b) = (box[:2] + box[2:]) / 2, np.maximum((box[2:] - box[:2]) / 2 * share, 0.5)
    return Rle.encode(((columns - x) / a) ** 2 + ((rows - y) / b) ** 2 <= 1)


def with_masks(index: SplitIndex, masks: list[Rle]) -> SplitIndex:
    return replace(index, labels=Masks(masks))


@pytest.fixture
def case(random_case):
    """Splits with crowds, empty images and ties, and detections whose masks are ellipses of random size."""

    def build(seed: int) -> tuple[SplitIndex, list[Detections]]:
        index, found = random_case(seed)
        rng = np.random.default_rng(seed)
        areas = (index.areas * np.pi / 4).astype(np.float32)
        index = with_masks(replace(index, areas=areas), [ellipse(box) for box in index.boxes])
        masked = [
            replace(one, masks=tuple(ellipse(box, share=rng.uniform(0.7, 1.1)) for box in one.boxes)) for one in found
        ]
        return index, masked

    return build


def test_masks_and_not_boxes_are_compared(make_split, make_detections):
    index = with_masks(make_split([[(0, 0, 40, 40, 0)]]), [rectangle(0, 0, 40, 10)])
    (found,) = [replace(make_detections([(0, 0, 40, 40, 0.9, 0)]), masks=(rectangle(0, 0, 40, 16),))]
    metrics = evaluate_masks(index, [found])
    assert metrics.main.ap == pytest.approx(0.3)  # IoU 10 / 16 = 0.625: passes 0.50, 0.55, 0.60
    assert metrics.beside["box"].ap == pytest.approx(1.0)
    assert metrics.main.confusion.tolist() == [[1, 0], [0, 0]]
    less = evaluate_masks(index, [replace(found, masks=(rectangle(0, 0, 40, 21),))])  # 10 / 21
    assert less.main.ap == 0.0
    assert less.main.confusion.tolist() == [[0, 1], [1, 0]]
    assert less.beside["box"].confusion.tolist() == [[1, 0], [0, 0]]
    assert (less.main.curves.true_positives[0, 0], less.main.curves.false_positives[0, 0]) == (0, 1)


def test_mask_on_a_crowd_counts_neither_way(make_split, make_detections):
    index = make_split([[(0, 0, 20, 20, 0), (100, 0, 200, 100, -1)]])
    index = with_masks(index, [rectangle(0, 0, 20, 20), rectangle(150, 0, 200, 100)])  # the right half of the box
    hit, boxes = rectangle(0, 0, 20, 20), make_detections([(110, 20, 190, 40, 0.9, 0), (0, 0, 20, 20, 0.5, 0)])
    on_crowd = evaluate_masks(index, [replace(boxes, masks=(rectangle(160, 20, 190, 40), hit))])
    beside = evaluate_masks(index, [replace(boxes, masks=(rectangle(110, 20, 140, 40), hit))])
    assert on_crowd.main.ap == pytest.approx(1.0)
    assert on_crowd.main.confusion.tolist() == [[1, 0], [0, 0]]
    assert beside.main.ap == pytest.approx(0.5)
    assert beside.beside["box"].ap == pytest.approx(1.0)  # most of that box lies on the crowd's


@pytest.mark.parametrize("seed", range(4))
def test_equal_to_the_coco_tools_on_exported_files(tmp_path, case, seed):
    index, found = case(seed)
    export_truth(index, tmp_path / "truth.json", [{"segmentation": mask.as_json()} for mask in index.labels.masks])
    assert result_types(found) == (IouType.MASKS, IouType.BOXES)
    metrics = evaluate_masks(index, found)
    for iou_type, scores in ((IouType.MASKS, metrics.main), (IouType.BOXES, metrics.beside["box"])):
        (tmp_path / "found.json").write_text(json.dumps(to_coco_json(index, found, iou_type)))
        expected = evaluate_files(tmp_path / "truth.json", tmp_path / "found.json", iou_type.value)
        assert 0.05 < expected[0] < 0.95
        assert numbers(scores) == pytest.approx(expected[:9], abs=1e-6)
    over_all_areas = score_masks(index, found)
    assert over_all_areas.main.ap == metrics.main.ap  # to the last bit
    assert over_all_areas.beside["box"].ap == metrics.beside["box"].ap


def test_confusion_counts_pairs_by_masks(case):
    """Every column of the matrix is as large as the detections of its class that lie on no crowd."""
    index, found = case(1)
    main = evaluate_masks(index, found).main
    assert main.confusion[:-1].sum() == (~index.crowd).sum()
    kept = [one.above(main.best_confidence) for one in found]
    assert main.confusion[:, :-1].sum() <= sum(map(len, kept))
    assert np.diag(main.confusion)[:-1].sum() >= main.curves.true_positives[round(main.best_confidence * 1000)].sum()


def test_perfect_masks_score_one(case):
    index, _ = case(2)
    rows = [np.arange(len(index.crowd))[index.rows(i)] for i in range(len(index))]
    found = [
        replace(one, masks=tuple(index.labels.masks[i] for i in objects[~index.crowd[objects]]))
        for one, objects in zip(perfect(index), rows, strict=True)
    ]
    metrics = evaluate_masks(index, found).main
    assert metrics.ap == pytest.approx(1.0, abs=1e-9)
    assert np.array_equal(metrics.confusion, np.diag(np.append(metrics.curves.objects, 0)))


def test_nothing_found(make_split, make_detections):
    index = with_masks(make_split([[(0, 0, 10, 10, 0)], []]), [rectangle(0, 0, 10, 10)])
    for nothing in ({}, [replace(make_detections([]), masks=())] * 2):
        metrics = evaluate_masks(index, nothing)
        assert (metrics.main.ap, metrics.main.ap50, metrics.beside["box"].ap) == (0.0, 0.0, 0.0)
        assert to_coco_json(index, nothing, IouType.MASKS) == []


def test_what_cannot_be_compared_is_refused(make_split, make_detections):
    plain = make_split([[(0, 0, 10, 10, 0)]])
    index = with_masks(plain, [rectangle(0, 0, 10, 10)])
    found = make_detections([(0, 0, 10, 10, 0.5, 0)])
    with pytest.raises(ValueError, match="by hand was read without masks"):
        evaluate_masks(plain, [found])
    with pytest.raises(ValueError, match="the detections have no masks"):
        evaluate_masks(index, [found])
    with pytest.raises(ValueError, match="nothing to compare by segm"):
        to_coco_json(index, [found], IouType.MASKS)
    small = replace(found, masks=(Rle.encode(np.ones((10, 20), bool)),))
    with pytest.raises(ValueError, match=r"a mask of 20 x 10 in /pictures/0\.jpg, which has 200 x 100 pixels"):
        evaluate_masks(index, [small])


def test_equal_to_the_coco_tools_on_a_real_annotation_file(test_data, tmp_path):
    """Against the untouched file: polygons of several parts and crowds as run lengths."""
    truth = test_data / "coco_open/annotations/instances_val2017.json"
    index, coco = read_coco(truth), COCO(str(truth))
    masks = []
    for annotation in objects_of(json.loads(truth.read_text())):
        encoded = coco.annToRLE(annotation)
        masks.append(Rle(*encoded["size"], encoded["counts"]))
    index = with_masks(index, masks)
    rng = np.random.default_rng(5)
    found = []
    for image, exact in enumerate(perfect(index)):
        objects = np.arange(len(index.crowd))[index.rows(image)]
        moved = [
            Rle.encode(np.roll(masks[i].decode(), rng.integers(-6, 7, 2), (0, 1)))
            for i in objects[~index.crowd[objects]]
        ]
        found.append(replace(exact, masks=tuple(moved), scores=rng.random(len(exact)).astype(np.float32)))
    (tmp_path / "found.json").write_text(json.dumps(to_coco_json(index, found, IouType.MASKS)))
    expected = evaluate_files(truth, tmp_path / "found.json", "segm")
    assert 0.1 < expected[0] < 0.9
    metrics = evaluate_masks(index, found)
    assert numbers(metrics.main) == pytest.approx(expected[:9], abs=1e-6)
    assert numbers(metrics.beside["box"]) == pytest.approx(numbers(evaluate_boxes(index, found)), abs=0)
