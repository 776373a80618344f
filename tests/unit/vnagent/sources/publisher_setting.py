# SPDX-License-Identifier: Apache-2.0
"""Feeds of one configuration, with an agent that has no connection."""

import asyncio
from pathlib import Path
from typing import cast

from daemonkit.metrics import Registry as MetricRegistry
from daemonkit.tasks import Tasks
from devkit.pki import Authority
from tenancy.ownership import Owned
from vnagent.audit_log import AuditLog
from vnagent.config import Kubelet, Pods, PodSource, Serving, Spiffe, Tenants, VnAgentConfiguration
from vnagent.core.limits import Limits
from vnagent.exchange.page_service import PageService
from vnagent.metrics import Metrics
from vnagent.saved_state import SavedState
from vnagent.sources.publisher import Feeds
from vnagent.state import Agent
from vnagent.transport.poller import Channels
from vnagent.upstream.kubelet import KubeletPool

SERVING = Authority.create("serving")


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Setting:
    """Feeds of one configuration, with an agent that has no connection."""

    def __init__(self, directory: Path, clock: Clock, spiffe: Spiffe | None = None) -> None:
        (directory / "tenants").mkdir(exist_ok=True)
        if not (directory / "serving.crt").exists():
            SERVING.issue("node-1", sans_dns=["node-1"]).write(directory, "serving")
        config = VnAgentConfiguration(
            node_name="node-1",
            serving=Serving(directory / "serving.crt", directory / "serving.key"),
            kubelet=Kubelet(directory / "ca", directory / "crt", directory / "key"),
            tenants=Tenants(directory / "tenants"),
            pods=Pods(PodSource.FILE, directory / "pods.json"),
            spiffe=spiffe,
        )
        self.directory = directory
        self.channels = Channels(asyncio.get_running_loop())
        tasks, metrics = Tasks("test"), Metrics()
        kubelet = cast(KubeletPool, None)  # nothing here asks it
        self.agent = Agent(
            channels=self.channels,
            kubelet=kubelet,
            pages=PageService(kubelet, 0, tasks),
            limits=Limits(0, 0, 0),
            metrics=metrics,
            audit_log=AuditLog(asyncio.get_running_loop(), directory / "audit", metrics.audit_lost),
            tasks=tasks,
        )
        errors = MetricRegistry().counter("vcnode_state_errors_total", "Errors.")
        self.state = SavedState(directory / "state", errors, clock)
        self.state.prepare()
        self.feeds = Feeds(config, self.agent, self.state, tasks, clock)

    def served(self) -> tuple[set[str], set[Owned]]:
        """The tenants and pods that are served now."""
        return set(self.agent.registry.tenants), set(self.agent.index)

    def flags(self) -> dict[str, tuple[float, bool]]:
        saved = self.feeds.saved()
        return {name: (age, saved[name]) for name, age in self.feeds.ages().items()}
