# SPDX-License-Identifier: Apache-2.0
"""The gate with all that belongs to it: puts the parts together, and is what the service knows."""

from collections.abc import Callable

from bridge_api.messages import GuestResult, ResultCode
from daemonkit.tasks import Tasks
from kata_bridge.config import Gate as Config
from kata_bridge.guests.registry import GuestRegistry
from kata_bridge.guests.resolv_conf_sync import GuestResolvConfSync
from kata_bridge.metrics import Metrics
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.sandboxes.nri_source import NriHandler
from kata_bridge.start_gate.certificates import Certificates
from kata_bridge.start_gate.core.decision import Resolver, Settings
from kata_bridge.start_gate.gate import Gate
from kata_bridge.start_gate.nri_handler import GatedHandler
from kata_bridge.start_gate.pod_notifier import ClusterReports
from kata_bridge.start_gate.resolv_conf import ResolvConfs


class Gatehouse:
    """Everything of the gate, from start to stop."""

    def __init__(
        self,
        config: Config,
        guests: GuestRegistry,
        channels_of: Callable[[Sandbox], tuple[str, ...]],
        metrics: Metrics,
        tasks: Tasks,
    ) -> None:
        """Raises `OSError`."""
        self._guests = guests
        self._tasks = tasks
        self._reports: ClusterReports | None = None
        if (cluster := config.super_cluster) is not None:
            self._reports = ClusterReports(cluster.kubeconfig_file, cluster.node_name, tasks)
        confs = ResolvConfs(config.directory)
        self.gate = Gate(_settings(config), guests, channels_of, confs, metrics.registry, self._reports)
        self._copies = GuestResolvConfSync(guests, self.gate.text_for, tasks)
        guests.add_change_handler(self._changed)
        if self._reports is not None:
            self._reports.tally = self.gate.tally
            self._reports.read_readiness = self.gate.read_readiness
            self._reports.counted = lambda result: self.gate.metrics.nudges.labels(result).inc()

    def handler(self, discovery: NriHandler) -> GatedHandler:
        """What the runtime asks."""
        certificates = Certificates(discovery.certificate, self.gate.certified, self._tasks)
        return GatedHandler(discovery, self.gate, certificates, self._copies.forget)

    def start(self) -> None:
        """Begin what goes on for ever."""
        if self._reports is not None:
            self._reports.start()

    async def close(self) -> None:
        if self._reports is not None:
            await self._reports.close()

    def configure(self, config: Config) -> None:
        """Take over policies and needs; the rest needs a restart."""
        self.gate.configure(_settings(config))

    async def set_resolv_conf(
        self, guest: str, pod_uid: str, text: str, waits: str, networks: tuple[str, ...]
    ) -> GuestResult:
        """Take in what is said of a pod, named by its sandbox or by its UID, for these networks.

        Raises `OSError` where it cannot be written, and `ValueError` for what is no resolv.conf.
        """
        known, driver = self.gate.sandbox(guest), self._guests.drivers.get(guest)
        sandbox = driver.sandbox if known is None and driver is not None else known
        if not networks and sandbox is not None:
            networks = sandbox.networks  # an older client, which means the guest that it names
        resolver = Resolver(text, waits, networks) if text or waits else None
        uid = pod_uid or (known.uid if known is not None else "")
        if not uid:
            # Guests out of files are no runtime's, and have no containers here. Others the runtime may
            # tell of later than a list did: what is said of them now is there when it does.
            if sandbox is not None and sandbox.uid:
                self.gate.say(sandbox.uid, resolver)
            if not text:
                # A reason to wait, or nothing any more: what runs keeps the file that it has.
                return GuestResult(guest, ResultCode.UNCHANGED)
            return await self._guests.set_resolv_conf(guest, text, networks)
        is_news = self.gate.say(uid, resolver)
        for each in self.gate.sandboxes(uid):
            self._copies.sync(each)
        return GuestResult(guest, ResultCode.APPLIED if is_news else ResultCode.UNCHANGED)

    def _changed(self, sandbox: str) -> None:
        self.gate.changed(sandbox)
        self._copies.sync(sandbox)

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong now and does not keep the gate from its work."""
        problem = self._reports.problem if self._reports is not None else ""
        return {"super cluster": problem} if problem else {}


def _settings(config: Config) -> Settings:
    return Settings(config.policy, config.policy_rules(), frozenset(config.needs))
