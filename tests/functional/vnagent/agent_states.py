# SPDX-License-Identifier: Apache-2.0
"""The shared state of an agent without a kubelet, for tests of what connections do with it."""

from functools import partial
from pathlib import Path
from typing import cast

from daemonkit.admission.handshake_accounts import HandshakeAccounts
from tenancy.registry import Registry
from vnagent.audit_log import AuditLog
from vnagent.core.limits import Limits
from vnagent.dispatch import Dispatcher
from vnagent.downstream.admission import Admission
from vnagent.downstream.client_connection import open_client
from vnagent.downstream.handshakes import Handshakes, OpenClient
from vnagent.metrics import AgentMetrics
from vnagent.request_log import RequestLog
from vnagent.state import AgentState
from vnagent.transport.poller import SocketPoller


class ThreadOnlyAccounts(HandshakeAccounts):
    """All handshakes run in the thread."""

    def try_begin_on_loop(self, client_address: str, now_s: float, *, is_shared: bool = False) -> bool:
        return False


def new_state(poller: SocketPoller, directory: Path, *, requests_per_second: int = 0) -> AgentState:
    """`requests_per_second` of a tenant; 0 for no limit. The audit log is `directory`/audit."""
    metrics = AgentMetrics()
    audit_log = AuditLog(poller.loop, directory / "audit", metrics.audit_lost)
    return AgentState(
        poller=poller,
        limits=Limits(connections=0, tunnels=0, requests_per_second=requests_per_second),
        metrics=metrics,
        request_log=RequestLog(audit_log, metrics),
        registry=Registry(),
    )


def open_client_for(state: AgentState, accounts: HandshakeAccounts) -> OpenClient:
    """Opens clients without a dispatcher."""
    admission = Admission(state, accounts)
    return partial(open_client, state, admission, cast(Dispatcher, None))


def new_handshakes(state: AgentState, accounts: HandshakeAccounts) -> Handshakes:
    return Handshakes(state.poller.loop, state, accounts, open_client_for(state, accounts))
