# SPDX-License-Identifier: Apache-2.0
"""Connections without an identity are cheap, wait in queues of their own, and are evicted by others.

Bounds are on counted work and bytes; `python -m tests.bench.handshakes` has the times.
"""

import contextlib
import itertools
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from daemonkit.admission.handshake_accounts import EXPENSIVE_S, MAX_BEGUN_ON_LOOP
from daemonkit.tls.openssl import limit_groups
from tests.cases import client_hello as hellos
from tests.cases.client import CaseClient
from tests.cases.daemon import VnAgentProcess
from tests.functional.vnagent import slow_machine
from tests.functional.vnagent.attacks import (
    chain_bytes,
    chain_of,
    client_context,
    client_hello,
    costly_chain,
    crafted_chain,
    crowd,
    dial,
    is_closed,
    last_flight,
    quick_chain,
    slow_chain,
)
from tests.functional.vnagent.node import DEADLINE_S, NAME, SPDY, AgentNode, head, received, reply_of
from tests.functional.vnagent.shop_and_bank import BANK, EXEC, SHOP, status_of
from tests.waiting import wait_until
from vnagent.core.client_chain import MAX_CERTIFICATES
from vnagent.downstream.admission import MAX_HEAVY, MAX_TENANT_HANDSHAKE_BYTES, MAX_UNCOUNTED
from vnagent.downstream.handshakes import MAX_BEGUN, MAX_WAITING, SHORT_BYTES
from vnagent.transport.tls_connection import MAX_HANDSHAKE_BYTES


@pytest.fixture
def slow_node(tmp_path: Path) -> Iterator[AgentNode]:
    """Two tenants with a pod each, on a slow machine."""
    made = AgentNode(tmp_path / "slow", ["ten-a", "ten-b"], [SHOP, BANK])
    made.daemon = VnAgentProcess(made.daemon.config, made.daemon.socket, module=slow_machine.__name__)
    with made:
        yield made


def show_chain(node: AgentNode, chain_pem: bytes, line: str = "GET /healthz") -> int | None:
    """The status of a request by ten-a's registered key with this chain; None if the agent hangs up."""
    tenant = node.tenants["ten-a"]
    return status_over(node, client_context(node.serving, chain_pem, tenant.leaf), line)


def status_over(node: AgentNode, context: ssl.SSLContext, line: str = "GET /healthz") -> int | None:
    """The status of a request; None if the agent hangs up."""
    with (
        CaseClient(("127.0.0.1", node.daemon.port), context, sni=NAME) as client,
        contextlib.suppress(OSError),
    ):
        if not client.handshake():
            return None
        with contextlib.suppress(Exception):
            client.send(head(line))
        return status_of(reply_of(client))
    return None


def handshakes(node: AgentNode, ran_on: str) -> float:
    return node.daemon.samples()[f'vcnode_vnagent_handshakes_total{{place="{ran_on}"}}']


def handshake_cpu_s(node: AgentNode) -> float:
    samples = node.daemon.samples()
    return sum(
        samples[f'vcnode_vnagent_handshake_cpu_seconds_total{{place="{ran_on}"}}']
        for ran_on in ("loop", "thread")
    )


def neighbour_is_served(node: AgentNode) -> bool:
    return status_of(node.logs("ten-b", "web", "bank")) == 200


def test_chains_above_the_size_limit_are_not_verified(node: AgentNode) -> None:
    """A leaf with three intermediates has less than 8 KB; a hundred KB is what OpenSSL would take."""
    tenant = node.tenants["ten-a"]
    honest = chain_of(tenant.authority, tenant.leaf.key, [rsa.generate_private_key(65537, 4096)] * 3)
    assert chain_bytes(honest) > 3_500
    assert show_chain(node, honest) == 200
    large = quick_chain(tenant.authority, tenant.leaf.key, 60)
    assert MAX_HANDSHAKE_BYTES < chain_bytes(large) < 100_000
    before = node.daemon.metric("vcnode_vnagent_handshake_failures_total")
    assert show_chain(node, large) is None
    wait_until(
        lambda: node.daemon.metric("vcnode_vnagent_handshake_failures_total") == before + 1,
        within_s=DEADLINE_S,
    )


def test_slow_signatures_are_not_verified(node: AgentNode) -> None:
    """Four of 6 ms each. To be refused they cost no more than a handshake does."""
    tenant = node.tenants["ten-a"]
    chain = slow_chain(tenant.authority, tenant.leaf.key, MAX_CERTIFICATES - 1)
    count = 20
    before = node.daemon.metric("vcnode_vnagent_handshake_failures_total")
    begin_s = handshake_cpu_s(node)
    for _ in range(count):
        assert show_chain(node, chain) is None
    wait_until(
        lambda: node.daemon.metric("vcnode_vnagent_handshake_failures_total") == before + count,
        within_s=DEADLINE_S,
    )
    assert handshake_cpu_s(node) - begin_s < count * 0.01
    assert neighbour_is_served(node)


