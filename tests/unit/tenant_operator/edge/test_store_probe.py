# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant's store has space, by what its members answer, or else its API server."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from daemonkit.kube.client import ApiError
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import Status
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import StoreProbe
from tenant_operator.edge.store_probe import ask_store
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.edge.api_answers import FakeAnswers, unreachable
from tests.unit.tenant_operator.edge.test_rotation_probe import pod

pytestmark = pytest.mark.asyncio

NO_SPACE = ApiError(Status(500, "InternalError", "etcdserver: mvcc: database space exceeded"))
LOST = ApiError(Status(500, "InternalError", "etcdserver: request timed out"))
REFUSED = ApiError(Status(500, "InternalError", 'failed calling webhook "refuses.all.test": timed out'))
KUBECONFIG = """
clusters: [{name: a, cluster: {server: 'https://192.0.2.7:6443'}}]
users: [{name: a, user: {token: t}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""
SERVER = "https://192.0.2.7:6443"
STATUS = "POST /v3/maintenance/status"
EVENTS = "POST /api/v1/namespaces/kube-system/events"
LISTED = {"metadata": {"resourceVersion": "392"}, "items": []}
FULL = ProbeResult(is_ok=False, at=7.0, detail="the store is full", facts={"revision": "392"})
SPACE = ProbeResult(is_ok=True, at=7.0, detail="etcd has no alarm of its quota")


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _status(revision: str, *errors: str) -> dict[str, Any]:
    """As etcd 3.7.3 answers; without an error the field is absent."""
    found: dict[str, Any] = {"header": {"member_id": "1", "revision": revision}, "dbSize": "20480"}
    return found | ({"errors": list(errors)} if errors else {})


def _alarmed(revision: str) -> dict[str, Any]:
    return _status(revision, "memberID:12024667407744474023  alarm:NOSPACE")


class FakeStore:
    """The members of a store by their addresses, and the API server before it, which a webhook blocks."""

    def __init__(self, members: Mapping[str, Any], **server: Any) -> None:
        self.members = {
            f"https://{address}:2379": FakeAnswers({STATUS: answer}) for address, answer in members.items()
        }
        self.server = FakeAnswers({EVENTS: REFUSED} | server)
        pods = [pod(f"etcd-{index}", address) for index, address in enumerate(members)]
        self.super = FakeAnswers({"GET /api/v1/namespaces/key/pods": {"items": [*pods, pod("etcd-9", "")]}})
        self.opened: list[Access] = []
        self.objects: dict[str, Object] = {
            "operator-client": {"data": {"kubeconfig": _encoded(KUBECONFIG)}},
            "apiserver-etcd-client": {"data": {"tls.crt": _encoded("crt"), "tls.key": _encoded("key")}},
            "authorities": {"data": {"etcd-ca.crt": "authority"}},
        }

    async def get(self, ref: Ref) -> Object | None:
        assert ref.namespace == "key"
        return self.objects.get(ref.name)

    def open(self, access: Access) -> FakeAnswers:
        self.opened.append(access)
        return self.server if access.server == SERVER else self.members[access.server]

    async def ask(self) -> ProbeResult:
        return await ask_store(self, self.super, self.open, StoreProbe("key"), 7.0)  # type: ignore[arg-type]


async def test_webhook_hides_no_full_store() -> None:
    """One of three members does not answer, and one is behind."""
    store = FakeStore(
        {"10.0.0.1": unreachable(), "10.0.0.2": _alarmed("391"), "10.0.0.3": _alarmed("392")},
    )
    assert await store.ask() == FULL
    assert store.server.requests == []
    assert all(each.is_closed for each in store.members.values())
    asked = store.opened[1]
    assert (asked.server, asked.server_name) == ("https://10.0.0.2:2379", "etcd-1.etcd.key.svc")
    assert (asked.ca_pem, asked.certificate_pem, asked.key_pem) == (b"authority", b"crt", b"key")


@pytest.mark.parametrize("errors", [(), ("etcdserver: no leader",), ("memberID:1  alarm:CORRUPT",)])
async def test_without_its_alarm_a_store_has_space(errors: tuple[str, ...]) -> None:
    assert await FakeStore({"10.0.0.1": _status("392", *errors)}).ask() == SPACE


@pytest.mark.parametrize("revision", ["", "-1", "1" * 20, "x"])
async def test_revision_that_is_none_is_no_fact(revision: str) -> None:
    found = await FakeStore({"10.0.0.1": _alarmed(revision)}).ask()
    assert (found.is_ok, found.facts) == (False, {})


@pytest.mark.parametrize("answer", [b"[]", b"{", ApiError(Status(404)), unreachable()])
async def test_without_a_member_the_api_server_writes(answer: Any) -> None:
    store = FakeStore({"10.0.0.1": answer}, **{EVENTS: NO_SPACE, "GET /api/v1/namespaces": LISTED})
    assert await store.ask() == FULL
    assert store.server.is_closed


@pytest.mark.parametrize("missing", ["apiserver-etcd-client", "authorities"])
async def test_what_is_written_goes_by_itself(missing: str) -> None:
    """Without a credential no member is asked."""
    store = FakeStore({"10.0.0.1": _alarmed("392")}, **{EVENTS: {}})
    del store.objects[missing]
    assert await store.ask() == ProbeResult(is_ok=True, at=7.0, detail="the store takes writes")
    written = json.loads(store.server.bodies[0])
    assert (written["kind"], written["metadata"]) == (
        "Event",
        {"generateName": "vc-operator-", "namespace": "kube-system"},
    )


async def test_a_lost_store_is_not_full() -> None:
    with pytest.raises(ApiError):
        await FakeStore({}, **{EVENTS: LOST}).ask()


async def test_credential_without_a_kubeconfig_is_named() -> None:
    store = FakeStore({})
    store.objects["operator-client"]["data"]["kubeconfig"] = ""
    found = await store.ask()
    assert not found.is_ok
    assert found.detail.startswith("Secret key/operator-client: ")
