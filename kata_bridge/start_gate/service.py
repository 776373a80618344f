# SPDX-License-Identifier: Apache-2.0
"""The start gate with all its parts, as the daemon knows it."""

from collections.abc import Callable

from bridge_api.messages import GuestResult, ResultCode, SetResolvConfRequest
from daemonkit.tasks import Tasks
from kata_bridge.guests.registry import GuestRegistry
from kata_bridge.guests.resolv_conf_sync import GuestResolvConfSync
from kata_bridge.metrics import KataBridgeMetrics
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.sandboxes.nri_source import NriSource
from kata_bridge.start_gate.certificates import CertificateRetries
from kata_bridge.start_gate.core.decision import StartGateSettings, SubmittedResolver
from kata_bridge.start_gate.gate import StartGate
from kata_bridge.start_gate.metrics import StartGateMetrics
from kata_bridge.start_gate.network_readiness_sync import sync_network_readiness
from kata_bridge.start_gate.node_condition_sync import sync_node_condition
from kata_bridge.start_gate.nri_handler import GatedHandler
from kata_bridge.start_gate.pod_notifier import PodNotifier
from kata_bridge.start_gate.resolv_conf import ResolvConfs
from kata_bridge.start_gate.super_cluster_writer import SuperClusterWriter


class StartGateService:
    """Builds the parts of the start gate, starts and ends them, and takes resolvers in."""

    def __init__(
        self,
        settings: StartGateSettings,
        resolv_confs: ResolvConfs,
        guests: GuestRegistry,
        channels_of: Callable[[Sandbox], tuple[str, ...]],
        metrics: KataBridgeMetrics,
        tasks: Tasks,
        super_cluster: SuperClusterWriter | None,
    ) -> None:
        self._resolv_confs = resolv_confs
        self._guests = guests
        self._tasks = tasks
        self._super_cluster = super_cluster
        gate_metrics = StartGateMetrics(metrics.registry)
        notifier: PodNotifier | None = None
        if super_cluster is not None:
            count = gate_metrics.nudges.labels
            notifier = PodNotifier(super_cluster, tasks, lambda result: count(result).inc())
        self._gate = StartGate(settings, guests, channels_of, resolv_confs, gate_metrics, notifier)
        self._guest_copies = GuestResolvConfSync(guests, self._gate.resolv_conf_text, tasks)
        guests.add_change_handler(self._guest_changed)

    def nri_handler(self, source: NriSource) -> GatedHandler:
        """The handler of the runtime's calls."""
        certificates = CertificateRetries(
            source.certificate, self._gate.set_certificate_available, self._tasks
        )
        return GatedHandler(source, self._gate, certificates, self._guest_copies.forget)

    def start(self) -> None:
        if self._super_cluster is None:
            return
        condition = sync_node_condition(self._super_cluster, self._gate.blocked_pods)
        self._tasks.spawn(condition, "node condition")
        readiness = sync_network_readiness(
            self._super_cluster, self._gate.waiting_for_network, self._gate.set_readiness
        )
        self._tasks.spawn(readiness, "network readiness")

    async def close(self) -> None:
        if self._super_cluster is not None:
            await self._super_cluster.close()

    def configure(self, settings: StartGateSettings) -> None:
        """Apply new policies and needs; all else in the configuration needs a restart."""
        self._gate.configure(settings)

    async def set_resolv_conf(self, request: SetResolvConfRequest) -> GuestResult:
        """Set the resolver of a pod, named by its sandbox or by its UID, for these networks.

        Raises `OSError` where it cannot be written, and `ValueError` for a text that is not a resolv.conf.
        """
        guest, text, networks = request.guest, request.text, request.networks
        known, driver = self._gate.sandbox(guest), self._guests.drivers.get(guest)
        sandbox = driver.sandbox if known is None and driver is not None else known
        if not networks and sandbox is not None:
            networks = sandbox.networks  # an older client means the networks of the guest that it names
        has_content = bool(text or request.wait_message)
        resolver = SubmittedResolver(text, request.wait_message, networks) if has_content else None
        uid = request.pod_uid or (known.uid if known is not None else "")
        if not uid:
            # A guest from a file has no runtime and no containers here. A guest from a CRI list may be one
            # that NRI has yet to report: its resolver is set in advance.
            if sandbox is not None and sandbox.uid:
                self._gate.set_resolver(sandbox.uid, resolver)
            if not text:
                # It only asks to wait, or withdraws: running containers keep their file.
                return GuestResult(guest, ResultCode.UNCHANGED)
            return await self._guests.set_resolv_conf(guest, text, networks)
        is_change = self._gate.set_resolver(uid, resolver)
        for each in self._resolv_confs.sandboxes(uid):
            self._guest_copies.sync(each)
        return GuestResult(guest, ResultCode.APPLIED if is_change else ResultCode.UNCHANGED)

    def _guest_changed(self, sandbox: str) -> None:
        self._gate.reevaluate(sandbox)
        self._guest_copies.sync(sandbox)

    @property
    def problem(self) -> str:
        """Why the super cluster does not get reports; empty if it does."""
        return self._super_cluster.problem if self._super_cluster is not None else ""

    def status(self) -> dict[str, object]:
        """The part `startGate` of /status."""
        return self._gate.status()
