# SPDX-License-Identifier: Apache-2.0
"""An Agent without a kubelet, for tests of what it does with connections."""

from pathlib import Path
from typing import cast

from daemonkit.tasks import Tasks
from vnagent.agent import Agent
from vnagent.audit_log import AuditLog
from vnagent.channels import Channels
from vnagent.core.limits import Limits
from vnagent.kubelet import KubeletPool
from vnagent.metrics import Metrics
from vnagent.page_service import PageService


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
