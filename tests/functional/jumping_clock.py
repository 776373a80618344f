# SPDX-License-Identifier: Apache-2.0
"""Runs a module with a wall clock that jumps: by as many seconds as a file says at that moment.

    python -m tests.functional.jumping_clock FILE MODULE [ARGUMENT ...]

The monotonic clock is as it is: no kernel lets that one jump. gRPC has the real clock too: it makes
times of day of its deadlines, which its core compares with the kernel's in the same moment.
"""

import runpy
import sys
import time
from pathlib import Path


def main() -> None:
    """Put the clock in its place, then become the module."""
    file, module = Path(sys.argv[1]), sys.argv[2]
    real = time.time

    def jumping() -> float:
        if str(sys._getframe(1).f_globals.get("__name__")).startswith("grpc."):  # noqa: SLF001 - who asks
            return real()
        try:
            return real() + float(file.read_text())
        except (OSError, ValueError):
            return real()  # it is not there yet, or just being written

    time.time = jumping
    time.time_ns = lambda: int(jumping() * 1_000_000_000)
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main()
