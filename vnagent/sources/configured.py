# SPDX-License-Identifier: Apache-2.0
"""The sources of tenants and pods that the configuration names: built, read, and how current each is."""

import asyncio

from daemonkit.remedies import Cause
from daemonkit.tasks import Tasks
from tenancy.ownership import ContainerPolicy
from tenancy.registry import Registry, present_in
from vnagent.config import PodSource, VnAgentConfiguration
from vnagent.core.source_status import SourceStatus
from vnagent.reload import Reloadable
from vnagent.sources.files import DIRECTORY, PodListFile, SourceError, TenantDirectory
from vnagent.sources.kubelet_pods import KubeletPods
from vnagent.sources.port import RefreshablePods, RunningSource, Source
from vnagent.sources.publisher import PODS, TENANTS, Publisher
from vnagent.state import AgentState
from vnagent.tenants.reading import TenantsReading
from vnagent.upstream.pool import UpstreamPool

CONFIRM_S = 5.0
# An `rm` of thousands of files takes a tenth of it; a removed tenant's connections end within 5 s.
SETTLE_S = 0.5
_MAX_SETTLE_READS = 4


class ConfiguredSources:
    """`reloadables` are read when they change. `refreshable` is the source of pods if it can be read on
    demand."""

    def __init__(
        self,
        config: VnAgentConfiguration,
        state: AgentState,
        publisher: Publisher,
        pool: UpstreamPool,
        tasks: Tasks,
    ) -> None:
        self._config = config
        self._state = state
        self._publisher = publisher
        self._tasks = tasks
        self._policy = ContainerPolicy(config.foreign_containers, config.pods.trust_containers_annotation)
        self._sources: dict[str, Source] = {}
        self._running: dict[str, RunningSource] = {}
        self._directory: TenantDirectory | None = None
        self.refreshable: RefreshablePods | None = None
        self.reloadables = (*self._tenant_files(), *self._node_pods(pool))

    def _tenant_files(self) -> tuple[Reloadable, ...]:
        if self._config.tenants.directory is None:
            return ()
        directory = TenantDirectory(self._config.tenants.directory, self._now)
        self._directory = directory
        self._sources[TENANTS] = directory.confirmation
        return (Reloadable(TENANTS, directory.poll, lambda: self._read_tenants(directory)),)

    def _node_pods(self, pool: UpstreamPool) -> tuple[Reloadable, ...]:
        pods = self._config.pods
        if pods.file is not None:
            pod_list = PodListFile(pods.file, self._policy, self._now)
            self._sources[PODS] = pod_list.confirmation
            return (Reloadable(PODS, pod_list.poll, lambda: self._read_pods(pod_list)),)
        if pods.source is PodSource.KUBELET:
            publish = self._publisher.publish_pods
            source = KubeletPods(pool, self._policy, pods.interval_seconds, self._tasks, publish)
            self.refreshable = self._sources[PODS] = self._running[PODS] = source
            return (Reloadable(PODS, lambda: False, lambda: _read_kubelet(source)),)
        return ()

    # ---- how current they are

    def ages(self) -> dict[str, float]:
        """Seconds since each source confirmed the served objects; no entry for one that has not synced."""
        ages = {name: self._age_s(name) for name in (TENANTS, PODS)}
        return {name: age_s for name, age_s in ages.items() if age_s is not None}

    def saved(self) -> dict[str, bool]:
        """Whether saved state is served for each source that has an age."""
        return {name: self._publisher.is_saved(name) for name in self.ages()}

    def statuses(self) -> tuple[SourceStatus, ...]:
        """How current tenants and pods are."""
        return tuple(self._status(name) for name in (TENANTS, PODS))

    def _status(self, name: str) -> SourceStatus:
        source = self._sources.get(name)
        return SourceStatus(
            name,
            self._age_s(name),
            self._publisher.is_saved(name),
            None if source is None else source.failure(),
            self._publisher.retained() if name == TENANTS else None,
        )

    def _age_s(self, name: str) -> float | None:
        published_s = self._publisher.age_s(name)
        source = self._sources.get(name)
        if published_s is None or source is None or self._publisher.is_saved(name):
            return published_s
        confirmed_s = source.age_s()
        return published_s if confirmed_s is None else confirmed_s

    def are_pods_stale(self) -> bool:
        """Whether the source of pods cannot be read now, or has not been read since the start."""
        source = self._sources.get(PODS)
        return self._publisher.is_saved(PODS) or (source is not None and source.failure() is not None)

    # ---- running

    def start(self) -> None:
        """Start the sources that run by themselves."""
        tenants_from, pods_from = self._config.tenants.kubeconfig_file, self._config.pods_kubeconfig_file
        is_watched = self._config.pods.source is PodSource.SUPER_CLUSTER
        publisher = self._publisher
        if tenants_from is not None or is_watched:
            # Some MB, for nodes that watch the super cluster alone.
            from vnagent.sources import super_cluster

            if tenants_from is not None:
                self._running[TENANTS] = super_cluster.tenants(
                    tenants_from, publisher.publish_tenants, publisher.saved_rotations()
                )
            if is_watched and pods_from is not None:
                self._running[PODS] = super_cluster.pods(
                    pods_from, self._config.node_name, self._policy, publisher.publish_pods
                )
        self._sources |= self._running
        for name, source in self._running.items():
            self._tasks.spawn(source.run(), f"source {name}")

    async def run(self) -> None:
        """Keep the ages on disk current, until cancelled."""
        while True:
            await asyncio.sleep(CONFIRM_S)
            for name, age_s in self.ages().items():
                if age_s <= CONFIRM_S and not self._publisher.is_saved(name):
                    self._publisher.confirm_saved(name)

    def reload_trust(self) -> str | None:
        """Read the serving certificate and the SPIFFE authority again; return the problem, or None."""
        problem = self._publisher.reload_trust()
        if problem is None and self._publisher.publish_unused() and self._directory is not None:
            self._directory.confirmation.confirm()
        return problem

    # ---- reading files

    async def _read_tenants(self, directory: TenantDirectory) -> str | None:
        try:
            reading = await self._settled(directory)
        except SourceError as error:
            return str(error)
        if not self._publisher.publish_tenants(reading):
            problem = "the certificate authorities cannot be used together"
            directory.confirmation.fail(DIRECTORY.fault(Cause.CONFIGURATION, problem))
            return problem
        directory.confirmation.confirm()
        problems = self._state.tenant_problems
        return "; ".join(f"{each.source}: {each.reason}" for each in problems) or None

    async def _settled(self, directory: TenantDirectory) -> TenantsReading:
        """Read until an `rm` of many files has ended: half of it would be a plausible removal.

        Raises SourceError.
        """
        reading = directory.read()
        for _ in range(_MAX_SETTLE_READS):
            if _missing(self._state.registry, reading) <= self._publisher.retained_sources:
                break
            await asyncio.sleep(SETTLE_S)
            before, reading = reading, directory.read()
            if before.tenants.keys() == reading.tenants.keys():
                break
        return reading

    async def _read_pods(self, pod_list: PodListFile) -> str | None:
        try:
            pods, problems = pod_list.read()
        except SourceError as error:
            return str(error)
        self._publisher.publish_pods(pods, problems)
        pod_list.confirmation.confirm()
        return None

    def _now(self) -> float:
        return self._state.poller.loop.time()


def _missing(registry: Registry, reading: TenantsReading) -> frozenset[str]:
    """The sources that a reading lacks without a confirmed deletion."""
    return frozenset(registry.sources.keys() - present_in(registry, reading.tenants) - reading.deleted)


async def _read_kubelet(source: KubeletPods) -> str | None:
    return None if await source.read() else "the kubelet's /pods could not be read"
