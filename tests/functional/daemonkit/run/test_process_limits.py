# SPDX-License-Identifier: Apache-2.0
"""In a process of its own: the allocator cannot be set back."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from daemonkit.run.process_limits import return_large_blocks

def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

if sys.argv[1] == "yes":
    assert return_large_blocks()
bytes(1 << 20)  # freed: from here on glibc takes such blocks from the heap
before = resident_kib()
large = [b"x" * (200 << 10) for _ in range(100)]
pins = [bytes(1000) for _ in range(100)]
large = None
print(resident_kib() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_freed_large_blocks_leave_the_resident_set() -> None:
    grown = {
        is_set: int(subprocess.check_output([sys.executable, "-c", PROGRAM, is_set]))
        for is_set in ("no", "yes")
    }
    assert grown["yes"] < 5_000
    assert grown["yes"] < grown["no"]


BURST = """
from daemonkit.run.process_limits import return_free_pages

def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

burst, kept = [], []
for _ in range(5_000):
    burst.append(bytes(8 << 10))
    kept.append(bytes(600))
burst.clear()
before = resident_kib()
assert return_free_pages()
print(before - resident_kib())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_free_pages_leave_the_resident_set() -> None:
    """Free 40 MB between blocks that stay; the first and the last page of each gap may be in use."""
    assert int(subprocess.check_output([sys.executable, "-c", BURST])) > 15_000
