# SPDX-License-Identifier: Apache-2.0
"""Faults around vn-agent. What may fail is what its README promises under *Failures*."""

import errno
import json
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from itertools import count
from os import SEEK_END

from daemonkit.status.server import StatusError
from devkit.pki import Leaf
from tests import moved_clock
from tests.soak.agent_load import AgentLoad
from tests.soak.answers import Allowance
from tests.soak.faults import FaultError, SoakFault
from tests.soak.load import LoadThread
from tests.soak.node import PORT, SoakNode, SoakTenant
from tests.soak.processor_time import FELL
from tests.soak.recorder import Recorder
from tests.soak.supervisor import Supervisor
from tests.waiting import holds_within
from vcnode_demo.tenant_client import RefusedError

# Of what a fault waits for itself; a busy machine takes its time.
DEADLINE_S = 60.0
HOUR_S = 3600.0
# The README's promise, and what a busy machine may add to it.
CUT_S, CUT_MARGIN_S = 5.0, 10.0
MOST_VISITORS = 2
# More than one line of the audit log.
_LINES_BYTES = 4096

_AGENT = r"log|exec|attach|forward|exec-websocket|page|refusal|follow|shell"
_ASKS_KUBELET = r"log|exec|attach|forward|exec-websocket|page|follow|shell"
_STREAMS = r"exec|attach|forward|exec-websocket|shell"
_CUT = r"cut: .*"
_KUBELET_FAILED = r"50[24] .*"


