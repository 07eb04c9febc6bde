"""``cache`` in the plan: what it says before anything is decoded, when it is refused, and which kind suits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import CacheName, CachePlace, OnUnmet
from lucid_yolo.perf.plan import resolve
from lucid_yolo.perf.rules import DataFacts
from tests.perf.machines import CACHE_BYTES, CPU, CUDA, GIB, MPS, make_config

DATA = DataFacts(num_train=205, num_val=87, num_larger=0, largest=(640, 480), cache_bytes=CACHE_BYTES)
SMALL = replace(CPU, memory_available=2 * GIB, cache_disk_free=2 * GIB)
KINDS = (CacheName.DECODED, CacheName.PREPARED)


def row(config, machine, data=DATA):
    return resolve(config, machine, data)["cache"]


@pytest.mark.parametrize("machine", [CPU, CUDA, MPS])
@pytest.mark.parametrize("place", CachePlace)
def test_none_is_the_default_and_a_place_alone_changes_nothing(machine, place):
    found = row(make_config(place=place), machine)
    assert (found.requested, found.active, found.rule_id, found.reason) == ("none", "none", None, "")


@pytest.mark.parametrize("place", CachePlace)
@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_stands_in_the_plan(kind, place):
    found = row(make_config(cache=kind, place=place), CPU)
    need = {"decoded": "3.00", "prepared": "1.00"}[kind]
    free = {"memory": "16.00 GiB free memory", "disk": "100.00 GiB free disk space"}[place]
    assert (found.active, found.reason) == (kind, f"takes {need} GiB of {free}")


@pytest.mark.parametrize("place", CachePlace)
@pytest.mark.parametrize("machine", [SMALL, replace(SMALL, accelerator="cuda", cuda_devices=CUDA.cuda_devices)])
def test_a_cache_that_does_not_fit_is_refused_with_both_numbers(machine, place):
    with pytest.raises(ConfigError, match=rf"takes 3\.00 GiB .*2\.00 GiB.*\[cache\.fits-{place}\]"):
        row(make_config(cache=CacheName.DECODED, place=place), machine)
    assert row(make_config(cache=CacheName.PREPARED, place=place), machine).active == "prepared"  # 1 GiB fits


@pytest.mark.parametrize(("place", "where"), [(CachePlace.MEMORY, "process"), (CachePlace.DISK, "cache directory")])
def test_one_that_exists_takes_nothing_more(place, where):
    found = row(make_config(cache=CacheName.DECODED, place=place), SMALL, replace(DATA, cache_exists=True))
    assert found.active == "decoded"
    assert f"held by this {where} already".replace("this cache", "the cache") in found.reason


def test_without_the_data_nothing_is_judged():
    assert row(make_config(cache=CacheName.DECODED), SMALL, None).active == "decoded"


def test_memory_elsewhere_than_on_linux_falls_back_and_a_file_does_not():
    config = make_config(cache=CacheName.DECODED)
    found = row(config, MPS)
    assert (found.requested, found.active, found.rule_id) == ("decoded", "none", "cache.memory-needs-linux")
    assert row(make_config(cache=CacheName.DECODED, place=CachePlace.DISK), MPS).active == "decoded"
    config.on_unmet = OnUnmet.RAISE
    with pytest.raises(ConfigError, match="memory-needs-linux"):
        row(config, MPS)


@pytest.mark.parametrize(
    ("kind", "larger", "words"),
    [
        (CacheName.NONE, 5, None),
        (CacheName.DECODED, 5, "cache=prepared can help: it keeps pictures at training resolution, 1.00 GiB instead"),
        (CacheName.DECODED, 0, None),
        (CacheName.PREPARED, 5, None),
        (CacheName.PREPARED, 0, "No training picture is larger than the 640 px canvas: cache=decoded does the same"),
    ],
)
def test_a_note_says_which_kind_suits(kind, larger, words):
    notes = resolve(make_config(cache=kind), CPU, replace(DATA, num_larger=larger)).notes
    found = [note for note in notes if "cache=" in note]
    assert [note[: len(words or "")] for note in found] == ([words] if words else [])
