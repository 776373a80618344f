# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from dnsconfig.node_resolv_conf import SETTLE_S, NodeResolvConf
from dnsconfig.resolve.decision import NodeDns
from dnsconfig.resolve.node_resolver import NO_NODE_RESOLVER, NodeResolver
from dnsconfig.resolve.waiting import PodWaiting, WaitReason


class FileFixture:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 0.0
        self.file = NodeResolvConf(path, (), lambda: self.now)

    def servers(self) -> tuple[str, ...]:
        resolver = self.file.node.resolver
        return resolver.servers if isinstance(resolver, NodeResolver) else ()

    def polled(self, seconds: float = 0.0) -> bool:
        self.now += seconds
        return self.file.poll()


@pytest.fixture(autouse=True)
def _a_clock_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll reads the content; its modification time does not matter."""
    monkeypatch.setattr("daemonkit.files.watched.Watched._changed_recently", lambda _: True)


def here(directory: Path, text: str | None) -> FileFixture:
    path = directory / "resolv.conf"
    if text is not None:
        path.write_text(text)
    return FileFixture(path)


def test_a_change_counts_after_it_settled(tmp_path: Path) -> None:
    found = here(tmp_path, "nameserver 192.0.2.1\n")
    assert found.servers() == ("192.0.2.1",)
    assert not found.polled()
    found.path.write_text("")
    assert not found.polled(SETTLE_S)
    found.path.write_text("nameserver 192.0.2.2\n")
    assert not found.polled(SETTLE_S / 2)
    assert found.servers() == ("192.0.2.1",)
    assert found.polled(SETTLE_S)
    assert found.servers() == ("192.0.2.2",)
    assert not found.polled(SETTLE_S)


def test_unusable_content_replaces_no_usable_one(tmp_path: Path) -> None:
    found = here(tmp_path, "nameserver 192.0.2.1\n")
    found.path.write_text("nameserver\n")
    assert not found.polled()
    assert not found.polled(10 * SETTLE_S)
    assert found.servers() == ("192.0.2.1",)
    assert found.file.problem == f"{found.path} cannot be used: a line `nameserver` without an address"
    found.path.unlink()
    assert not found.polled(10 * SETTLE_S)
    assert found.file.problem == f"{found.path} cannot be used: it does not exist"
    found.path.write_text("nameserver 192.0.2.1\n")
    found.polled()
    assert not found.polled(SETTLE_S)  # it is as it was
    assert (found.servers(), found.file.problem) == (("192.0.2.1",), "")


def test_the_first_usable_content_counts_at_once(tmp_path: Path) -> None:
    found = here(tmp_path, None)
    assert found.file.node == NodeDns(
        PodWaiting(WaitReason.NODE_RESOLVER_INVALID, f"{found.path} cannot be used: it does not exist")
    )
    found.path.mkdir()
    assert found.polled()
    assert found.file.problem == f"{found.path} cannot be used: not a regular file"
    found.path.rmdir()
    found.path.write_bytes(b"# caf\xe9\nnameserver 192.0.2.1\n")
    assert found.polled()
    assert found.servers() == ("192.0.2.1",)


def test_a_kubelet_without_resolv_conf_is_never_polled() -> None:
    file = NodeResolvConf(None, ("10.0.0.1",), lambda: 0.0)
    assert file.node == NodeDns(NO_NODE_RESOLVER, ("10.0.0.1",))
    assert not file.poll()


@pytest.mark.parametrize(
    "text",
    [
        *("", "search example.org\n", "nameserver 127.0.0.53\n", "nameserver 0.0.0.0\n"),
        *("nameserver fe80::1%3\n", "nameserver 127.0.0.53\nnameserver 192.0.2.2\n"),
    ],
)
def test_unsound_content_replaces_no_sound_one(tmp_path: Path, text: str) -> None:
    found = here(tmp_path, "nameserver 192.0.2.1\n")
    found.path.write_text(text)
    assert not found.polled()
    assert not found.polled(10 * SETTLE_S)
    assert found.servers() == ("192.0.2.1",)
    assert found.file.problem.startswith(f"{found.path}: it")
    found.path.write_text("nameserver 192.0.2.3\n")
    found.polled()
    assert found.polled(SETTLE_S)
    assert (found.servers(), found.file.problem) == (("192.0.2.3",), "")


def test_what_a_start_complained_about_is_used_and_replaced(tmp_path: Path) -> None:
    found = here(tmp_path, "nameserver 127.0.0.53\n")
    assert found.servers() == ("127.0.0.53",)
    assert found.file.problem.startswith(f"{found.path}: its nameserver 127.0.0.53 is a loopback address")
    for text, servers in (("nameserver ::1\n", ("::1",)), ("nameserver 192.0.2.1\n", ("192.0.2.1",))):
        found.path.write_text(text)
        found.polled()
        assert found.polled(SETTLE_S)
        assert found.servers() == servers


def test_servers_that_nobody_uses_are_not_judged(tmp_path: Path) -> None:
    """The webhook writes the node's searches and options alone."""
    path = tmp_path / "resolv.conf"
    path.write_text("nameserver 127.0.0.53\n")
    assert NodeResolvConf(path, (), lambda: 0.0, needs_servers=False).problem == ""
