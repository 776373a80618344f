# SPDX-License-Identifier: Apache-2.0
"""`vcnode explain dns` as a process beside a real dnsconfig, and its queries to a fake DNS server."""

import asyncio
import contextlib
import json
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.functional.daemon_node import running
from tests.functional.dnsconfig.node import DnsNode
from tests.unit.dnsconfig.objects import tenant
from vcnode import dns_query
from vcnode.core.dns_message import RecordType
from vcnode.dns_query import ask_all

DEADLINE_S = 30.0
_PORT_TRIES = 20


async def explain(here: DnsNode, *argv: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vcnode", "explain", "dns", *argv, "--socket", str(here.socket)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.mark.asyncio
async def test_resolver_of_a_pod_is_explained(tmp_path: Path) -> None:
    here = DnsNode(tmp_path)
    here.put(*tenant("a", default="10.96.0.10", blue="10.96.0.11"), *tenant("b", default="10.96.0.20"))
    async with running(here):
        uid, waiting = here.put_pod("a", "web", network="blue"), here.put_pod("b", "web", network="red")
        await here.until(lambda: here.text(uid) and here.waits(waiting))
        code, out, _ = await explain(here, "a-shop/web", "api")
        assert code == 0
        assert out.splitlines() == [
            "pod      shop/web (super cluster: a-shop/web), tenant a",
            "network  blue (label arktos.futurewei.com/network)",
            "policy   ClusterFirst",
            "server   10.96.0.11 (network blue: Service kube-system/kube-dns-blue)",
            "domain   cluster.local (the default)",
            "",
            "/etc/resolv.conf (delivered to kata-bridge)",
            "  search shop.svc.cluster.local svc.cluster.local cluster.local  <- cluster domain, the default",
            "         example.org                                             <- the node's resolv.conf",
            "  nameserver 10.96.0.11                                          "
            "<- network blue: Service kube-system/kube-dns-blue",
            "  options ndots:5                                                <- policy ClusterFirst",
            "",
            "the pod looks up A records in this order:",
            "  api.shop.svc.cluster.local",
            "  api.svc.cluster.local",
            "  api.cluster.local",
            "  api.example.org",
            "  api",
        ]
        code, out, _ = await explain(here, "shop/web", "--tenant", "b", "-o", "json")
        assert (code, json.loads(out)["resolver"]["message"]) == (1, "network red does not exist")
        code, _, err = await explain(here, "shop/web")
        assert (code, err) == (
            3,
            "vcnode: shop/web: more than one pod has that name; add --tenant\n",
        )
        code, _, err = await explain(here, "a-shop/web", "api", "--query", "--bridge-status", "/nowhere")
        assert (code, "kata-bridge" in err) == (3, True)
    code, _, err = await explain(here, "a-shop/web")
    assert (code, "does dnsconfig run here?" in err) == (3, True)


# ---- questions


def reply(query: bytes, address: str | None, *, is_truncated: bool = False) -> bytes:
    """A server's response: an A record, or NXDOMAIN."""
    flags = 0x8180 | (0x0200 if is_truncated else 0) | (0 if address else 3)
    has_record = address is not None and not is_truncated
    head = query[:2] + struct.pack("!5H", flags, 1, int(has_record), 0, 0) + query[12:]
    if not has_record or address is None:
        return head
    return head + b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 30, 4) + socket.inet_aton(address)


def _both() -> tuple[socket.socket, socket.socket, int]:
    """UDP and TCP at one port, which must be free for both."""
    for _ in range(_PORT_TRIES):
        tcp = socket.create_server(("127.0.0.1", 0))
        port = tcp.getsockname()[1]
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            udp.bind(("127.0.0.1", port))
        except OSError:
            udp.close()
            tcp.close()
        else:
            return udp, tcp, port
    raise AssertionError(f"no port is free for both after {_PORT_TRIES} tries")


