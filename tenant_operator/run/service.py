# SPDX-License-Identifier: Apache-2.0
"""One running vc-operator: builds the parts, starts them in order, and ends them."""

import asyncio
import secrets
import socket
from collections.abc import Iterable, Mapping

import msgspec

from daemonkit import logs
from daemonkit.kube.client import HostResolver
from daemonkit.kube.foreign_hosts import ForeignHosts
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import Key
from daemonkit.run.daemon_shell import DaemonShell, freeze_heap
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.tasks import Tasks
from tenant_operator.config import OperatorConfiguration
from tenant_operator.core.plan import Settings
from tenant_operator.defaults.desired import builtin_files
from tenant_operator.edge.builtin_manifests import builtin_manifests
from tenant_operator.edge.caches import SuperClusterCaches
from tenant_operator.edge.executor import Executor
from tenant_operator.edge.nodes_authority import POLL_S, NodesAuthority
from tenant_operator.edge.probing import Prober
from tenant_operator.edge.requests import SuperClusterWriter
from tenant_operator.edge.surroundings import OperatorSurroundings
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.election.leader import Leader
from tenant_operator.metrics import OperatorMetrics
from tenant_operator.model.objects import OPERATOR
from tenant_operator.model.virtual_cluster import VirtualCluster
from tenant_operator.run.probe_queue import ProbeQueue
from tenant_operator.run.queue import ReconcileQueue
from tenant_operator.run.reconciler import Reconciler
from tenant_operator.run.report import OperatorReport

# VirtualClusters that are reconciled at once; most of the time each waits for a pod.
WORKERS = 8
READY_WAIT_S = 10.0
# For requests under way, when another replica leads or the process ends.
STOP_S = 2.0

_log = logs.get(__name__)


