# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant's store takes writes, by what its API server answers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping

import msgspec
import pytest

from daemonkit.kube.client import ApiClient, ApiError
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import Status
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Storage
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import StoreProbe
from tenant_operator.edge.store_probe import ask_store
from tenant_operator.model.objects import Object, Ref

pytestmark = pytest.mark.asyncio

PROBE = StoreProbe(Ref("Secret", "key", "operator-client"))
FULL = Status(500, "InternalError", "etcdserver: mvcc: database space exceeded")
LOST = Status(500, "InternalError", "etcdserver: request timed out")
KUBECONFIG = b"""
clusters: [{name: a, cluster: {server: 'https://192.0.2.7:6443'}}]
users: [{name: a, user: {token: t}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""


class OneSecret:
    def __init__(self, secret: Object | None) -> None:
        self.secret = secret

    async def get(self, ref: Ref) -> Object | None:
        assert ref == PROBE.credential
        return self.secret


class RefusingApi(InProcessClient):
    """Of an API server that refuses writes with a status."""

    def __init__(self, refusal: Status | None) -> None:
        super().__init__(Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0))
        self.refusal = refusal
        self.written: list[Object] = []

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit_bytes: int = 1 << 20,
        can_repeat: bool | None = None,
        before_send: Callable[[], None] | None = None,
    ) -> bytes:
        if method == "GET":
            return b'{"metadata":{"resourceVersion":"392"},"items":[]}'
        assert body is not None
        self.written.append(msgspec.json.decode(body))
        if self.refusal is not None:
            raise ApiError(self.refusal)
        return body


async def _ask(client: ApiClient, kubeconfig: bytes = KUBECONFIG) -> ProbeResult:
    def open_tenant(access: Access) -> ApiClient:
        assert access.server == "https://192.0.2.7:6443"
        return client

    secret = {"data": {"kubeconfig": base64.b64encode(kubeconfig).decode()}}
    return await ask_store(OneSecret(secret), open_tenant, PROBE, 7.0)


async def test_a_full_store_has_its_revision() -> None:
    found = await _ask(RefusingApi(FULL))
    assert found == ProbeResult(is_ok=False, at=7.0, detail="the store is full", facts={"revision": "392"})


async def test_what_is_written_goes_by_itself() -> None:
    client = RefusingApi(None)
    assert await _ask(client) == ProbeResult(is_ok=True, at=7.0, detail="the store takes writes")
    (written,) = client.written
    assert (written["kind"], written["metadata"]) == (
        "Event",
        {"generateName": "vc-operator-", "namespace": "kube-system"},
    )


async def test_a_lost_store_is_not_full() -> None:
    with pytest.raises(ApiError):
        await _ask(RefusingApi(LOST))


async def test_credential_without_a_kubeconfig_is_named() -> None:
    found = await _ask(RefusingApi(FULL), b"")
    assert not found.is_ok
    assert found.detail.startswith("Secret key/operator-client: ")
