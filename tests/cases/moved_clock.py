# SPDX-License-Identifier: Apache-2.0
"""Runs vn-agent in a process whose Python clock can be moved: `OFFSET_FILE [its arguments]`.

A test cannot wait for an idle limit of hours. Before the agent is imported, `time.monotonic` and
`time.time` get the double in OFFSET_FILE added. asyncio uses `time.monotonic`, so the agent's timers come
due at the loop's next iteration. Timers of the kernel (TCP keepalive) stay.
"""

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

OFFSET = struct.Struct("d")


def main() -> None:
    file = Path(sys.argv[1]).open("r+b")  # noqa: SIM115 - read until the process ends
    view = mmap.mmap(file.fileno(), OFFSET.size, access=mmap.ACCESS_READ)
    real_monotonic, real_time = time.monotonic, time.time

    def monotonic() -> float:
        offset: float = OFFSET.unpack(view)[0]
        return real_monotonic() + offset

    def wall() -> float:
        offset: float = OFFSET.unpack(view)[0]
        return real_time() + offset

    time.monotonic, time.time = monotonic, wall
    sys.argv = ["vnagent", *sys.argv[2:]]
    runpy.run_module("vnagent", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