def test_expensive_chains_are_verified_in_the_thread(slow_node: AgentNode) -> None:
    """The loop does one at most before it knows."""
    node = slow_node
    tenant = node.tenants["ten-a"]
    chain = costly_chain(tenant.authority, tenant.leaf.key)
    assert neighbour_is_served(node)
    on_loop, in_thread = handshakes(node, "loop"), handshakes(node, "thread")
    for _ in range(10):
        assert show_chain(node, chain) == 200  # it is registered, if expensive
    assert handshakes(node, "loop") <= on_loop + 1
    assert handshakes(node, "thread") >= in_thread + 9
    # What came in by the thread serves as well as any other, with large pieces both ways.
    assert show_chain(node, chain, "GET /containerLogs/web/shop/app") == 200


def test_unfinished_handshakes_leave_the_loop(node: AgentNode) -> None:
    """256 clients of one authority could withhold their last flights, and then hold up the loop for 2 s."""

    def is_served_on_the_loop() -> bool:
        before = handshakes(node, "loop")
        return neighbour_is_served(node) and handshakes(node, "loop") == before + 1

    assert neighbour_is_served(node)  # its address is known now
    on_loop, in_thread = handshakes(node, "loop"), handshakes(node, "thread")
    count = 2 * MAX_BEGUN_ON_LOOP
    with crowd(node.daemon.port, ["127.0.0.1"] * count, client_hello()):
        expected = (on_loop + MAX_BEGUN_ON_LOOP, in_thread + count - MAX_BEGUN_ON_LOOP)
        wait_until(
            lambda: (handshakes(node, "loop"), handshakes(node, "thread")) == expected, within_s=DEADLINE_S
        )
        assert not is_served_on_the_loop()
    wait_until(is_served_on_the_loop, within_s=DEADLINE_S)


def test_short_chains_do_not_wait_for_long_ones(slow_node: AgentNode) -> None:
    """Behind NAT, honest clients and attackers share an address until their chains are read. Many chains of
    4 ms each are waiting. A short one waits for the chain that is being read alone, at each of its steps."""
    node = slow_node
    tenant = node.tenants["ten-a"]
    chain = costly_chain(tenant.authority, tenant.leaf.key)
    assert chain_bytes(chain) > SHORT_BYTES
    context = client_context(node.serving, chain, tenant.leaf)

    def spent_s() -> float:
        return node.daemon.samples()['vcnode_vnagent_handshake_cpu_seconds_total{place="thread"}']

    assert show_chain(node, chain) == 200  # from now on they are not the loop's
    assert show_chain(node, chain) == 200
    one_s = spent_s()
    assert one_s > EXPENSIVE_S
    with crowd(node.daemon.port, ["127.0.0.1"] * 20) as crowded:
        flights = [last_flight(sock, context, NAME) for sock in crowded]
        begin_s = spent_s()
        for sock, flight in zip(crowded, flights, strict=True):
            sock.sendall(flight)
        assert neighbour_is_served(node)
        between_s = spent_s() - begin_s
        # 20 are waiting. A wait for all of them, or for a turn among them, would give 20 or 10.
        assert between_s < 5 * one_s
        # 20 last flights cost some 15 whole handshakes.
        wait_until(lambda: spent_s() - begin_s > 10 * one_s, within_s=2 * DEADLINE_S)


def test_silent_connections_evict_silent_ones(node: AgentNode) -> None:
    """One address holds more silent connections than there are places. An honest client that is as silent,
    and came before all of them, keeps its place."""
    with contextlib.closing(dial(node.daemon.port, "127.0.0.1")) as early:
        with crowd(node.daemon.port, ["127.0.0.66"] * (MAX_WAITING + 300)) as flood:
            wait_until(
                lambda: node.daemon.metric("vcnode_vnagent_connections_evicted_total") >= 300,
                within_s=DEADLINE_S,
            )
            assert neighbour_is_served(node)
            assert not is_closed(early)
            assert is_closed(flood[0])
            assert not is_closed(flood[-1])
        # None of them has cost a handshake.
        assert handshakes(node, "loop") + handshakes(node, "thread") < 10


