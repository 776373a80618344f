# SPDX-License-Identifier: Apache-2.0
"""The machine of a run, and the share of other processes."""

import os
import platform

from tests.k8s import build

# An idle machine's own housekeeping stays below this share of it.
QUIET_SHARE = 0.03


def describe(others_share: float, *more: str) -> str:
    """Lines to print above the figures; `others_share` is of all processors, from `usage.Others`."""
    words = (
        "quiet"
        if others_share < QUIET_SHARE
        else "DISTURBED: times are unreliable; CPU, memory and sizes hold"
    )
    machine = (
        f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}, "
        f"Python {platform.python_version()}, Kubernetes {build.KUBERNETES_VERSION}"
    )
    return "\n".join([machine, *more, f"others took {others_share:.1%} of the machine: {words}"])
