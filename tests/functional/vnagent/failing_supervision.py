# SPDX-License-Identifier: Apache-2.0
"""Runs vn-agent with a fault of its own: what supervises its workers fails at SIGUSR2.

python -m tests.functional.vnagent.failing_supervision --config FILE
"""

import runpy
import signal

from vnagent.workers.worker_handle import WorkerHandle


def main() -> None:
    """Prepare the fault, then become the module."""

    def fault(_: WorkerHandle, now_s: float) -> str:
        raise RuntimeError(f"supervision has failed at {now_s}")

    def break_supervision(*_: object) -> None:
        setattr(WorkerHandle, WorkerHandle.fault.__name__, fault)

    signal.signal(signal.SIGUSR2, break_supervision)
    runpy.run_module("vnagent", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
