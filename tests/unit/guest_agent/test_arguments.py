# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from daemonkit.version import VERSION
from devkit.pki import Authority
from guest_agent.arguments import TcpAddress, UnixAddress, VsockAddress, parse, sandbox_of


def test_the_defaults_are_those_of_a_guest_image() -> None:
    given = parse([])
    assert given.node == VsockAddress(2, 1033)
    assert given.credentials == Path("/run/vcnode-guest/credentials")
    assert given.state == Path("/run/vcnode-guest")
    assert given.resolv_conf == (Path("/etc/resolv.conf"),)
    assert given.log_level == "info"


def test_version_is_that_of_all_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        parse(["--version"])
    assert capsys.readouterr().out == f"vcnode-guest-agent {VERSION}\n"


@pytest.mark.parametrize(
    ("text", "node", "target"),
    [
        ("tcp:10.0.0.1:1033", TcpAddress("10.0.0.1:1033"), "10.0.0.1:1033"),
        ("tcp:[fd00::1]:1033", TcpAddress("[fd00::1]:1033"), "[fd00::1]:1033"),
        ("unix:/run/node.sock", UnixAddress("/run/node.sock"), "unix:/run/node.sock"),
        ("vsock:3:9", VsockAddress(3, 9), "vsock:3:9"),
    ],
)
def test_a_node_address_is_vsock_unix_or_tcp(text: str, node: object, target: str) -> None:
    given = parse(["--node", text]).node
    assert (given, given.target) == (node, target)


@pytest.mark.parametrize(
    "text", ["", "tcp:", "tcp:host", "tcp:host:0", "tcp::1", "unix:", "vsock:2", "vsock:x:1", "udp:a:1"]
)
def test_an_invalid_node_address_exits_with_2(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--node", text])
    assert ended.value.code == 2
    assert "is not vsock:CID:PORT, unix:PATH or tcp:HOST:PORT" in capsys.readouterr().err


def test_resolv_conf_is_repeatable() -> None:
    assert parse(["--resolv-conf", "/a", "--resolv-conf", "/b"]).resolv_conf == (Path("/a"), Path("/b"))


def test_a_certificate_names_its_sandbox() -> None:
    authority = Authority.create("ca")
    uri = "vcnode://sandbox/" + "0f" * 32
    assert sandbox_of(authority.issue("x", uris=[uri]).cert_pem) == "0f" * 32
    assert sandbox_of(authority.issue("x", uris=["spiffe://sandbox/a"]).cert_pem) == ""
    assert sandbox_of(authority.issue("vcnode://sandbox/in-the-subject").cert_pem) == ""


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN CERTIFICATE-----\n!\n-----END", b"\xff"])
def test_an_invalid_certificate_names_no_sandbox(pem: bytes) -> None:
    assert sandbox_of(pem) == ""