def test_half_handshakes_are_bounded_and_block_no_others(node: AgentNode) -> None:
    """From 64 addresses, more than there are places for those that have begun."""
    most = MAX_BEGUN + MAX_UNCOUNTED
    sources = itertools.islice(itertools.cycle(f"127.0.1.{number}" for number in range(1, 65)), 2 * most)
    with crowd(node.daemon.port, sources, client_hello()) as flood:
        assert neighbour_is_served(node)
        wait_until(
            lambda: handshakes(node, "thread") + handshakes(node, "loop") >= 2 * most, within_s=DEADLINE_S
        )
        assert neighbour_is_served(node)
        assert sum(not is_closed(each) for each in flood) <= most
        # All but a few were not the loop's.
        assert handshakes(node, "loop") <= 100


# ---- heads


def resident_kib(node: AgentNode) -> int:
    lines = Path(f"/proc/{node.daemon.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def test_idle_connections_keep_no_large_heads(tmp_path: Path) -> None:
    """They once kept 330 KiB each; TLS takes some 50."""
    count = 100
    large = [f"X-{number}: {'x' * 1900}" for number in range(90)]
    # Each of these heads costs 171 tokens of a rate limit.
    settings = {"limits": {"requestsPerSecondPerTenant": 0}}
    with (
        AgentNode(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK], settings) as node,
        contextlib.ExitStack() as stack,
    ):
        before_kib = resident_kib(node)
        for _ in range(count):
            client = stack.enter_context(node.client("ten-a"))
            client.send(head("GET /healthz", *large))
            assert status_of(reply_of(client)) == 200
        assert resident_kib(node) - before_kib < count * 120


def test_a_tenants_handshake_bytes_are_bounded(node: AgentNode) -> None:
    """OpenSSL makes 370 KiB of a chain of 10 KiB and keeps them, also under a stream. A tenant with such
    chains has as many connections as fit into 4 MiB of them, and others have theirs."""
    tenant = node.tenants["ten-a"]
    heavy = tenant.authority.issue("heavy", sans_dns=["a"] * 3_300, key=tenant.leaf.key)
    fit = MAX_TENANT_HANDSHAKE_BYTES // len(heavy.der)
    with contextlib.ExitStack() as stack:
        outcomes = []
        for number in range(fit + 20):
            client = stack.enter_context(node.client("ten-a", heavy))
            if number % 2:
                client.send(head(EXEC, *SPDY))
                outcomes.append("101" if received(client, SHOP.marker.encode(), 1.0) else "429")
            else:
                client.send(head("GET /healthz"))
                outcomes.append(str(status_of(reply_of(client))))
        served = len([outcome for outcome in outcomes if outcome != "429"])
        # Hello and signature are counted too, and are 5 % of it.
        assert 0.9 * fit < served <= fit
        assert neighbour_is_served(node)
    wait_until(lambda: node.daemon.metric("vcnode_vnagent_connections") == 0, within_s=DEADLINE_S)
    assert show_chain(node, heavy.cert_pem) == 200


def test_large_unregistered_chains_are_bounded(node: AgentNode) -> None:
    """OpenSSL keeps 600 KiB for a chain of 12 KiB, and 256 connections that send no request may have no
    registered certificate. Those with large chains lose the oldest among them; a usual one stays."""
    tenant = node.tenants["ten-a"]
    heavy, usual = tenant.authority.issue("heavy", sans_dns=["a"] * 1_500), tenant.authority.issue("usual")
    evictions = "vcnode_vnagent_connections_evicted_total"
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(node.client("ten-a", usual))]
        clients += [stack.enter_context(node.client("ten-a", heavy)) for _ in range(MAX_HEAVY + 4)]
        wait_until(lambda: node.daemon.metric(evictions) == 4, within_s=DEADLINE_S)
        ended = [client.receive_until_end(0.05) for client in clients]
        assert ended == [False] + [True] * 4 + [False] * MAX_HEAVY
        assert neighbour_is_served(node)


def test_large_chains_above_a_tenants_limit_are_bounded(tmp_path: Path) -> None:
    """They count for no tenant until their response 429."""
    limits = {"limits": {"connectionsPerTenant": 1}}
    with AgentNode(tmp_path / "n", ["ten-a"], [SHOP], limits) as node, contextlib.ExitStack() as stack:
        tenant = node.tenants["ten-a"]
        heavy = tenant.authority.issue("heavy", sans_dns=["a"] * 1_500, key=tenant.leaf.key)
        counted = stack.enter_context(node.client("ten-a"))
        clients = [stack.enter_context(node.client("ten-a", heavy)) for _ in range(MAX_HEAVY + 2)]
        wait_until(
            lambda: node.daemon.metric("vcnode_vnagent_connections_evicted_total") == 2, within_s=DEADLINE_S
        )
        ended = [client.receive_until_end(0.05) for client in (counted, *clients)]
        assert ended == [False] + [True] * 2 + [False] * MAX_HEAVY


