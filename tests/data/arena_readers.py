"""What other processes do with an arena in the tests; importable under every start method."""

from __future__ import annotations

import re
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import numpy as np

from lucid_yolo.data.arena import Arena


def mapped_kib(path: str) -> dict[str, int]:
    """Resident and proportional size of this process's mappings of a file, KiB; an arena in memory is a memfd."""
    name = "/memfd:lucid-yolo-arena" if path.startswith("/proc/") else path
    found = {"Rss": 0, "Pss": 0, "Private_Dirty": 0}
    inside = False
    with open("/proc/self/smaps", encoding="utf-8") as lines:
        for line in lines:
            if re.match(r"^[0-9a-f]+-[0-9a-f]+ ", line):
                inside = name in line
            elif inside and (key := line.partition(":")[0]) in found:
                found[key] += int(line.split()[1])
    return found


def read_all(arena: Arena, everyone: Barrier, results: Connection) -> None:
    """Touch every byte, wait until all have, and report a checksum and the sizes."""
    total = sum(int(arena[i].astype(np.int64).sum()) for i in range(len(arena)))
    everyone.wait(60)
    sizes = mapped_kib(arena.path)
    everyone.wait(60)
    results.send((total, sizes))
    results.close()
