# SPDX-License-Identifier: Apache-2.0
"""One running webhook: builds the parts, starts them in order, and ends them."""

import asyncio
import datetime as dt
import os
import time
from pathlib import Path

from aiohttp import web

from daemonkit import logs, metrics
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.late_client import LateClient
from daemonkit.run import Lifecycle
from daemonkit.status import Readiness, StatusServer
from daemonkit.tasks import Tasks
from dnsconfig.node_file import NodeFile
from dnsconfig.webhook import registration, review
from dnsconfig.webhook.config import DnsWebhookConfiguration
from dnsconfig.webhook.credentials import Credentials, CredentialsError
from dnsconfig.webhook.registration import RegistrationError
from dnsconfig.webhook.review import BadReview
from dnsconfig.webhook.server import WebhookServer
from dnsconfig.webhook.sources import Sources

# How often dates and the registration are looked at. An API server has heard of an authority that
# was published one turn before, and the next turn may sign with it.
TURN_S = 60.0
RETRY_S = 2.0
POLL_S = 1.0

_log = logs.get(__name__)


class Service:
    """Everything that lives from start to stop."""

    def __init__(self, config: DnsWebhookConfiguration) -> None:
        """Build all parts. Raises CredentialsError."""
        self._config = config
        self._tasks = Tasks("dnsconfig-webhook", on_failure=self._failed)
        self._life: Lifecycle | None = None
        self._client = LateClient(config.super_cluster.kubeconfig_file, "dnsconfig-webhook")
        self._sources = Sources(self._client, has_clusters=config.super_cluster.has_virtual_clusters)
        path = Path(config.resolv_conf) if config.resolv_conf else None
        self._file = NodeFile(path, (), time.monotonic)
        self._domains = {tenant.key: tenant.cluster_domain for tenant in config.tenants}
        self._credentials = Credentials(config.state_directory, config.listen.names)
        self._published: tuple[bytes, ...] = ()
        self._problem = "not published yet"
        self._server = WebhookServer(self._judge)
        self.registry = metrics.Registry()
        self._reviews = self.registry.counter(
            "vcnode_dns_reviews_total", "Reviews of pods, by what came of them.", ("result",)
        )
        self._port = 0

    async def run(self, life: Lifecycle) -> int:
        """Work until told to stop. Returns the exit code."""
        self._life = life
        status = self._status()
        if status is not None:
            await status.start()
        self._credentials.turn(_now(), self._published)
        listen = self._config.listen
        self._port = await self._server.start(listen.address, listen.port, self._credentials.certificate_file)
        self._sources.start(self._tasks)
        self._tasks.spawn(self._keep_up(), "certificates")
        self._tasks.spawn(self._poll(), "node file")
        _log.info("working", port=self._port)
        life.ready()
        await life.stopping.wait()
        await self._server.stop()
        await self._tasks.close(2.0)
        await self._client.close()
        if status is not None:
            await status.stop()
        return 0

    def _judge(self, body: bytes) -> web.Response:
        try:
            asked = review.read(body)
        except BadReview as error:
            self._reviews.labels("bad").inc()
            return web.Response(status=400, text=f"{error}\n")
        world = self._sources.world(self._config.cluster_domain, self._domains)
        answer = review.answer(asked, world, self._file.node)
        self._reviews.labels(answer.result).inc()
        pod = asked.pod
        if pod is not None and answer.decision is not None:
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            _log.info("reviewed", pod=where, result=answer.result, reason=answer.reason or None)
        return web.Response(body=answer.body(), content_type="application/json")

    async def _keep_up(self) -> None:
        """Publish our authorities, and renew what is due, for ever."""
        while True:
            is_published = await self._publish()
            await asyncio.sleep(TURN_S if is_published else RETRY_S)
            self._renew()

    async def _publish(self) -> bool:
        ours = self._credentials.bundle
        stale = [each for each in self._published if each not in ours]
        try:
            if await registration.publish(self._client, ours, stale):
                _log.info("authorities published", count=len(ours))
        except (ApiError, UnreachableError, RegistrationError) as error:
            if str(error) != self._problem:
                _log.warning("cannot publish the authorities", reason=str(error))
            self._problem = str(error)
            return False
        self._published, self._problem = ours, ""
        return True

    def _renew(self) -> None:
        try:
            if self._credentials.turn(_now(), self._published):
                self._server.show(self._credentials.certificate_file)
                _log.info("certificate renewed")
        except CredentialsError as error:
            # The old one is good for a month yet.
            _log.error("cannot renew the certificate", reason=str(error))

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            self._file.poll()

    def _failed(self, name: str, _: BaseException) -> None:
        """Without one of its tasks it is no webhook: the service manager starts it again."""
        if self._life is not None:
            _log.error("cannot go on", task=name)
            self._life.stop()

    # ---- what it says of itself

    def _status(self) -> StatusServer | None:
        address = self._config.status.listen_at
        if address is None:
            return None
        return StatusServer(address, self.registry, readiness=self.readiness, status=self.status)

    def readiness(self) -> Readiness:
        """It is asked whatever it says here; without lists it refuses, with a reason."""
        missing = self._sources.missing
        return Readiness(
            not missing and not self._problem,
            (
                f"lists: missing {', '.join(missing)}" if missing else "lists: ok",
                f"registration: {self._problem or 'ok'}",
            ),
        )

    def status(self) -> dict[str, object]:
        leaf = self._credentials.leaf
        return {
            "daemon": "dnsconfig-webhook",
            "pid": os.getpid(),
            "port": self._port,
            "authorities": len(self._credentials.authorities),
            "certificateUntil": None if leaf is None else leaf.certificate.not_valid_after_utc.isoformat(),
        }


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