def test_a_tenants_incomplete_heads_are_bounded(tmp_path: Path) -> None:
    part = 150_000
    settings = {"limits": {"bufferedBytesPerTenant": 8 * part}}
    with (
        AgentNode(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK], settings) as node,
        contextlib.ExitStack() as stack,
    ):
        clients = [stack.enter_context(node.client("ten-a")) for _ in range(8)]
        for client in clients:
            client.send(head("GET /healthz", f"X: {'x' * part}")[:part])
        wait_until(
            lambda: node.daemon.metric("vcnode_vnagent_buffered_bytes") == 8 * part, within_s=DEADLINE_S
        )
        for _ in range(5):
            with node.client("ten-a") as client:
                client.send(head("GET /healthz", f"X: {'x' * 20_000}")[:20_000])
                assert status_of(reply_of(client)) == 429
        # The memory limit refuses neither small requests of this tenant nor those of its neighbours.
        assert status_of(node.ask("ten-a", "GET /healthz")) == 200
        with node.client("ten-b") as client:
            client.send(head("GET /healthz", f"X: {'x' * part}"))
            assert status_of(reply_of(client)) == 200
        # Handshakes within their deadline may end, and their memory is free again.
        clients[0].send(b"\r\n\r\n")
        assert status_of(reply_of(clients[0])) == 200
        for client in clients[1:]:
            client.close()
        wait_until(lambda: node.daemon.metric("vcnode_vnagent_buffered_bytes") == 0, within_s=DEADLINE_S)
        with node.client("ten-a") as client:
            client.send(head("GET /healthz", f"X: {'x' * part}"))
            assert status_of(reply_of(client)) == 200


def test_only_fast_key_exchange_groups_are_used(node: AgentNode) -> None:
    """The reply to one hello took 0.13 s with ffdhe8192, which OpenSSL offers by default."""
    tenant = node.tenants["ten-a"]

    def status_with(group: bytes) -> int | None:
        context = client_context(node.serving, tenant.leaf.cert_pem, tenant.leaf)
        limit_groups(context, [group])
        return status_over(node, context)

    begin_s = handshake_cpu_s(node)
    slow = (b"ffdhe8192", b"ffdhe2048", b"P-521", b"P-384")
    assert [status_with(group) for group in slow] == [None] * len(slow)
    assert [status_with(group) for group in (b"P-256", b"X25519")] == [200, 200]
    assert handshake_cpu_s(node) - begin_s < 0.05


@pytest.mark.parametrize(
    "hello",
    [
        pytest.param(hellos.many_algorithms, id="0.14 s"),
        pytest.param(hellos.many_authorities, id="0.4 MB"),
        pytest.param(hellos.many_responders, id="0.3 MB"),
    ],
)
def test_expensive_hellos_are_refused_before_openssl(node: AgentNode, hello: Callable[[], bytes]) -> None:
    """It took no certificate to hold up the event loop, or to fill the memory, with one hello."""
    assert len(hello()) < MAX_HANDSHAKE_BYTES
    failures = node.daemon.metric("vcnode_vnagent_handshake_failures_total")
    with dial(node.daemon.port, "127.0.0.1") as sock:
        sock.sendall(hellos.record(hello()))
        assert sock.recv(100) == hellos.DECODE_ERROR
    wait_until(
        lambda: node.daemon.metric("vcnode_vnagent_handshake_failures_total") == failures + 1,
        within_s=DEADLINE_S,
    )
    assert neighbour_is_served(node)


def test_keys_on_custom_curves_are_not_decoded(node: AgentNode) -> None:
    """8 compressed points on a curve whose square roots take 0.15 s each, in unsigned certificates."""
    leaf = node.tenants["ten-a"].leaf
    chain = crafted_chain(leaf, 4)
    assert neighbour_is_served(node)
    context = client_context(node.serving, chain, leaf)
    begin_s = handshake_cpu_s(node)
    with (
        CaseClient(("127.0.0.1", node.daemon.port), context, sni=NAME) as client,
        contextlib.suppress(OSError),
    ):
        if client.handshake():
            reply_of(client)
    failures = "vcnode_vnagent_handshake_failures_total"
    wait_until(lambda: node.daemon.metric(failures) == 1, within_s=30.0)
    assert neighbour_is_served(node)
    assert handshake_cpu_s(node) - begin_s < 0.1
