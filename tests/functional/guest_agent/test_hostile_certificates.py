# SPDX-License-Identifier: Apache-2.0
"""A guest's identity: its certificate, through its own listener, while its sandbox lives."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from guest_agent.api.messages import (
    ATTACH,
)
from kata_bridge.channels.agent import relay
from kata_bridge.guest_certificates import SERVER_NAME, GuestCertificates
from kata_bridge.sandboxes.core.sandbox import Appeared, Sandbox
from tests.functional.guest_agent.conftest import AgentServerNode, StartAgent
from tests.functional.guest_agent.dialling import attached, dialled, hello, refusal
from tests.waiting import until

pytestmark = pytest.mark.asyncio


async def test_hello_must_name_the_certificates_sandbox(node: AgentServerNode, target: str) -> None:
    node.credentials.issue("victim")
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        assert await refusal(call, hello("victim")) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "the hello names another sandbox than the certificate",
        )
    assert node.attached == []


async def test_a_certificate_of_a_removed_sandbox_is_rejected(
    node: AgentServerNode, target: str, tmp_path: Path
) -> None:
    issued = node.credentials.issue("sb")
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in issued.directory.iterdir():
        (kept / path.name).write_bytes(path.read_bytes())
    node.credentials.revoke("sb")
    node.credentials.issue("sb")
    async with dialled(target, kept) as call:
        code, details = await refusal(call)
    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert details == "the certificate is not that of a running sandbox"


async def test_tls_rejects_unknown_and_missing_certificates(
    node: AgentServerNode, short_dir: Path, target: str
) -> None:
    other = GuestCertificates.open(short_dir / "other").issue("sb").directory
    ca = node.credentials.issue("sb").directory / "ca.crt"
    async with dialled(target, other, **{"ca.crt": ca}) as call:
        assert (await refusal(call, hello("sb")))[0] is grpc.StatusCode.UNAVAILABLE
    async with grpc.aio.secure_channel(
        target,
        grpc.ssl_channel_credentials(ca.read_bytes()),
        options=[("grpc.ssl_target_name_override", SERVER_NAME)],
    ) as channel:
        code, _ = await refusal(channel.stream_stream(ATTACH.path)(), hello("sb"))
    assert code is grpc.StatusCode.UNAVAILABLE


async def test_an_agent_rejects_a_node_of_another_authority(
    node: AgentServerNode, short_dir: Path, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[relay.AgentConnection] = []
    closed = relay.Relay.closed

    def noted(through: relay.Relay, connection: relay.AgentConnection) -> None:
        ended.append(connection)
        closed(through, connection)

    monkeypatch.setattr(relay.Relay, "closed", noted)
    node.credentials.issue("sb")
    other = GuestCertificates.open(short_dir / "other").issue("sb").directory
    start_agent(other)
    await until(lambda: len(ended) >= 3)  # it tries again and again
    assert node.attached == []


async def test_a_socket_accepts_its_own_sandbox_only(node: AgentServerNode, short_dir: Path) -> None:
    stolen = node.credentials.issue("victim").directory
    await node.links.listen_hybrid("sb", short_dir / "clh.sock", 1033)
    async with dialled(f"unix:{short_dir}/clh.sock_1033", stolen) as call:
        assert await refusal(call) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "the certificate came through the socket of sandbox sb",
        )


async def test_tcp_must_come_from_the_sandboxs_address(node: AgentServerNode) -> None:
    port = await node.links.listen_tcp("127.0.0.1", 0)
    node.addresses.update(
        Appeared(Sandbox(name, "n", name, name, ips=ips))
        for name, ips in (("victim", ("10.0.0.5", "fd00::5")), ("own", ("127.0.0.1",)), ("silent", ()))
    )
    async with dialled(f"127.0.0.1:{port}", node.credentials.issue("victim").directory) as call:
        assert await refusal(call) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "the certificate came from 127.0.0.1, which is not its sandbox's address",
        )
    for name in ("own", "silent"):
        async with attached(node, f"127.0.0.1:{port}", name):
            pass


async def test_the_server_behind_the_relay_rejects_guests(node: AgentServerNode, short_dir: Path) -> None:
    async with dialled(f"unix:{short_dir}/agents.sock", node.credentials.issue("sb").directory) as call:
        assert (await refusal(call))[0] is grpc.StatusCode.PERMISSION_DENIED


def _listening() -> list[str]:
    """The TCP ports that this process listens on."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    sockets = {str(link.readlink()) for link in links}
    return [
        fields[1]
        for table in ("tcp", "tcp6")
        for fields in map(str.split, Path(f"/proc/self/net/{table}").read_text().splitlines()[1:])
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets
    ]


async def test_the_node_listens_on_no_tcp_port(node: AgentServerNode) -> None:
    """A loopback port accepted all connections: 400 silent ones cost 400 descriptors."""
    assert await asyncio.to_thread(_listening) == []


async def test_a_sandbox_revoked_before_hello_is_rejected(
    node: AgentServerNode, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[str | None] = []
    sandbox_of = node.credentials.sandbox_of

    def noted(leaf_pem: bytes) -> str | None:
        known.append(sandbox_of(leaf_pem))
        return known[-1]

    monkeypatch.setattr(node.credentials, "sandbox_of", noted)
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        await until(lambda: known == ["sb"])
        node.credentials.revoke("sb")
        node.links.forget("sb")
        assert await refusal(call, hello("sb")) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "the certificate is not that of a running sandbox",
        )
    assert node.attached == []


async def test_revoking_a_certificate_ends_its_stream(node: AgentServerNode, target: str) -> None:
    async with attached(node, target) as (call, channel):
        node.credentials.revoke("sb")
        node.links.forget("sb")
        assert (await refusal(call))[0] is grpc.StatusCode.UNAVAILABLE
    assert "its sandbox was stopped" in channel.ended
    assert node.detached == [channel]
