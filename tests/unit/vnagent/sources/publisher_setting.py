# SPDX-License-Identifier: Apache-2.0
"""The sources of one configuration, and a state without a connection."""

import asyncio
from pathlib import Path
from typing import cast

from daemonkit.metrics import Registry as MetricRegistry
from daemonkit.tasks import Tasks
from devkit.pki import Authority
from tenancy.ownership import Owned
from tenancy.registry import Registry
from tests.unit.fake_clock import FakeClock
from vnagent.audit_log import AuditLog
from vnagent.config import Kubelet, Pods, PodSource, Serving, Spiffe, Tenants, VnAgentConfiguration
from vnagent.core.limits import Limits
from vnagent.metrics import AgentMetrics
from vnagent.request_log import RequestLog
from vnagent.saved_state import SavedState
from vnagent.sources.configured import ConfiguredSources
from vnagent.sources.publisher import Publisher
from vnagent.state import AgentState
from vnagent.transport.poller import SocketPoller
from vnagent.trust import spiffe_trust
from vnagent.upstream.pool import UpstreamPool

SERVING = Authority.create("serving")


class SourcesSetting:
    """The sources of one configuration, and a state without a connection."""

    def __init__(self, directory: Path, clock: FakeClock, spiffe: Spiffe | None = None) -> None:
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
        self.poller = SocketPoller(asyncio.get_running_loop())
        tasks, metrics = Tasks("test"), AgentMetrics()
        audit_log = AuditLog(self.poller.loop, directory / "audit", metrics.audit_lost)
        self.state = AgentState(
            poller=self.poller,
            limits=Limits(0, 0, 0),
            metrics=metrics,
            request_log=RequestLog(audit_log, metrics),
            registry=Registry(spiffe=spiffe_trust(config)),
        )
        errors = MetricRegistry().counter("vcnode_vnagent_state_errors_total", "Errors.")
        self.saved = SavedState(directory / "state", errors, clock)
        self.saved.prepare()
        self.publisher = Publisher(config, self.state, self.saved, clock)
        kubelet = cast(UpstreamPool, None)  # no source here reads it
        self.sources = ConfiguredSources(config, self.state, self.publisher, kubelet, tasks)

    def served(self) -> tuple[set[str], set[Owned]]:
        """The tenants and pods that are served now."""
        return set(self.state.registry.tenants), set(self.state.index)

    def flags(self) -> dict[str, tuple[float, bool]]:
        saved = self.sources.saved()
        return {name: (age, saved[name]) for name, age in self.sources.ages().items()}
