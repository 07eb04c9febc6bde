"""Limits of control groups, read from made-up file systems of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from lucid_yolo.perf.cgroup import CgroupLimits, read_limits

MIB = 1024**2
V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_version_2_with_the_tightest_limit_in_a_parent(tmp_path):
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/container\n",
            "proc/self/mountinfo": V2_MOUNT.format(root="/"),
            "sys/fs/cgroup/pod/container/memory.max": "max\n",
            "sys/fs/cgroup/pod/container/memory.current": f"{100 * MIB}\n",
            "sys/fs/cgroup/pod/container/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/pod/memory.max": f"{512 * MIB}\n",
            "sys/fs/cgroup/pod/memory.current": f"{200 * MIB}\n",
            "sys/fs/cgroup/pod/memory.stat": f"anon 1\ninactive_file {50 * MIB}\n",
            "sys/fs/cgroup/pod/cpu.max": "max 100000\n",
        },
    )
    assert read_limits(root) == CgroupLimits(memory_free=(512 - 200 + 50) * MIB, cpu_quota=1.5)


def test_version_1(tmp_path):
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/job\n1:cpu,cpuacct:/job\n0::/\n",
            "proc/self/mountinfo": V1_MOUNTS.format(root="/"),
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{300 * MIB}\n",
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{100 * MIB}\n",
            "sys/fs/cgroup/memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {20 * MIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{900 * MIB}\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert read_limits(root) == CgroupLimits(memory_free=220 * MIB, cpu_quota=4.0)


@pytest.mark.parametrize("mounted_root", ["/docker/abc", "/elsewhere"])
def test_container_that_sees_the_hosts_path_reads_its_own_mount(tmp_path, mounted_root):
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n",
            "proc/self/mountinfo": V1_MOUNTS.format(root=mounted_root),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{64 * MIB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{65 * MIB}\n",
        },
    )
    assert read_limits(root) == CgroupLimits(memory_free=0, cpu_quota=None)


def test_no_control_groups(tmp_path):
    assert read_limits(tmp_path) == CgroupLimits(memory_free=None, cpu_quota=None)
