# SPDX-License-Identifier: Apache-2.0
"""Faults around vc-syncer. None of them may make its load fail: objects are late, and come."""

from collections.abc import Mapping

from tests.soak.faults import FaultError, SoakFault
from tests.soak.load import LoadThread
from tests.soak.node import SYNCED, SoakNode
from tests.soak.recorder import Recorder
from tests.soak.supervisor import Supervisor
from tests.waiting import holds_within

DEADLINE_S = 120.0


class SyncFaults:
    """The faults of vc-syncer. `threads` are the load of each tenant, by its name."""

    def __init__(
        self,
        node: SoakNode,
        recorder: Recorder,
        supervisor: Supervisor,
        threads: Mapping[str, LoadThread],
    ) -> None:
        self._node = node
        self._recorder = recorder
        self._supervisor = supervisor
        self._threads = threads

    def faults(self) -> list[SoakFault]:
        away = SYNCED[0]
        return [
            SoakFault("vc-syncer killed", self._kill, ends_process=True),
            SoakFault("tenant API server gone", self._pause, self._node.syncer.planes[away].resume),
        ]

    def _kill(self) -> None:
        self._supervisor.kill(self._node.syncer.syncer)

    def _pause(self) -> None:
        """One tenant's API server goes away. The other one's objects are synced meanwhile."""
        away, other = SYNCED
        self._node.syncer.planes[away].pause()
        begin_s = self._recorder.now_s()
        if not holds_within(lambda: self._threads[other].last_ok_begin_s > begin_s, DEADLINE_S):
            raise FaultError("another tenant's objects were not synced while one API server was gone")
