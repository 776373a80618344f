# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from daemonkit.run import memory_limit
from daemonkit.run.memory_limit import MemoryLimit

V1_NO_LIMIT = "9223372036854771712\n"


def found(tmp_path: Path, memberships: str, files: dict[str, str]) -> tuple[int, str] | None:
    """The limit and the file that has it, as a process of these memberships finds them."""
    proc, mounted = tmp_path / "cgroup", tmp_path / "mounted"
    proc.write_text(memberships)
    for name, text in files.items():
        (mounted / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted / name).write_text(text)
    limit = memory_limit.find(proc, mounted)
    return None if limit is None else (limit.size_bytes, str(limit.path.relative_to(mounted)))


@pytest.mark.parametrize(
    ("memberships", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "1000\n"}, (1000, "a/b/memory.max")),
        # The slice has less than the unit.
        ("0::/a/b\n", {"a/b/memory.max": "1000\n", "a/memory.max": "900\n"}, (900, "a/memory.max")),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "max\n"}, None),
        # A container with a namespace of its own.
        ("0::/\n", {"memory.max": "2000\n"}, (2000, "memory.max")),
        # A cgroup outside of the namespace.
        ("0::/../x\n", {"memory.max": "2000\n", "x/memory.max": "1\n"}, None),
        (
            "5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n",
            {"memory/a/memory.limit_in_bytes": "3000\n", "memory/memory.limit_in_bytes": V1_NO_LIMIT},
            (3000, "memory/a/memory.limit_in_bytes"),
        ),
        ("4:memory:/a\n", {"memory/memory.limit_in_bytes": V1_NO_LIMIT}, None),
        ("4:memory:/a\n", {"memory/memory.limit_in_bytes": "-1\n"}, None),
        ("not a line\n", {}, None),
        ("", {}, None),
    ],
)
def test_the_smallest_limit_counts(
    tmp_path: Path, memberships: str, files: dict[str, str], expected: tuple[int, str] | None
) -> None:
    assert found(tmp_path, memberships, files) == expected


def test_a_process_without_these_files_has_no_limit(tmp_path: Path) -> None:
    assert memory_limit.find(tmp_path / "none", tmp_path) is None


def test_this_process_can_be_asked() -> None:
    limit = memory_limit.find()
    assert limit is None or isinstance(limit, MemoryLimit)
