# SPDX-License-Identifier: Apache-2.0
"""The demo's shell and web server of a guest, as a process on loopback."""

import random
import socket
import time
from collections.abc import Iterator

import pytest

from tests.functional.vcnode.json_program import DEADLINE_S, JsonProgram
from vcnode_demo import guest_program

Shells = tuple[JsonProgram, JsonProgram]


@pytest.fixture
def shells() -> Iterator[Shells]:
    """A client and a server."""
    both = JsonProgram(guest_program, "a guest"), JsonProgram(guest_program, "a guest")
    yield both
    for each in both:
        each.close()


# Below the range that Linux takes the ports of clients from (ip_local_port_range). A client that tries again
# and again to connect to a port of that range, on its own address, is connected to itself one day.
_PORTS = range(20_000, 32_000)


def _free_port() -> int:
    for port in random.sample(_PORTS, 100):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("each of 100 ports is in use")


def test_it_serves_requests_and_ends_with_its_input(shells: Shells) -> None:
    client, web = shells
    port = _free_port()
    reply = client.call("get", "127.0.0.1", port, 1.0)
    assert reply["error"] == "Connection refused"
    assert web.call("serve", port, "acme's shop") == {}
    reply = client.call("get", "127.0.0.1", port, 1.0)
    assert reply["body"] == "acme's shop"
    assert 0 < reply["s"] < 1
    assert web.close() == 0
    assert client.call("get", "127.0.0.1", port, 1.0)["error"] == "Connection refused"


def test_until_waits_for_a_word(shells: Shells) -> None:
    client, web = shells
    port = _free_port()
    client.send("until", "127.0.0.1", port, "shop", DEADLINE_S)
    began_s = time.monotonic()
    web.call("serve", port, "acme's shop")
    reply = client.receive()
    assert reply["body"] == "acme's shop"
    assert began_s < reply["at"] <= time.monotonic()
    assert "no such word" not in client.call("until", "127.0.0.1", port, "no such word", 0.1)["body"]


def test_leave_waits_until_a_word_disappears(shells: Shells) -> None:
    client, web = shells
    port = _free_port()
    web.call("serve", port, "acme's shop")
    assert client.call("leave", "127.0.0.1", port, "globex", DEADLINE_S) == {
        "last": 0.0,
        "answers": guest_program.IN_A_ROW,
        "errors": 0,
        "left": True,
    }
    reply = client.call("leave", "127.0.0.1", port, "acme", 0.1)
    assert (reply["left"], reply["errors"]) == (False, 0)
    assert reply["last"] > 0
