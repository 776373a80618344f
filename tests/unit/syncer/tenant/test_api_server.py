# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from daemonkit.kube.byte_budget import ByteBudget
from daemonkit.kube.client import HostResolver, ReceivedBytes
from daemonkit.kube.credentials import Credentials
from daemonkit.kube.kubeconfig import Access
from syncer.caches.cached_object import CachedObject
from syncer.tenant.api_server import MAX_IN_FLIGHT, TenantApiServer


class _Client(SimpleNamespace):
    """What DNS answered for the name in the kubeconfig."""

    peer_addresses: frozenset[str] = frozenset()


async def _judge(host: str, port: int) -> Sequence[str]:
    return [f"{host}:{port}"]


def _api_server(server: str, *, is_foreign: bool = False) -> tuple[TenantApiServer, _Client, list[Any]]:
    client, opened = _Client(), list[Any]()

    budget: ByteBudget[CachedObject] = ByteBudget(1 << 20, lambda each: each.size_bytes)

    def open_client(
        credentials: Credentials,
        max_idle: int,
        user_agent: str,
        received: ReceivedBytes,
        resolve: HostResolver | None,
    ) -> Any:
        assert received is budget
        opened.extend((credentials, max_idle, user_agent, resolve))
        return client

    access = Access(server, is_foreign=is_foreign)
    return TenantApiServer(access, open_client, "vc-syncer", budget, _judge), client, opened


def test_where_it_is_by_its_kubeconfig() -> None:
    by_name, client, opened = _api_server("https://red.example.com:6443")
    assert opened[1:] == [MAX_IN_FLIGHT, "vc-syncer", None]
    assert set(by_name.peers()) == set()
    client.peer_addresses = frozenset({"192.0.2.7"})
    assert set(by_name.peers()) == {"192.0.2.7"}
    by_address, _, _ = _api_server("https://[2001:DB8::1]:6443")
    assert set(by_address.peers()) == {"2001:db8::1"}


def test_where_somebody_else_leads_is_judged() -> None:
    """A lab's own kubeconfigs may lead to loopback."""
    for is_foreign in (True, False):
        _, _, opened = _api_server("https://127.0.0.1:6443", is_foreign=is_foreign)
        assert opened[3] is (_judge if is_foreign else None)


def test_another_address_is_noted_once() -> None:
    found, client, _ = _api_server("https://red.example.com:6443")
    assert not found.note_peers()
    client.peer_addresses = frozenset({"192.0.2.7"})
    assert (found.note_peers(), found.note_peers()) == (True, False)


def test_credentials_are_taken_when_they_are_others() -> None:
    found, client, (credentials, *_) = _api_server("https://192.0.2.7:6443")
    before = credentials.current()
    found.use(Access("https://192.0.2.7:6443"))
    assert credentials.current() is before
    found.use(Access("https://192.0.2.8:6443"))
    assert set(found.peers()) == {"192.0.2.8"}
    assert client.peer_addresses == frozenset()
