# SPDX-License-Identifier: Apache-2.0
"""Runs a module with clocks that a test moves: both ways, by the seconds that stand in a file.

    python -m tests.moved_clock FILE CLOCKS MODULE [ARGUMENT ...]

CLOCKS: `wall`, `monotonic` or `wall,monotonic`. asyncio takes its time from `time.monotonic`, so timers come
due when the event loop turns after a move: ask for a status page. Timers of the kernel (TCP keepalive) stay.
gRPC has the real clocks: it makes times of day of its deadlines, which its core compares with the kernel's.
"""

import mmap
import runpy
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

_OFFSET = struct.Struct("d")


def move(file: Path, offset_s: float) -> None:
    """Set the clocks this much ahead of the real ones. Create the file so before the process starts."""
    with file.open("r+b" if file.exists() else "wb") as offset:
        offset.write(_OFFSET.pack(offset_s))


def main() -> None:
    """Replace the clocks, then become the module."""
    file, clocks, module = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
    with file.open("rb") as offset:
        view = mmap.mmap(offset.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)
    if "monotonic" in clocks:
        time.monotonic = _moved(time.monotonic, view)
    if "wall" in clocks:
        time.time = wall = _moved(time.time, view)
        time.time_ns = lambda: int(wall() * 1_000_000_000)
    sys.argv = sys.argv[3:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _moved(real: Callable[[], float], view: mmap.mmap) -> Callable[[], float]:
    def clock() -> float:
        if str(sys._getframe(1).f_globals.get("__name__")).startswith("grpc."):  # noqa: SLF001 - who asks
            return real()
        offset_s: float = _OFFSET.unpack(view)[0]
        return real() + offset_s

    return clock


if __name__ == "__main__":
    main()
