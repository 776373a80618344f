# SPDX-License-Identifier: Apache-2.0
"""Runs vn-agent as on a slower machine: it measures each handshake at four times its processor time.

    python -m tests.functional.vnagent.slow_machine --config FILE

Whether a chain is expensive depends on the machine; this way the most expensive one is so on all of them.
"""

import runpy
import time

_FACTOR = 4.0


def main() -> None:
    """Replace the clock, then become the module."""
    real = time.thread_time
    time.thread_time = lambda: _FACTOR * real()
    runpy.run_module("vnagent", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
