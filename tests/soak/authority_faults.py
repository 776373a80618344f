# SPDX-License-Identifier: Apache-2.0
"""New certificate authorities of residents. Nothing may fail: the old one and the new one overlap.

vnagent/README.md: when a tenant's Secret changes, the old certificate stays registered for 10 minutes; a
client that is taken off the list is removed at once.
"""

from collections.abc import Callable
from functools import partial
from itertools import cycle

from devkit.pki import Leaf
from tests.soak.agent_load import AgentLoad
from tests.soak.faults import FaultError, SoakFault
from tests.soak.node import RESIDENTS, SoakNode, SoakTenant, new_identity
from tests.soak.recorder import Recorder
from tests.waiting import holds_within
from vcnode_demo.tenant import DemoTenant
from vcnode_demo.tenant_client import RefusedError
from vnagent.tenants.rotation import OVERLAP_S

DEADLINE_S = 60.0
# A replaced certificate is refused then. A restart after the clock was moved may begin its 10 minutes anew.
ENDED_S = 2 * OVERLAP_S + 60.0


class AuthorityFaults:
    """One resident after the other gets a new authority, and new certificates with it."""

    def __init__(self, node: SoakNode, recorder: Recorder) -> None:
        self._node = node
        self._recorder = recorder
        self._turns = cycle(RESIDENTS)
        # Certificates of API servers, and when their authority was removed.
        self._replaced: list[tuple[Leaf, float]] = []
        self._old: DemoTenant | None = None
        self._tenant: SoakTenant | None = None

    def faults(self) -> list[SoakFault]:
        return [SoakFault("tenant's authority renewed", self._overlap, self._remove_old)]

    def _overlap(self) -> None:
        """Both authorities are registered. The load changes to certificates of the new one."""
        self._tenant = tenant = self._node.tenants[next(self._turns)]
        self._old = old = tenant.identity
        new = new_identity(old.name, old.key)
        self._node.super_cluster.put_registration(
            old.key, [old.authority, new.authority], new.apiserver, [old.metrics, new.metrics]
        )
        load = AgentLoad(self._node, tenant, self._recorder)
        for leaf in (new.apiserver, new.metrics):
            self._wait("a client of the new authority is served", partial(_is_served, load, leaf))
        for leaf in (old.apiserver, old.metrics):
            if load.status_for(leaf) != 200:
                raise FaultError("a client of the old authority is not served beside the new one")
        tenant.identity = new

    def _remove_old(self) -> None:
        """Each thread of load has the new certificates by now."""
        tenant, old = self._tenant, self._old
        if tenant is None or old is None:
            return
        load = AgentLoad(self._node, tenant, self._recorder)
        new = tenant.identity
        self._node.super_cluster.put_registration(old.key, [new.authority], new.apiserver, [new.metrics])
        self._wait("the old metrics client is refused", lambda: _status(load, old.metrics) == 403)
        if load.status_for(old.apiserver) != 200:
            raise FaultError("the API server's old certificate is refused at once")
        now_s = self._recorder.now_s()
        ended = [leaf for leaf, at_s in self._replaced if now_s - at_s > ENDED_S]
        self._replaced = [(leaf, at_s) for leaf, at_s in self._replaced if leaf not in ended]
        self._replaced.append((old.apiserver, now_s))
        if any(_is_served(load, leaf) for leaf in ended):
            raise FaultError("a certificate is served long after it was replaced")

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        if not holds_within(condition, DEADLINE_S):
            raise FaultError(f"not within {DEADLINE_S:.0f} s: {what}")


def _status(load: AgentLoad, leaf: Leaf) -> int | None:
    """The status of an answer; None if the connection was refused, or cut by the reload that revoked it."""
    try:
        return load.status_for(leaf)
    except RefusedError:
        return None


def _is_served(load: AgentLoad, leaf: Leaf) -> bool:
    return _status(load, leaf) == 200
