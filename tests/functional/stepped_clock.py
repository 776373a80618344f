# SPDX-License-Identifier: Apache-2.0
"""Runs a module with a monotonic clock that a test steps forward, by the seconds in a file.

    python -m tests.functional.stepped_clock FILE MODULE [ARGUMENT ...]

asyncio takes its time from `time.monotonic`, so timers come due when the event loop turns after a step: ask
for a status page. The wall clock and timers of the kernel stay as they are.
"""

import contextlib
import runpy
import sys
import time
from pathlib import Path


def main() -> None:
    """Replace the clock, then become the module."""
    file, module = Path(sys.argv[1]), sys.argv[2]
    real = time.monotonic
    # A monotonic clock never goes back, so a file that is just being written changes nothing.
    offset_s = 0.0

    def stepped() -> float:
        nonlocal offset_s
        with contextlib.suppress(OSError, ValueError):
            offset_s = max(offset_s, float(file.read_text(encoding="ascii")))
        return real() + offset_s

    time.monotonic = stepped
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
