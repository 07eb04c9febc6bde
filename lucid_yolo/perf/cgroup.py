"""Limits of the Linux control group that this process runs in, version 1 and 2. Reads files, changes nothing.

A container sees the memory and the cores of the whole host in ``/proc/meminfo`` and ``os.cpu_count()``; what it may
use stands in its control group. Every group from the process's own up to the mount point limits it, so the smallest
room counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLimits:
    """What the control group leaves to this process.

    Attributes:
        memory_free: bytes until the limit, page cache that can be dropped counted as free; None without a limit.
        cpu_quota: cores' worth of processor time; None without a quota.
    """

    memory_free: int | None
    cpu_quota: float | None


def read_limits(root: Path = Path("/")) -> CgroupLimits:
    """Read the limits of this process's control group.

    Args:
        root: where the file system that holds ``proc`` and the control-group mounts starts; tests pass a folder.

    Returns:
        the limits; all None where there are no control groups.
    """
    memory = [room for group in _groups(root, "memory") if (room := _memory_room(group)) is not None]
    quota = [cores for group in _groups(root, "cpu") if (cores := _cpu_quota(group)) is not None]
    return CgroupLimits(memory_free=min(memory, default=None), cpu_quota=min(quota, default=None))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the groups that limit this process for one controller, from its own group up to the mount point."""
    paths = _group_paths(root)
    for mounted_root, mount_point, controllers in _mounts(root):
        path = paths.get(controller if controllers else "")
        if path is None or (controllers and controller not in controllers):
            continue
        top = root / mount_point.lstrip("/")
        # Without a namespace of its own a container reads the host's path here; the mount shows only its own group.
        inside = PurePosixPath(path)
        relative = inside.relative_to(mounted_root) if inside.is_relative_to(mounted_root) else PurePosixPath(".")
        folder = top / relative
        while folder != top:
            yield folder
            folder = folder.parent
        yield top


def _group_paths(root: Path) -> dict[str, str]:
    """Path of this process's group by version 1 controller; version 2 is the empty name."""
    paths: dict[str, str] = {}
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _mounts(root: Path) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Mounted root, mount point and version 1 controllers (empty for version 2) of every control-group mount."""
    for line in _lines(root / "proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        mount, file_system = left.split(), right.split()
        if file_system[0] == "cgroup2":
            yield mount[3], mount[4], frozenset()
        elif file_system[0] == "cgroup":
            yield mount[3], mount[4], frozenset(file_system[2].split(","))


def _memory_room(group: Path) -> int | None:
    """Bytes until the limit of one group, or None where it has none."""
    names = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    for limit_name, usage_name in names:
        limit, usage = _number(group / limit_name), _number(group / usage_name)
        if limit is not None and usage is not None:
            return max(0, limit - usage + _reclaimable(group / "memory.stat"))
    return None


def _reclaimable(stat: Path) -> int:
    """Bytes of page cache that the kernel drops before it refuses memory."""
    values = dict(line.split() for line in _lines(stat))
    return int(values.get("total_inactive_file", values.get("inactive_file", 0)))


def _cpu_quota(group: Path) -> float | None:
    """Cores' worth of time of one group, or None where it has no quota."""
    for line in _lines(group / "cpu.max"):
        quota, period = line.split()
        return None if quota == "max" else int(quota) / int(period)
    quota_us, period_us = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
    if quota_us is None or period_us is None or quota_us <= 0:
        return None
    return quota_us / period_us


def _number(path: Path) -> int | None:
    """The number in a file; None where there is no file or it says ``max``."""
    for line in _lines(path):
        return None if line == "max" else int(line)
    return None


def _lines(path: Path) -> list[str]:
    """Lines of a file, none where it cannot be read: every control group lacks some of the files."""
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
