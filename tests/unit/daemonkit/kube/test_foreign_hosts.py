# SPDX-License-Identifier: Apache-2.0
"""A name is resolved once for each connection, judged, and what was judged is dialled."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.client import Client, UnreachableError
from daemonkit.kube.credentials import Credentials
from daemonkit.kube.foreign_hosts import MAX_ADDRESSES, ForeignHosts
from daemonkit.kube.kubeconfig import Access
from daemonkit.os_errors import AddressRefusedError, describe
from daemonkit.remedies import Cause

pytestmark = pytest.mark.asyncio

SUPER = "https://kubernetes.default.svc"


def names(**found: list[str]) -> Any:
    async def lookup(host: str, _: int) -> list[str]:
        if host not in found:
            raise socket.gaierror(-2, "Name or service not known")
        return found[host]

    return lookup


async def test_a_name_is_what_its_addresses_are() -> None:
    good = ForeignHosts(lambda: SUPER, names(tenant=["192.0.2.7", "2001:db8::7"]))
    assert await good.resolve("tenant", 6443) == ["192.0.2.7", "2001:db8::7"]
    many = ForeignHosts(lambda: SUPER, names(tenant=[f"192.0.2.{each}" for each in range(9)]))
    assert len(await many.resolve("tenant", 6443)) == MAX_ADDRESSES


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "fe80::1", "::1"])
async def test_one_bad_address_refuses_the_name(address: str) -> None:
    hosts = ForeignHosts(lambda: SUPER, names(tenant=["192.0.2.7", address]))
    with pytest.raises(OSError, match=f"tenant leads to {address}, which is not dialled"):
        await hosts.resolve("tenant", 6443)


@pytest.mark.parametrize(("port", "is_refused"), [(443, True), (6443, False)])
async def test_super_api_server_is_refused(*, port: int, is_refused: bool) -> None:
    """By whatever name: another port of its address is another server."""
    found = {"tenant": ["10.96.0.1"], "kubernetes.default.svc": ["10.96.0.1"]}
    hosts = ForeignHosts(lambda: SUPER, names(**found))
    if is_refused:
        with pytest.raises(OSError, match="it is the super cluster's API server"):
            await hosts.resolve("tenant", port)
    else:
        assert await hosts.resolve("tenant", port) == ["10.96.0.1"]


@pytest.mark.parametrize(
    ("address", "port", "is_refused"),
    [
        *(("192.0.2.7", port, True) for port in (22, 6443, 10249, 29999, 32768)),
        *(("192.0.2.7", port, False) for port in (443, 30000, 31443, 32767)),
        ("::ffff:192.0.2.7", 6443, True),
        ("2001:db8::7", 6443, True),
        ("192.0.2.8", 6443, False),
        *(("192.0.2.8", port, True) for port in (2379, 2380, 10250, 10257, 10259, 10550)),
    ],
)
async def test_nodes_own_servers_are_not_dialled(address: str, port: int, *, is_refused: bool) -> None:
    """An import is often behind a node port of the super cluster."""
    nodes = frozenset({"192.0.2.7", "2001:db8::7"})
    hosts = ForeignHosts(lambda: SUPER, names(tenant=[address]), nodes=lambda: nodes)
    if is_refused:
        with pytest.raises(OSError, match=rf"which is not dialled: .*port {port} is"):
            await hosts.resolve("tenant", port)
    else:
        assert await hosts.resolve("tenant", port) == [address]


@given(st.integers(1, 65535))
async def test_a_refused_port_of_a_node_says_what_is_dialled_instead(port: int) -> None:
    """K3s' ServiceLB has an import at port 6443 of each node, where the super cluster's own server may be."""
    hosts = ForeignHosts(lambda: SUPER, names(tenant=["192.0.2.7"]), nodes=lambda: {"192.0.2.7"})
    try:
        assert await hosts.resolve("tenant", port) == ["192.0.2.7"]
    except AddressRefusedError as error:
        text, cause = describe(error)
        assert cause is Cause.ADDRESS_REFUSED
        remedy = "expose the API server by a node port (30000 to 32767), port 443, or its Service"
        assert text.endswith((remedy, f"port {port} is of no API server"))


async def test_unknown_super_server_refuses_nobody() -> None:
    hosts = ForeignHosts(lambda: SUPER, names(tenant=["192.0.2.7"]))
    assert await hosts.resolve("tenant", 443) == ["192.0.2.7"]


async def test_what_was_judged_is_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name has another address at each question: none that was not judged is connected to."""
    answers = itertools.cycle([["192.0.2.7"], ["127.0.0.1"]])
    dialled: list[Sequence[str]] = []

    async def lookup(*_: object) -> list[str]:
        return next(answers)

    async def dial(hosts: Sequence[str], *_: object) -> Any:
        dialled.append(hosts)
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr("daemonkit.kube.client.dial", dial)
    access = Access(server="http://tenant:6443")
    client = Client(Credentials(lambda: access), resolve=ForeignHosts(lambda: SUPER, lookup).resolve)
    for _ in range(4):
        with pytest.raises(UnreachableError):
            await client.request("GET", "/version", {})
    await client.close()
    assert dialled == [("192.0.2.7",)] * len(dialled)
    assert dialled


async def test_a_refused_address_has_a_remedy() -> None:
    """A NAT or a name server of the machine is not to be looked for."""
    access = Access(server="http://localhost:6443")
    resolve = ForeignHosts(lambda: SUPER, names(localhost=["127.0.0.1"])).resolve
    client = Client(Credentials(lambda: access), resolve=resolve)
    with pytest.raises(UnreachableError) as caught:
        await client.request("GET", "/version", {})
    await client.close()
    text = "localhost leads to 127.0.0.1, which is not dialled: each machine reaches itself by it"
    assert (str(caught.value), caught.value.cause) == (text, Cause.ADDRESS_REFUSED)
