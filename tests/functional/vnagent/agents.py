# SPDX-License-Identifier: Apache-2.0
"""An Agent without a kubelet, for tests of what it does with connections."""

from pathlib import Path
from typing import cast

from daemonkit.tasks import Tasks
from vnagent.audit_log import AuditLog
from vnagent.core.limits import Limits
from vnagent.exchange.page_service import PageService
from vnagent.metrics import Metrics
from vnagent.state import Agent
from vnagent.transport.poller import Channels
from vnagent.upstream.kubelet import KubeletPool


def new_agent(channels: Channels, directory: Path, *, requests_per_second: int = 0) -> Agent:
    """`requests_per_second` of a tenant; 0 is no limit. The audit log is `directory`/audit."""
    metrics = Metrics()
    return Agent(
        channels=channels,
        kubelet=cast(KubeletPool, None),
        pages=cast(PageService, None),
        limits=Limits(connections=0, tunnels=0, requests_per_second=requests_per_second),
        metrics=metrics,
        audit_log=AuditLog(channels.loop, directory / "audit", metrics.audit_lost),
        tasks=Tasks("agent"),
    )
