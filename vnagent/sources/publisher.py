# SPDX-License-Identifier: Apache-2.0
"""Keeps the agent's picture of tenants and pods current: from the sources, or from saved state until
a source is heard.

Whatever comes in goes through `publish_tenants` and `publish_pods`; what is wrong with it is logged
there, once for each new problem.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from daemonkit import logs
from daemonkit.tasks import Tasks
from daemonkit.tls.contexts import TlsError
from tenancy.ownership import ContainerPolicy, Owned, OwnerIndex
from tenancy.registry import Problem, Registry, merge
from tenancy.removals import Distrust, judge, present_in
from vnagent.config import PodSource, VnAgentConfiguration
from vnagent.core.source_status import Retained, SourceStatus
from vnagent.reload import Reloadable
from vnagent.saved_state import SavedState
from vnagent.sources.files import PodListFile, SourceError, TenantDirectory
from vnagent.sources.kubelet_pods import KubeletPods
from vnagent.sources.port import RunningSource, Source, TenantsReading
from vnagent.state import Agent
from vnagent.tenants.client_lists import ClientLists, judge_lists
from vnagent.trust import spiffe_trust, tenants_context

if TYPE_CHECKING:
    from vnagent.tenants.virtualcluster import Rotation

TENANTS = "tenants"
PODS = "pods"
CONFIRM_S = 5.0
# An `rm` of thousands of files takes a tenth of it; a removed tenant's connections end within 5 s.
SETTLE_S = 0.5
_MAX_SETTLE_READS = 4
# Of the tenants that are retained the log names so many; /status names all.
_MAX_NAMES = 10

_log = logs.get(__name__)


class Feeds:
    """The sources that the configuration asks for, and what they last said."""

    def __init__(
        self,
        config: VnAgentConfiguration,
        agent: Agent,
        state: SavedState | None,
        tasks: Tasks,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._agent = agent
        self._state = state
        self._tasks = tasks
        self._ages: dict[str, Callable[[], float]] = {}
        self._is_saved: dict[str, bool] = {}
        self._sources: dict[str, Source] = {}
        self._running: dict[str, RunningSource] = {}
        self._wall_clock = wall_clock
        self._reading: TenantsReading | None = None
        # What could not be put in force, for when the serving certificate can be used again.
        self._unused: TenantsReading | None = None
        self._distrust: Distrust | None = None
        self._retained: frozenset[str] = frozenset()
        self._lists = ClientLists()
        self._policy = ContainerPolicy(config.foreign_containers, config.pods.trust_containers_annotation)
        agent.registry = Registry(spiffe=spiffe_trust(config))
        agent.are_pods_stale = self.are_pods_stale

    # ---- what is asked of it

    def ages(self) -> dict[str, float]:
        """Seconds since each source confirmed what is served; no entry for one never heard."""
        return {name: age() for name, age in self._ages.items()}

    def saved(self) -> dict[str, bool]:
        """Whether what is served comes from the disk, as its source has not been heard yet."""
        return dict(self._is_saved)

    def statuses(self) -> tuple[SourceStatus, ...]:
        """How current tenants and pods are."""
        return tuple(self._status(name) for name in (TENANTS, PODS))

    def _status(self, name: str) -> SourceStatus:
        age, source = self._ages.get(name), self._sources.get(name)
        return SourceStatus(
            name,
            None if age is None else age(),
            self._is_saved.get(name, False),
            None if source is None else source.failure(),
            self.retained() if name == TENANTS else None,
        )

    def are_pods_stale(self) -> bool:
        """Whether the source of pods cannot be read now, or has not been since the start."""
        source = self._sources.get(PODS)
        return self._is_saved.get(PODS, False) or (source is not None and source.failure() is not None)

    @property
    def retained_sources(self) -> frozenset[str]:
        return self._retained

    @property
    def retained_lists(self) -> frozenset[str]:
        return self._lists.retained

    def retained(self) -> Retained | None:
        """The tenants, and the lists of clients, that are served though their source lacks them."""
        lists = self._lists
        causes = ((self._distrust, self._retained), (lists.distrust, lists.retained))
        since = [distrust.since_s for distrust, sources in causes if distrust is not None and sources]
        if not since:
            return None
        # A wall clock that was set back makes no negative time.
        for_s = max(0.0, self._wall_clock() - min(since))
        return Retained(self._keys_of(self._retained), for_s, self._keys_of(lists.retained))

    def _keys_of(self, sources: frozenset[str]) -> tuple[str, ...]:
        served = self._agent.registry.sources
        return tuple(sorted(served[source].key for source in sources if source in served))

    # ---- building

    def restore(self) -> None:
        """Serve the last good state until the sources are heard."""
        if self._state is None:
            return
        tenants = self._state.load_tenants(self._agent.registry.spiffe)
        if tenants is not None and self._swap(tenants.value.registry, tenants.value.problems):
            self._distrust, self._lists = tenants.value.distrust, tenants.value.lists
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
            directory = TenantDirectory(config.tenants.directory, self._now)
            self._sources[TENANTS] = directory
            found.append(Reloadable(TENANTS, directory.changed, lambda: self._read_tenants(directory)))
        if config.pods.file is not None:
            pod_list = PodListFile(config.pods.file, self._policy, self._now)
            self._sources[PODS] = pod_list
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
                self._running[TENANTS] = super_cluster.tenants(
                    tenants_from, self.publish_tenants, self._saved_rotations()
                )
            if is_watched and pods_from is not None:
                self._running[PODS] = super_cluster.pods(
                    pods_from, self._config.node_name, self._policy, self.publish_pods
                )
        self._sources |= self._running
        for name, source in self._running.items():
            self._tasks.spawn(source.run(), f"source {name}")

    def _saved_rotations(self) -> "dict[str, Rotation]":
        """The certificates that were in rotation before the restart."""
        from vnagent.tenants.virtualcluster import OVERLAP_S, load_rotations

        saved = None if self._state is None else self._state.load_rotations()
        try:
            return (
                {} if saved is None else load_rotations(saved, self._wall_minus_now(), self._now(), OVERLAP_S)
            )
        except ValueError as error:
            _log.error("saved rotations cannot be used", reason=error)
            return {}

    def _now(self) -> float:
        return self._agent.channels.loop.time()

    def _wall_minus_now(self) -> float:
        return self._wall_clock() - self._now()

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
                self._state.tenants_confirmed(self._agent.registry, self._distrust, self._lists, is_new=False)
                self._confirm_rotations(is_new=False)
            else:
                self._state.pods_confirmed(self._agent.index, is_new=False)

    # ---- reading and publishing

    async def _read_tenants(self, directory: TenantDirectory) -> str | None:
        try:
            reading = await self._settled(directory)
        except SourceError as error:
            return str(error)
        if not self.publish_tenants(reading):
            directory.confirmation.fail("the certificate authorities cannot be used together")
            return "the certificate authorities cannot be used together"
        directory.confirmation.confirm()
        bad = self._agent.tenant_problems
        return "; ".join(f"{each.source}: {each.reason}" for each in bad) or None

    async def _settled(self, directory: TenantDirectory) -> TenantsReading:
        """A reading that is not from the middle of an `rm`: judged there, half of it would be believed.

        Raises SourceError.
        """
        reading = directory.read()
        for _ in range(_MAX_SETTLE_READS):
            registry = self._agent.registry
            missing = registry.sources.keys() - present_in(registry, reading.tenants) - reading.deleted
            if missing <= self._retained:
                break
            await asyncio.sleep(SETTLE_S)
            before, reading = reading, directory.read()
            if before.tenants.keys() == reading.tenants.keys():
                break
        return reading

    async def _read_pods(self, pod_list: PodListFile) -> str | None:
        try:
            pods, bad = pod_list.read()
        except SourceError as error:
            return str(error)
        self.publish_pods(pods, bad)
        pod_list.confirmation.confirm()
        return None

    def publish_tenants(self, reading: TenantsReading) -> bool:
        """Merge a complete reading of all tenants; False if nothing of it could be used."""
        before = self._agent.registry
        known = self._agent.tenant_problems
        now_s = self._wall_clock()
        removals = judge(
            frozenset(before.sources),
            present_in(before, reading.tenants),
            reading.deleted,
            self._distrust,
            now_s,
        )
        retained = {source: before.sources[source] for source in removals.retained}
        lists, tenants = judge_lists(self._lists, reading, removals.retained, now_s)
        registry, bad = merge(before, {**tenants, **retained})
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
            self._unused = reading
            return False
        self._unused = None
        is_new = (registry, removals.distrust, lists) != (before, self._distrust, self._lists)
        has_new_rotations = self._reading is None or reading.rotations != self._reading.rotations
        self._report_removals("tenants", removals.retained, self._retained, len(before.sources))
        self._report_removals("client lists", lists.retained, self._lists.retained, len(self._lists.served))
        self._reading, self._retained, self._distrust = reading, removals.retained, removals.distrust
        self._lists = lists
        self._heard(TENANTS)
        if self._state is not None:
            self._state.tenants_confirmed(registry, removals.distrust, lists, is_new=is_new)
            self._confirm_rotations(is_new=has_new_rotations)
        return True

    def _report_removals(
        self, what: str, retained: frozenset[str], before: frozenset[str], known: int
    ) -> None:
        if retained and not before:
            self._agent.metrics.distrusted_removals.inc()
            _log.error(
                "most of what a source provided is missing there and is retained; restore it, or run"
                " `vcnode tenant release` to remove it",
                what=what,
                missing=len(retained),
                known=known,
                sources=sorted(retained)[:_MAX_NAMES],
            )
        elif before and not retained:
            _log.info("nothing is retained any more", what=what)

    def _confirm_rotations(self, *, is_new: bool) -> None:
        reading = self._reading
        if self._state is None or reading is None or self._config.tenants.kubeconfig_file is None:
            return
        from vnagent.tenants.virtualcluster import dump_rotations

        self._state.rotations_confirmed(
            lambda: dump_rotations(reading.rotations, self._wall_minus_now()), is_new=is_new
        )

    def release_tenants(self) -> None:
        """Remove what is retained of tenants: a person confirms that their source is right."""
        reading, tenants, lists = self._reading, self._retained, self._lists.retained
        if reading is None or not (tenants or lists):
            _log.warning("no tenant is retained: there is nothing to release")
            return
        for what, retained in (("tenants", tenants), ("client lists", lists)):
            if retained:
                sources = sorted(retained)[:_MAX_NAMES]
                _log.warning("retained ones are released", what=what, sources=sources, count=len(retained))
        self.publish_tenants(
            replace(
                reading,
                deleted=reading.deleted | tenants,
                deleted_lists=reading.deleted_lists | lists,
            )
        )

    def reload_trust(self) -> str | None:
        """Read the serving certificate and the SPIFFE authority again; what is wrong, or None."""
        agent = self._agent
        try:
            registry = Registry(agent.registry.sources, spiffe_trust(self._config))
        except TlsError as error:
            return str(error)
        if not self._swap(registry, agent.tenant_problems):
            return "the serving certificate cannot be used"
        if self._unused is not None and self.publish_tenants(self._unused):
            source = self._sources.get(TENANTS)
            if isinstance(source, TenantDirectory):
                source.confirmation.confirm()
        return None

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
        source, published_at = self._sources.get(name), self._now()

        def age() -> float:
            own = None if source is None else source.age_s()
            return self._now() - published_at if own is None else own

        self._ages[name] = age
        self._is_saved[name] = False


async def _read_feed(feed: KubeletPods) -> str | None:
    return None if await feed.read() else "the kubelet did not answer"