class OperatorService:
    """Everything that lives from start to stop."""

    def __init__(
        self,
        config: OperatorConfiguration,
        environment: Mapping[str, str],
        surroundings: OperatorSurroundings | None = None,
    ) -> None:
        """Build all parts without connecting. Raises CredentialsError for an unusable kubeconfig."""
        self._config = config
        outside = OperatorSurroundings() if surroundings is None else surroundings
        self._metrics = OperatorMetrics()
        self._shell = DaemonShell(OPERATOR, wall_clock=outside.wall)
        self._tasks = self._shell.tasks
        self._client = outside.open_super(config.super_cluster.kubeconfig_file, environment)
        self._queue = ReconcileQueue(outside.monotonic, outside.jitter)
        self._caches = SuperClusterCaches(
            self._client,
            self._cluster_changed,
            self._cluster_gone,
            self._owned_changed,
            self._add_all,
            config.namespace,
        )
        self._life: Lifecycle | None = None
        self._leader = self._make_leader(environment)
        self._workers = Tasks("reconcilers")
        gated = GatedClient(self._client, self._may_write)

        def open_tenant(access: Access) -> GatedClient:
            return GatedClient(outside.open_tenant(access), self._may_write)

        hosts = ForeignHosts(lambda: self._client.server, nodes=lambda: self._caches.every_node_address)

        def open_import(access: Access, resolve: HostResolver = hosts.resolve) -> GatedClient:
            return GatedClient(outside.open_import(access, resolve), self._may_write)

        super_cluster = SuperClusterWriter(gated)
        self._nodes_authority = NodesAuthority(config.nodes.serving_ca_file)
        prober = Prober(
            super_cluster,
            gated,
            msgspec.structs.replace(outside, open_tenant=open_tenant, open_import=open_import),
            hosts.resolve,
        )
        self._probes = ProbeQueue(prober, self._queue, outside.monotonic)
        self._reconciler = Reconciler(
            settings_of(config, self._nodes_authority.pem),
            self._caches,
            super_cluster,
            Executor(
                super_cluster,
                self._metrics,
                outside.wall,
                open_tenant,
                open_import,
            ),
            self._probes,
            self._queue,
            self._metrics,
            outside,
        )
        self._metrics.watch(self._known_clusters, self._may_write)
        self._metrics.watch_rollouts(lambda: self._reconciler.rolling.longest_s(outside.wall()))
        self._report = OperatorReport(
            self._caches, self._reconciler, self._leadership, clock=outside.monotonic
        )

    def _may_write(self) -> bool:
        return self._leader is None or self._leader.may_write()

    def _known_clusters(self) -> Iterable[VirtualCluster]:
        return self._caches.clusters.objects.values()

    def _leadership(self) -> str:
        """A line about who leads; empty without replicas."""
        if self._leader is None:
            return ""
        if self._leader.may_write():
            return "this replica leads"
        return self._leader.last_error or f"standing by, {self._leader.leader or 'no replica'} leads"

    def _make_leader(self, environment: Mapping[str, str]) -> Leader | None:
        lease = self._config.leader_election
        if lease is None:
            return None
        # By its pod's name: under hostNetwork the host's name is the node's.
        replica = environment.get("POD_NAME") or socket.gethostname()
        identity = f"{replica}_{secrets.token_hex(8)}"
        return Leader(self._client, lease.namespace, lease.name, identity)

    async def run(self, life: Lifecycle) -> int:
        """Work until the daemon stops. Returns the exit code."""
        freeze_heap()
        self._life = life
        await self._shell.start(
            life,
            self._config.status.listen_at,
            self._metrics.registry,
            readiness=self._report.readiness,
            status=self._report.status,
            scrapes=self._config.metrics,
        )
        self._caches.start(self._tasks)
        self._tasks.spawn(self._follow_authority(), "authority of nodes")
        if self._leader is None:
            await self._start_workers()
        else:
            self._tasks.spawn(self._leader.run(self._start_workers, self._stop_workers), "election")
        await self._shell.announce(
            READY_WAIT_S, lambda: {"virtual_clusters": len(self._caches.clusters.objects)}
        )
        await life.stopping.wait()
        await self._stop_workers()
        await self._shell.end_tasks()
        await self._client.close()
        await self._shell.stop()
        return 0

    async def _start_workers(self) -> None:
        """Reconcile from now on, all of them first: another process may have stopped half-way."""
        self._probes.start()
        self._workers = Tasks("reconcilers", on_failure=self._worker_failed)
        for number in range(WORKERS):
            self._workers.spawn(self._work(), f"worker {number}")
        self._add_all()

    async def _follow_authority(self) -> None:
        """Have tenants trust another authority of nodes when its file changes."""
        while True:
            await asyncio.sleep(POLL_S)
            if self._nodes_authority.poll():
                _log.info("the authority of nodes changed")
                self._reconciler.use(settings_of(self._config, self._nodes_authority.pem))
                self._add_all()

    def _worker_failed(self, name: str, _: BaseException) -> None:
        if self._life is not None:
            _log.error("a task failed that the daemon needs, stopping", task=name)
            self._life.stop()

    async def _stop_workers(self) -> None:
        """End requests under way: after that nothing is written."""
        await self._workers.close(STOP_S)
        await self._probes.close(STOP_S)
        self._reconciler.forget_all()

    async def _work(self) -> None:
        for each in self._caches.reflectors:
            await each.synced.wait()
        while True:
            key = await self._queue.take()
            has_failed: bool | None = True
            try:
                has_failed = await self._reconciler.reconcile(key)
            # A bug in what one object leads to must not stop the others.
            except Exception as error:  # noqa: BLE001 - logged, and tried again with a growing delay
                _log.error(
                    "a VirtualCluster cannot be reconciled",
                    virtual_cluster="/".join(key),
                    error=error,
                    traceback=logs.trace(error),
                )
            finally:
                self._queue.done(key, has_failed=has_failed)

    def _cluster_changed(self, key: Key) -> None:
        self._reconciler.note_cluster(key)

    def _cluster_gone(self, key: Key, uid: str) -> None:
        self._reconciler.note_gone(key, uid)

    def _owned_changed(self, uid: str) -> None:
        self._reconciler.note_owned(uid)

    def _add_all(self) -> None:
        for key in self._caches.clusters.objects:
            self._queue.add(key)


def settings_of(config: OperatorConfiguration, nodes_authority_pem: bytes) -> Settings:
    """What plans need of the configuration."""
    networks = config.super_cluster
    return Settings(
        vn_agent_port=config.nodes.port,
        vn_agent_authority_pem=nodes_authority_pem,
        namespace=config.namespace,
        service_cidrs=networks.service_cidrs,
        pod_cidrs=networks.pod_cidrs,
        node_cidrs=networks.node_cidrs,
        dns_cidrs=config.fence.dns_cidrs,
        client_cidrs=config.fence.client_cidrs,
        store_cidrs=config.fence.store_cidrs,
        store_endpoints=() if config.shared_etcd is None else config.shared_etcd.endpoints,
        max_rolling=config.max_rolling,
        max_starting=config.max_starting,
        builtin=builtin_files(builtin_manifests()),
    )
