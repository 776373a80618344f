# SPDX-License-Identifier: Apache-2.0
"""One running webhook: builds the parts, starts them in order, and ends them."""

import asyncio
import datetime as dt
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from aiohttp import web

from daemonkit import logs, metrics
from daemonkit.kube import oversized_objects
from daemonkit.kube.client import Requester
from daemonkit.kube.lazy_client import LazyClient
from daemonkit.kube.reflector import Transport
from daemonkit.run.daemon_shell import DaemonShell
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.run.process_limits import raise_descriptor_limit
from daemonkit.status.server import Readiness
from dns_webhook import review
from dns_webhook.config import DnsWebhookConfiguration
from dns_webhook.credentials import Credentials
from dns_webhook.given_certificate import GivenCertificate
from dns_webhook.review import ReviewError
from dns_webhook.rotation import CHECK_INTERVAL_S, Rotation, utc_now
from dns_webhook.server import WebhookServer
from dns_webhook.watches import ClusterWatches
from dnsconfig.node_resolv_conf import NodeResolvConf

POLL_S = 1.0
# It serves from the start on, and until it is synced denies with a reason. API servers ask by `/readyz`.
READY_WAIT_S = 0.0
RESULTS = ("unchanged", "patched", "denied", "invalid")

_log = logs.get(__name__)


class SuperClusterClient(Requester, Transport, Protocol):
    """The super cluster's client: lists, watches, and a patch."""

    async def close(self) -> None: ...


class WebhookService:
    """Everything that lives from start to stop."""

    def __init__(
        self,
        config: DnsWebhookConfiguration,
        *,
        client: SuperClusterClient | None = None,
        clock: Callable[[], float] = time.monotonic,
        check_interval_s: float = CHECK_INTERVAL_S,
        now: Callable[[], dt.datetime] = utc_now,
    ) -> None:
        """Build all parts. Raises CredentialsError for an unusable state directory."""
        self._config = config
        self._shell = DaemonShell("dnsconfig-webhook")
        self._client = client or LazyClient(config.super_cluster.kubeconfig_file, "dnsconfig-webhook")
        self.watches = ClusterWatches(
            self._client,
            config.resolver_settings,
            has_virtual_clusters=config.super_cluster.has_virtual_clusters,
            clock=clock,
        )
        path = Path(config.resolv_conf) if config.resolv_conf else None
        self._file = NodeResolvConf(path, (), clock, needs_servers=False)
        self._server = WebhookServer(self.handle_review, self.readiness)
        self._credentials: Credentials | None = None
        self.rotation: Rotation | GivenCertificate
        if config.serving is not None:
            files = (config.serving.certificate_file, config.serving.key_file)
            self._certificate: tuple[Path, Path | None] = files
            self.rotation = GivenCertificate(config.serving, self._show_certificate)
        elif config.state_directory is not None:
            self._credentials = Credentials(config.state_directory, config.listen.names)
            self._certificate = (self._credentials.certificate_file, None)
            self.rotation = Rotation(
                self._client,
                self._credentials,
                self._show_certificate,
                now,
                check_interval_s=check_interval_s,
            )
        else:
            raise AssertionError("the configuration has one of both")
        self.registry = metrics.Registry()
        oversized_objects.add_metric(self.registry)
        self._reviews = self.registry.counter(
            "vcnode_dnswebhook_reviews_total", "Reviews of pods, by result.", ("result",)
        )
        # Zeros from the start: an alert sees the first one.
        for result in RESULTS:
            self._reviews.labels(result)
        self._port = 0

    async def run(self, life: Lifecycle) -> int:
        """Work until the daemon stops. Returns the exit code."""
        raise_descriptor_limit()
        await self._shell.start(
            life,
            self._config.status.listen_at,
            self.registry,
            readiness=self.readiness,
            status=self.status,
            scrapes=self._config.metrics,
        )
        self.rotation.begin()
        # These objects live as long as the process: the collections of `connections` skip them.
        gc.collect()
        gc.freeze()
        listen = self._config.listen
        self._port = await self._server.start(listen.address, listen.port, *self._certificate)
        self.watches.start(self._shell.tasks)
        self._shell.tasks.spawn(self.rotation.run(), "certificates")
        self._shell.tasks.spawn(self._poll(), "node file")
        await self._shell.announce(READY_WAIT_S, lambda: {"port": self._port})
        await life.stopping.wait()
        await self._server.stop()
        await self._shell.end_tasks()
        await self._client.close()
        await self._shell.stop()
        return 0

    def handle_review(self, body: bytes) -> web.Response:
        """Respond to one review, from what is synced now."""
        try:
            asked = review.decode_review(body)
        except ReviewError as error:
            self._reviews.labels("invalid").inc()
            return web.Response(status=400, text=f"{error}\n")
        response = review.decide_review(asked, self.watches.state, self._file.node)
        self._reviews.labels(response.result).inc()
        pod = asked.pod
        if pod is not None and response.decision is not None:
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            _log.info(
                "reviewed",
                pod=where,
                result=response.result,
                reason=response.message or None,
                left_out=" ".join(response.left_out) or None,
            )
        return web.Response(body=response.body(), content_type="application/json")

    def _show_certificate(self) -> None:
        self._server.show(*self._certificate)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            self._file.poll()

    # ---- status

    def readiness(self) -> Readiness:
        """Ready when all kinds are synced and the authorities were published once.

        API servers may ask a replica that is not ready: without synced kinds it denies, with a reason.
        """
        missing, renewal = self.watches.missing, self.rotation.renewal_problem
        reasons = [*self.watches.wait_reasons]
        if not self.rotation.is_published:
            reasons.append(f"registration: {self.rotation.problem or 'not published'}")
        return Readiness(
            not missing and self.rotation.is_published,
            (
                f"kinds: not synced: {', '.join(missing)}" if missing else "kinds: ok",
                *self.watches.problems,
                f"registration: {self.rotation.problem or self._registration}",
                *((f"certificate: cannot be renewed: {renewal}",) if renewal else ()),
            ),
            "; ".join(reasons),
        )

    @property
    def _registration(self) -> str:
        return "ok" if self._config.serving is None else "written by another program"

    def status(self) -> dict[str, object]:
        leaf = None if self._credentials is None else self._credentials.leaf
        return {
            "port": self._port,
            "authorities": 0 if self._credentials is None else len(self._credentials.authorities),
            "unreadable": self.watches.unreadable,
            "certificateUntil": None if leaf is None else leaf.certificate.not_valid_after_utc.isoformat(),
        }