class AgentFaults:
    """The faults of vn-agent's node. `visitors` are tenants that came during the run."""

    def __init__(self, node: SoakNode, recorder: Recorder, supervisor: Supervisor) -> None:
        self._node = node
        self._recorder = recorder
        self._supervisor = supervisor
        self._numbers = count(1)
        self._ballast = node.small_disk / "ballast"
        self.visitors: list[tuple[SoakTenant, list[LoadThread]]] = []
        # How long the streams of each removed tenant went on.
        self.cuts_s: list[float] = []

    def faults(self) -> list[SoakFault]:
        kubelet_away = (Allowance(_ASKS_KUBELET, rf"{_KUBELET_FAILED}|{_CUT}"),)
        agent_away = (Allowance(_AGENT, rf"{_CUT}|503 .*"), Allowance("page", FELL))
        return [
            SoakFault("vn-agent killed", self._kill_agent, may=agent_away, must=_CUT, ends_process=True),
            SoakFault(
                "vn-agent killed without super cluster",
                self._kill_agent_alone,
                self._node.super_cluster.resume,
                may=agent_away,
                must=_CUT,
                ends_process=True,
            ),
            SoakFault(
                "kubelet down",
                self._node.kubelet.pause,
                self._node.kubelet.resume,
                kubelet_away,
                rf"{_KUBELET_FAILED}",
            ),
            SoakFault("kubelet certificate renewed", self._renew_kubelet, may=kubelet_away, must=_CUT),
            SoakFault("kubelet connections cut", self._node.kubelet.drop_connections, may=kubelet_away),
            SoakFault("client certificate renewed", self._renew_kubelet_client),
            SoakFault("serving certificate renewed", self._renew_serving),
            SoakFault(
                "super API server gone",
                self._node.super_cluster.pause,
                self._node.super_cluster.resume,
                # A pod that the last list lacked may exist by now.
                (Allowance("refusal", r"503 .*"),),
            ),
            # Its VirtualCluster and its Secrets come by watches of their own, in any order.
            SoakFault(
                "tenant added", self._add_visitor, may=(_logged("tenant is invalid.* does not exist"),)
            ),
            SoakFault(
                "tenant removed", self._remove_visitor, may=(_logged("tenant is invalid.* does not exist"),)
            ),
            SoakFault(
                "disk full",
                self._fill_disk,
                self._free_disk,
                (
                    Allowance(_STREAMS, r"503 .*audit.*"),
                    _logged("audit log cannot be written|state cannot be saved"),
                ),
                must=r"error: audit log cannot be written.*",
            ),
            SoakFault("audit log moved", self._move_audit_log),
            SoakFault("clock an hour ahead", lambda: self._move_clock(HOUR_S), lambda: self._move_clock(0.0)),
            SoakFault(
                "clock an hour behind", lambda: self._move_clock(-HOUR_S), lambda: self._move_clock(0.0)
            ),
        ]

    # ---- processes

    def _kill_agent(self) -> None:
        self._supervisor.kill(self._node.agent)

    def _kill_agent_alone(self) -> None:
        """Saved state is served then."""
        self._node.super_cluster.pause()
        self._kill_agent()

    # ---- certificates

    def _renew_kubelet(self) -> None:
        self._node.kubelet.restart(tls=self._node.kubelet_tls())

    def _renew_kubelet_client(self) -> None:
        name = f"system:vn-agent:renewed-{next(self._numbers)}"
        self._node.renew_kubelet_client(name)
        self._wait(
            "vn-agent shows its new certificate to the kubelet",
            lambda: any(each.peer == name for each in self._node.kubelet.exchanges[-50:]),
        )

    def _renew_serving(self) -> None:
        leaf = self._node.renew_serving()
        self._wait("vn-agent shows its new serving certificate", lambda: self._is_shown(leaf))

    def _is_shown(self, leaf: Leaf) -> bool:
        context = ssl.create_default_context(cafile=str(self._node.serving_ca_file))
        resident = next(iter(self._node.tenants.values()))
        resident.identity.apiserver.load_into(context)
        with (
            socket.create_connection(("127.0.0.1", PORT), DEADLINE_S) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as tls,
        ):
            return tls.getpeercert(binary_form=True) == leaf.der

    # ---- tenants

    def _add_visitor(self) -> None:
        if len(self.visitors) >= MOST_VISITORS:
            self._remove_visitor()
        tenant = self._node.add_tenant(f"visitor-{next(self._numbers)}")
        self._supervisor.owners[tenant.secret_pod] = tenant.identity.key
        load = AgentLoad(self._node, tenant, self._recorder)
        self._wait("a new tenant is served", lambda: _is_well(load.is_served))
        threads = load.threads()
        self.visitors.append((tenant, threads))
        for thread in threads:
            thread.start()

    def _remove_visitor(self) -> None:
        if not self.visitors:
            self._add_visitor()
        tenant, threads = self.visitors.pop(0)
        for thread in threads:
            thread.stop()
        load = AgentLoad(self._node, tenant, self._recorder)
        with ExitStack() as stack:
            streams = [
                stack.enter_context(load.open_stream("exec")),
                stack.enter_context(load.open_follow()),
            ]
            if [stream.head.status for stream in streams] != [101, 200]:
                raise FaultError("the streams of a tenant that is to be removed did not open")
            began_s = time.monotonic()
            self._node.remove_tenant(tenant)
            are_cut = all(stream.is_cut(CUT_S + CUT_MARGIN_S) for stream in streams)
            self.cuts_s.append(time.monotonic() - began_s)
        if not are_cut:
            raise FaultError(f"a removed tenant's streams went on for {self.cuts_s[-1]:.0f} s")
        if _is_well(load.is_served):
            raise FaultError("a removed tenant is served")
        self._node.remove_pods(tenant)

    # ---- disk

    def _fill_disk(self) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 16)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise FaultError(f"the small disk: {error}") from error

    def _free_disk(self) -> None:
        self._ballast.unlink()
        self._wait("vn-agent is ready again", lambda: self._node.agent.readyz()[0] == 200)

    def _move_audit_log(self) -> None:
        """As logrotate does: moved away, SIGHUP, and counted."""
        self._supervisor.move_audit_log()

    # ---- clock

    def _move_clock(self, offset_s: float) -> None:
        moved_clock.move(self._node.clock, offset_s)
        self._wait("audit lines have the moved time", lambda: self._is_moved(offset_s))

    def _is_moved(self, offset_s: float) -> bool:
        with self._node.agent.audit_file.open("rb") as lines:
            lines.seek(max(0, lines.seek(0, SEEK_END) - _LINES_BYTES))
            last = json.loads(lines.read().splitlines()[-1])
        ahead_s = datetime.fromisoformat(last["time"]).timestamp() - time.time()
        return abs(ahead_s - offset_s) < HOUR_S / 4

    def _wait(self, what: str, condition: Callable[[], object]) -> None:
        if not holds_within(lambda: _is_well(condition), DEADLINE_S):
            raise FaultError(f"not within {DEADLINE_S:.0f} s: {what}")


def _logged(texts: str) -> Allowance:
    """An error that vn-agent logs."""
    return Allowance("log of vn-agent", rf"error: ({texts}).*")


def _is_well(condition: Callable[[], object]) -> bool:
    try:
        return bool(condition())
    except (OSError, StatusError, RefusedError, ValueError, IndexError):
        return False
