# SPDX-License-Identifier: Apache-2.0
import pytest

from devkit.kubelet.pods import FakePod
from devkit.kubelet.replies import Exchange, FakeReply
from vcnode_demo import kubelet_script

POD = FakePod("a-web", "shop", "s-1", labels={"owner": "acme"})
UPGRADE = (("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"))


def reply(target: str, headers: tuple[tuple[str, str], ...] = ()) -> FakeReply | None:
    return kubelet_script.script(Exchange(1, b"", "GET", target, headers=headers), [POD])


def reply_bytes(target: str, sent: bytes) -> bytes:
    found = reply(target, UPGRADE)
    assert found is not None
    assert found.answer is not None
    return found.answer(sent)


def test_a_log_has_its_owners_marker_and_can_be_followed() -> None:
    whole = reply("/containerLogs/a-web/shop/app")
    assert whole is not None
    assert whole.body == b"acme's shop is up\nacme's shop took an order (marker-s-1)\n"
    assert whole.follows is None
    tail = reply("/containerLogs/a-web/shop/app?follow=true&tailLines=0")
    assert tail is not None
    assert (tail.body, tail.follows) == (b"", ("a-web", "shop", "app"))
    last = reply("/containerLogs/a-web/shop/app?tailLines=1")
    assert last is not None
    assert last.body.count(b"\n") == 1


def test_a_shell_knows_two_commands() -> None:
    sent = b"hostname\ncat /etc/owner\nrm\n\n"
    assert (
        reply_bytes("/exec/a-web/shop/app?command=sh", sent) == b"shop\nacme marker-s-1\nsh: rm: not found\n"
    )


def test_a_web_server_responds_to_a_whole_request() -> None:
    response = reply_bytes("/portForward/a-web/shop", b"GET / HTTP/1.1\r\n\r\n")
    head, _, body = response.partition(b"\r\n\r\n")
    assert body == b"welcome to acme's shop (marker-s-1)\n"
    assert b"Content-Length: %d" % len(body) in head
    assert reply_bytes("/portForward/a-web/shop", b"GET / HT") == b""


@pytest.mark.parametrize(
    "target",
    ["/pods", "/", "/containerLogs/a-web/none/app", "/containerLogs/a-web/shop/none", "/exec/a-web/shop/app"],
)
def test_other_requests_are_left_to_the_fake_kubelet(target: str) -> None:
    assert reply(target) is None
