# SPDX-License-Identifier: Apache-2.0
"""Faults around the guests' daemons. None of them may make a request in a guest fail."""

from collections.abc import Mapping
from functools import partial

from tests.soak.faults import SoakFault
from tests.soak.supervisor import Supervisor
from vcnode_demo.daemon import Daemon


def bridge_faults(daemons: Mapping[str, Daemon], supervisor: Supervisor) -> list[SoakFault]:
    """Each of these daemons is killed."""
    return [
        SoakFault(f"{name} killed", partial(supervisor.kill, daemon), ends_process=True)
        for name, daemon in daemons.items()
    ]
