# SPDX-License-Identifier: Apache-2.0
"""Keeps the agent's picture of tenants and pods current: from the sources, or from saved state until
a source is heard.

Whatever comes in goes through `publish_tenants` and `publish_pods`; what is wrong with it is logged
there, once for each new problem.
"""

import asyncio
from collections.abc import Callable, Mapping

from daemonkit import logs
from daemonkit.tasks import Tasks
from daemonkit.tls import TlsError
from tenancy.ownership import ContainerPolicy, Owned, OwnerIndex
from tenancy.registry import Bad, Problem, Registry, merge
from tenancy.tenant import Tenant
from vnagent.agent import Agent
from vnagent.config import PodSource, VnAgentConfiguration
from vnagent.reload import Reloadable
from vnagent.saved_state import SavedState
from vnagent.sources.files import PodListFile, SourceError, TenantDirectory
from vnagent.sources.kubelet_pods import KubeletPods
from vnagent.sources.port import Source
from vnagent.trust import spiffe_trust, tenants_context

TENANTS = "tenants"
PODS = "pods"
CONFIRM_S = 5.0

_log = logs.get(__name__)


class Feeds:
    """The sources that the configuration asks for, and what they last said."""

    def __init__(
        self, config: VnAgentConfiguration, agent: Agent, state: SavedState | None, tasks: Tasks
    ) -> None:
        self._config = config
        self._agent = agent
        self._state = state
        self._tasks = tasks
        self._ages: dict[str, Callable[[], float]] = {}
        self._is_saved: dict[str, bool] = {}
        self._running: dict[str, Source] = {}
        self._policy = ContainerPolicy(
            frozenset(config.injected_containers), config.pods.trust_containers_annotation
        )
        agent.registry = Registry(spiffe=spiffe_trust(config))

    # ---- what is asked of it

    def ages(self) -> dict[str, float]:
        """Seconds since each source confirmed what is served; no entry for one never heard."""
        return {name: age() for name, age in self._ages.items()}

    def saved(self) -> dict[str, bool]:
        """Whether what is served comes from the disk, as its source has not been heard yet."""
        return dict(self._is_saved)

    # ---- building

    def restore(self) -> None:
        """Serve the last good state until the sources are heard."""
        if self._state is None:
            return
        tenants = self._state.load_tenants(self._agent.registry.spiffe)
        if tenants is not None and self._swap(*tenants.value):
            self._restored(TENANTS, tenants.age_s)
        pods = self._state.load_pods()
        if pods is not None:
            self._agent.set_index(pods.value, ())
            self._restored(PODS, pods.age_s)

    def _restored(self, name: str, age_s: float) -> None:
        began = self._agent.channels.loop.time()
        self._ages[name] = lambda: age_s + self._agent.channels.loop.time() - began
        self._is_saved[name] = True
        _log.warning("saved state is served until its source is heard", source=name, age_s=round(age_s))

    def reloadables(self) -> tuple[Reloadable, ...]:
        """The sources that are read when they change or when they are asked to be."""
        config = self._config
        found = []
        if config.tenants.directory is not None:
            directory = TenantDirectory(config.tenants.directory)
            found.append(Reloadable(TENANTS, directory.changed, lambda: self._read_tenants(directory)))
        if config.pods.file is not None:
            pod_list = PodListFile(config.pods.file, self._policy)
            found.append(Reloadable(PODS, pod_list.changed, lambda: self._read_pods(pod_list)))
        elif config.pods.source is PodSource.KUBELET:
            feed = KubeletPods(
                self._agent.kubelet,
                self._policy,
                config.pods.interval_seconds,
                self._tasks,
                self.publish_pods,
            )
            self._agent.feed = feed
            self._running[PODS] = feed
            found.append(Reloadable(PODS, lambda: False, lambda: _read_feed(feed)))
        return tuple(found)

    def start(self) -> None:
        """Start the sources that run by themselves."""
        tenants_from, pods_from = self._config.tenants.kubeconfig_file, self._config.pods_kubeconfig_file
        is_watched = self._config.pods.source is PodSource.SUPER_CLUSTER
        if tenants_from is not None or is_watched:
            # Some MB: only a node that watches the super cluster pays for it.
            from vnagent.sources import super_cluster

            if tenants_from is not None:
                self._running[TENANTS] = super_cluster.tenants(tenants_from, self.publish_tenants)
            if is_watched and pods_from is not None:
                self._running[PODS] = super_cluster.pods(
                    pods_from, self._config.node_name, self._policy, self.publish_pods
                )
        for name, source in self._running.items():
            self._tasks.spawn(source.run(), f"source {name}")

    async def run(self) -> None:
        """Keep the ages on disk current, for ever."""
        while True:
            await asyncio.sleep(CONFIRM_S)
            self._confirm_saved()

    def _confirm_saved(self) -> None:
        if self._state is None:
            return
        for name, age in self._ages.items():
            if self._is_saved[name] or age() > CONFIRM_S:
                continue
            if name == TENANTS:
                self._state.tenants_confirmed(self._agent.registry, is_new=False)
            else:
                self._state.pods_confirmed(self._agent.index, is_new=False)

    # ---- reading and publishing

    async def _read_tenants(self, directory: TenantDirectory) -> str | None:
        try:
            incoming = directory.read()
        except SourceError as error:
            return str(error)
        if not self.publish_tenants(incoming):
            return "the certificate authorities cannot be used together"
        bad = self._agent.tenant_problems
        return "; ".join(f"{each.source}: {each.reason}" for each in bad) or None

    async def _read_pods(self, pod_list: PodListFile) -> str | None:
        try:
            pods, bad = pod_list.read()
        except SourceError as error:
            return str(error)
        self.publish_pods(pods, bad)
        return None

    def publish_tenants(self, incoming: Mapping[str, Tenant | Bad]) -> bool:
        """Merge a complete reading of all tenants; False if nothing of it could be used."""
        before = self._agent.registry
        known = self._agent.tenant_problems
        registry, bad = merge(before, incoming)
        for problem in bad:
            if problem not in known:
                _log.error(
                    "tenant cannot be used as it stands",
                    source=problem.source,
                    tenant=problem.tenant,
                    reason=problem.reason,
                    keeps_last_good_state=problem.is_kept,
                )
        if not self._swap(registry, bad):
            return False
        self._heard(TENANTS)
        if self._state is not None:
            self._state.tenants_confirmed(registry, is_new=registry != before)
        return True

    def reload_trust(self) -> str | None:
        """Read the serving certificate and the SPIFFE authority again; what is wrong, or None."""
        agent = self._agent
        try:
            registry = Registry(agent.registry.sources, spiffe_trust(self._config))
        except TlsError as error:
            return str(error)
        is_done = self._swap(registry, agent.tenant_problems)
        return None if is_done else "the serving certificate cannot be used"

    def _swap(self, registry: Registry, bad: tuple[Problem, ...]) -> bool:
        """Put trust and tenants in force together, or change nothing."""
        agent = self._agent
        try:
            context = tenants_context(self._config, registry.authorities())
        except TlsError as error:
            _log.error("trust keeps its last good state", reason=error)
            return False
        if context is None and agent.context is not None:
            _log.warning("no tenant is left: every connection is refused")
        agent.context = context
        agent.set_registry(registry, bad)
        return True

    def publish_pods(self, pods: tuple[Owned, ...], bad: tuple[str, ...]) -> None:
        """Put a complete reading of this node's tenant pods in force."""
        index = OwnerIndex(pods)
        claims = (f"{p.super_namespace}/{p.super_name}: claimed twice" for p in index.ambiguous)
        found = (*bad, *claims)
        for problem in found:
            if problem not in self._agent.pod_problems:
                _log.warning("pod is not served", reason=problem)
        self._agent.set_index(index, found)
        self._heard(PODS)
        if self._state is not None:
            self._state.pods_confirmed(index, is_new=True)

    def _heard(self, name: str) -> None:
        source = self._running.get(name)
        # Files are confirmed by each poll; they are never older than that.
        self._ages[name] = (lambda: 0.0) if source is None else (lambda: source.age_s() or 0.0)
        self._is_saved[name] = False


async def _read_feed(feed: KubeletPods) -> str | None:
    return None if await feed.read() else "the kubelet did not answer"
