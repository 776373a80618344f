# SPDX-License-Identifier: Apache-2.0
"""What a daemon under test has had resident."""

import asyncio
from pathlib import Path

MB = 1e6


def peak_mb(process: asyncio.subprocess.Process | None) -> float:
    """The most that was resident since the start (VmHWM), in MB."""
    assert process is not None
    lines = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / MB