@contextmanager
def server(known: bytes, *, is_large: bool = False) -> Iterator[int]:
    """The port of a DNS server on loopback that knows one name."""
    udp, tcp, port = _both()
    stop = threading.Event()
    for each in (udp, tcp):
        each.settimeout(0.05)

    def address(data: bytes) -> str | None:
        return "10.1.2.3" if known in data else None

    def serve() -> None:
        while not stop.is_set():
            try:
                data, peer = udp.recvfrom(512)
                udp.sendto(reply(data, address(data), is_truncated=is_large and known in data), peer)
            except TimeoutError:
                pass
            try:
                client, _ = tcp.accept()
            except TimeoutError:
                continue
            with client:
                client.settimeout(5.0)
                data = client.recv(512)[2:]
                response = reply(data, address(data))
                client.sendall(struct.pack("!H", len(response)) + response)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield port
    finally:
        stop.set()
        thread.join()
        udp.close()
        tcp.close()


@pytest.mark.parametrize("is_large", [False, True])
def test_names_are_looked_up_in_turn(is_large: bool) -> None:
    with server(b"\x03api\x03svc\x00", is_large=is_large) as port:
        found = ask_all(("api.shop.svc", "api.svc", "api"), RecordType.A, ("127.0.0.1",), None, port)
    assert [(each.name, each.answer and each.answer.code) for each in found] == [
        ("api.shop.svc", "NXDOMAIN"),
        ("api.svc", "NOERROR"),
    ]
    response = found[-1].answer
    assert response is not None
    assert [record.value for record in response.records] == ["10.1.2.3"]


def test_refusing_server_is_named_and_the_next_is_queried() -> None:
    with server(b"\x03api\x00") as port:
        found = ask_all(("api",), RecordType.A, ("127.0.0.2", "127.0.0.1"), None, port)
    assert [(each.server, each.problem) for each in found] == [
        ("127.0.0.2", "Connection refused"),
        ("127.0.0.1", ""),
    ]


def test_silent_servers_end_the_lookup() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        found = ask_all(("a", "b"), RecordType.A, ("127.0.0.1",), None, silent.getsockname()[1])
    assert [(each.name, each.problem) for each in found] == [("a", "no answer within 4 s")]


@pytest.mark.parametrize("damage", ["cut", "of another question", "with another number"])
def test_malformed_response_is_refused(damage: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))

        def serve() -> None:
            query, peer = udp.recvfrom(512)
            whole = reply(query, "10.1.2.3")
            damaged = {
                "cut": whole[:-3],
                "of another question": whole.replace(b"\x01a\x07", b"\x01b\x07"),
                "with another number": bytes((whole[0] ^ 1,)) + whole[1:],
            }
            udp.sendto(damaged[damage], peer)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            (found,) = ask_all(("a.example",), RecordType.A, ("127.0.0.1",), None, udp.getsockname()[1])
        finally:
            serving.join()
    assert (found.answer, found.problem.partition(":")[0]) == (None, "malformed answer")


def test_response_that_trickles_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dns_query, "TIMEOUT_S", 0.3)
    udp, tcp, port = _both()
    over = threading.Event()

    def serve() -> None:
        query, peer = udp.recvfrom(512)
        udp.sendto(reply(query, None, is_truncated=True), peer)
        client, _ = tcp.accept()
        with client, contextlib.suppress(OSError):
            client.sendall(b"\xff\xff")
            while not over.wait(0.05):
                client.sendall(b"x")

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        (lookup,) = ask_all(("a.example",), RecordType.A, ("127.0.0.1",), None, port)
    finally:
        over.set()
        serving.join()
        udp.close()
        tcp.close()
    assert (lookup.answer, lookup.problem[:16]) == (None, "no answer within")


def test_missing_network_namespace_is_named() -> None:
    (found,) = ask_all(("a",), RecordType.A, ("127.0.0.1",), "/nowhere")
    assert found.problem == "network namespace /nowhere: No such file or directory"
