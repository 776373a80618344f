# SPDX-License-Identifier: Apache-2.0
"""A live query is sent from the pod's own network: two pods, one address, two servers; and over IPv6."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.functional.vcnode.test_explain_dns import reply
from tests.lab.namespaces import Lab, LabNamespace
from vcnode.core.dns_message import RecordType
from vcnode.dns_query import PORT, ask_all

ADDRESS, ADDRESS6 = "10.96.0.53", "fd00:96::53"


@contextlib.contextmanager
def serving(namespace: LabNamespace, address: str) -> Iterator[None]:
    """A DNS server in a namespace that answers every name with one address."""
    families = {socket.AF_INET: ADDRESS, socket.AF_INET6: ADDRESS6}
    namespace.run("ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo")
    namespace.run("ip", "addr", "add", f"{ADDRESS6}/128", "dev", "lo", "nodad")
    sockets = [(namespace.socket(family, socket.SOCK_DGRAM), ip) for family, ip in families.items()]
    stop = threading.Event()

    def serve(server: socket.socket) -> None:
        server.settimeout(0.05)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                data, peer = server.recvfrom(512)
                server.sendto(reply(data, address), peer)

    threads = []
    for server, ip in sockets:
        server.bind((ip, PORT))
        threads.append(threading.Thread(target=serve, args=(server,)))
        threads[-1].start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for server, _ in sockets:
            server.close()


@pytest.mark.parametrize("server", [ADDRESS, ADDRESS6])
def test_each_pod_is_answered_by_its_own_server(lab: Lab, server: str) -> None:
    one, other = lab.namespace("one"), lab.namespace("other")
    with serving(one, "10.1.0.1"), serving(other, "10.2.0.1"):
        for namespace, expected in ((one, "10.1.0.1"), (other, "10.2.0.1")):
            (outcome,) = ask_all(("api",), RecordType.A, (server,), str(namespace.path))
            assert outcome.answer is not None, outcome.problem
            assert [record.value for record in outcome.answer.records] == [expected]


def test_a_server_that_the_pod_cannot_reach_is_named(lab: Lab) -> None:
    (outcome,) = ask_all(("api",), RecordType.A, (ADDRESS,), str(lab.namespace("alone").path))
    assert (outcome.answer, outcome.problem) == (None, "Network is unreachable")
