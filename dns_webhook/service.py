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
from dns_webhook.review import BadReview
from dns_webhook.rotation import TURN_S, Rotation, utc_now
from dns_webhook.server import WebhookServer
from dns_webhook.sources import Sources
from dnsconfig.node_resolv_conf import NodeFile

POLL_S = 1.0

_log = logs.get(__name__)


class SuperCluster(Requester, Transport, Protocol):
    """What is asked of the super cluster's client: lists, watches, and a patch."""

    async def close(self) -> None: ...


class Service:
    """Everything that lives from start to stop."""

    def __init__(
        self,
        config: DnsWebhookConfiguration,
        *,
        client: SuperCluster | None = None,
        clock: Callable[[], float] = time.monotonic,
        turn_s: float = TURN_S,
        now: Callable[[], dt.datetime] = utc_now,
    ) -> None:
        """Build all parts. Raises CredentialsError."""
        self._config = config
        self._shell = DaemonShell("dnsconfig-webhook")
        self._client = client or LazyClient(config.super_cluster.kubeconfig_file, "dnsconfig-webhook")
        self.sources = Sources(
            self._client, has_clusters=config.super_cluster.has_virtual_clusters, clock=clock
        )
        path = Path(config.resolv_conf) if config.resolv_conf else None
        self._file = NodeFile(path, (), clock)
        self._domains = {tenant.key: tenant.cluster_domain for tenant in config.tenants}
        self._credentials = Credentials(config.state_directory, config.listen.names)
        self._server = WebhookServer(self.judge, self.readiness)
        self.rotation = Rotation(
            self._client,
            self._credentials,
            lambda: self._server.show(self._credentials.certificate_file),
            now,
            turn_s=turn_s,
        )
        self.registry = metrics.Registry()
        oversized_objects.add_metric(self.registry)
        self._reviews = self.registry.counter(
            "vcnode_dns_reviews_total", "Reviews of pods, by what came of them.", ("result",)
        )
        self._port = 0

    async def run(self, life: Lifecycle) -> int:
        """Work until told to stop. Returns the exit code."""
        raise_descriptor_limit()
        await self._shell.start(
            life,
            self._config.status.listen_at,
            self.registry,
            readiness=self.readiness,
            status=self.status,
        )
        self.rotation.begin()
        # What is here now stays: whoever looks for what is over (`connections`) need not go through it.
        gc.collect()
        gc.freeze()
        listen = self._config.listen
        self._port = await self._server.start(listen.address, listen.port, self._credentials.certificate_file)
        self.sources.start(self._shell.tasks)
        self._shell.tasks.spawn(self.rotation.run(), "certificates")
        self._shell.tasks.spawn(self._poll(), "node file")
        _log.info("working", port=self._port)
        life.ready()
        await life.stopping.wait()
        await self._server.stop()
        await self._shell.end_tasks()
        await self._client.close()
        await self._shell.stop()
        return 0

    def judge(self, body: bytes) -> web.Response:
        """Answer one review, by what is known at this moment."""
        try:
            asked = review.read(body)
        except BadReview as error:
            self._reviews.labels("bad").inc()
            return web.Response(status=400, text=f"{error}\n")
        world = self.sources.world(
            self._config.cluster_domain, self._domains, has_plain_dns=self._config.plain_kube_dns
        )
        answer = review.answer(asked, world, self._file.node)
        self._reviews.labels(answer.result).inc()
        pod = asked.pod
        if pod is not None and answer.decision is not None:
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            _log.info(
                "reviewed",
                pod=where,
                result=answer.result,
                reason=answer.reason or None,
                left_out=" ".join(answer.left_out) or None,
            )
        return web.Response(body=answer.body(), content_type="application/json")

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            self._file.poll()

    # ---- what it says of itself

    def readiness(self) -> Readiness:
        """Whether API servers shall ask this replica: it has heard of all, and is trusted.

        It is asked whatever it says here; without lists it refuses, with a reason. A later failure
        to publish takes no trust away.
        """
        missing, renewal = self.sources.missing, self.rotation.renewal_problem
        return Readiness(
            not missing and self.rotation.is_published,
            (
                f"lists: missing {', '.join(missing)}" if missing else "lists: ok",
                *self.sources.problems,
                f"registration: {self.rotation.problem or 'ok'}",
                *((f"certificate: cannot be renewed: {renewal}",) if renewal else ()),
            ),
        )

    def status(self) -> dict[str, object]:
        leaf = self._credentials.leaf
        return {
            "port": self._port,
            "authorities": len(self._credentials.authorities),
            "unreadable": self.sources.unreadable,
            "certificateUntil": None if leaf is None else leaf.certificate.not_valid_after_utc.isoformat(),
        }
