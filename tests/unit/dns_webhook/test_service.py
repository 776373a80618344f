# SPDX-License-Identifier: Apache-2.0
"""One webhook without its socket: its responses, metrics and status."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from daemonkit.tasks import Tasks
from devkit.kube.storage import Storage
from devkit.kube.transport import StorageTransport
from dns_webhook import registration
from dns_webhook.config import DnsWebhookConfiguration, Listen
from dns_webhook.credentials import Credentials
from dns_webhook.service import WebhookService
from dnsconfig.config import SuperCluster, TenantDomain
from tests.metric_samples import samples_of
from tests.unit.dns_webhook.registration_api import Api
from tests.unit.dns_webhook.test_review import review_of
from tests.unit.dnsconfig.node import RESOURCES
from tests.unit.dnsconfig.objects import Json, pod, service, tenant

pytestmark = pytest.mark.asyncio


class RegistrationTransport(StorageTransport):
    """Serves the webhook's registration beside the storage."""

    def __init__(self) -> None:
        super().__init__(Storage())
        self.registration = Api()
        self.is_closed = False

    async def request(
        self, method: str, path: str, params: Mapping[str, str], *rest: Any, **options: Any
    ) -> bytes:
        if path.startswith(registration.PATH):
            return await self.registration.request(method, path, params, *rest, **options)
        return await super().request(method, path, params, limit_bytes=options["limit_bytes"])

    async def close(self) -> None:
        self.is_closed = True


class WebhookFixture:
    def __init__(self, directory: Path, *items: Json) -> None:
        self.client = RegistrationTransport()
        self.put(*items)
        resolv_conf = directory / "resolv.conf"
        resolv_conf.write_text("nameserver 192.0.2.1\nsearch node.example\n")
        config = DnsWebhookConfiguration(
            SuperCluster(Path("/nowhere"), has_virtual_clusters=False),
            Listen(("dns.vcnode.svc",)),
            directory / "state",
            tenants=(TenantDomain("b", "b.example"),),
            resolv_conf=str(resolv_conf),
        )
        self.service = WebhookService(config, client=self.client, clock=lambda: 0.0)
        self.credentials = Credentials(directory / "state", ("dns.vcnode.svc",))

    def put(self, *items: Json) -> None:
        for item in items:
            self.client.storage.put(RESOURCES[item["kind"]], item)

    def reviewed(self, item: Json) -> dict[str, Any]:
        """The response to a review of this pod."""
        reply = self.service.handle_review(review_of(item, namespace=item["metadata"]["namespace"]))
        assert (reply.status, reply.content_type) == (200, "application/json")
        assert isinstance(reply.body, bytes)
        decision: dict[str, Any] = json.loads(reply.body)["response"]
        return decision

    def servers(self, item: Json) -> list[str]:
        patch = json.loads(base64.b64decode(self.reviewed(item)["patch"]))
        found: list[str] = patch[1]["value"]["nameservers"]
        return found

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = Tasks("test")
        self.service.rotation.begin()
        self.service.watches.start(tasks)
        tasks.spawn(self.service.rotation.run(), "rotation")
        try:
            await asyncio.sleep(1)
            yield
        finally:
            await tasks.close(1.0)


async def test_each_review_uses_the_objects_of_that_moment(tmp_path: Path) -> None:
    here = WebhookFixture(tmp_path, *tenant("a", default="10.0.0.1"))
    async with here.running():
        assert here.servers(pod("a")) == ["10.0.0.1"]
        here.put(service("a", "default", "10.0.0.2"))
        await asyncio.sleep(1)
        assert here.servers(pod("a")) == ["10.0.0.2"]


async def test_node_searches_and_tenant_domain_are_configured(tmp_path: Path) -> None:
    here = WebhookFixture(tmp_path, *tenant("b", default="10.0.0.1"))
    async with here.running():
        patch = json.loads(base64.b64decode(here.reviewed(pod("b"))["patch"]))
        assert patch[1]["value"]["searches"] == [
            *("shop.svc.b.example", "svc.b.example", "b.example"),
            "node.example",
        ]


async def test_before_sync_pods_are_denied_with_503(tmp_path: Path) -> None:
    here = WebhookFixture(tmp_path, *tenant("a", default="10.0.0.1"))
    decision = here.reviewed(pod("a"))
    assert (decision["allowed"], decision["status"]["code"]) == (False, 503)
    assert not here.service.readiness().is_ready
    async with here.running():
        assert here.reviewed(pod("a"))["allowed"]


async def test_an_invalid_review_is_400_and_counted(tmp_path: Path) -> None:
    here = WebhookFixture(tmp_path, *tenant("a", default="10.0.0.1"))
    async with here.running():
        reply = here.service.handle_review(b"{}")
        assert reply.status == 400
        assert reply.text is not None
        assert reply.text.startswith("expected an admission.k8s.io/v1 AdmissionReview")
        here.reviewed(pod("a"))
        here.reviewed(pod("a", network="red"))
        here.reviewed(pod("", tenant_namespace="kube-system"))
        counted = samples_of(here.service.registry)
        results = ("invalid", "patched", "denied", "unchanged")
        series = [f'vcnode_dnswebhook_reviews_total{{result="{each}"}}' for each in results]
        assert [counted[each] for each in series] == [1, 1, 1, 1]


async def test_ready_when_synced_and_published(tmp_path: Path) -> None:
    here = WebhookFixture(tmp_path, *tenant("a", default="10.0.0.1"))
    here.client.registration.value["webhooks"][0]["name"] = "another"
    async with here.running():
        readiness = here.service.readiness()
        assert (readiness.is_ready, readiness.lines) == (
            False,
            (
                "kinds: ok",
                "registration: dnsconfig.vcnode.io: the registration has no webhook of that name; "
                "apply packaging/webhook/registration.yaml",
            ),
        )
        here.client.registration.value["webhooks"][0]["name"] = registration.NAME
        await asyncio.sleep(5)
        assert here.service.readiness().is_ready
        assert here.service.readiness().lines == ("kinds: ok", "registration: ok")


async def test_a_failed_renewal_stays_on_readyz(tmp_path: Path) -> None:
    """It is logged once, a month before the certificate ends."""
    here = WebhookFixture(tmp_path, *tenant("a", default="10.0.0.1"))
    async with here.running():
        here.service.rotation.renewal_problem = "the disk is full"
        readiness = here.service.readiness()
        assert readiness.is_ready
        assert readiness.lines[-1] == "certificate: cannot be renewed: the disk is full"


async def test_status_names_port_and_certificate(tmp_path: Path) -> None:
    here = WebhookFixture(tmp_path)
    assert here.service.status()["certificateUntil"] is None
    async with here.running():
        page = here.service.status()
        assert page["authorities"] == 1
        assert page["certificateUntil"] is not None
