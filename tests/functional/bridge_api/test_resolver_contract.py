# SPDX-License-Identifier: Apache-2.0
"""What dnsconfig may rely on when it sets resolv.confs: kept by the fake and by kata-bridge's start gate."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio

from bridge_api.client import BridgeClient, BridgeRejectedError
from bridge_api.messages import GuestResult, ResultCode, SetResolvConfRequest
from devkit.fake_bridge import FakeBridge
from kata_bridge.ttrpc.status import TtrpcError
from tenancy import keys
from tests.functional.kata_bridge.start_gate.gated_node import GatedNode, content, gated, pod

pytestmark = pytest.mark.asyncio

TEXT, OTHER = "nameserver 10.1.0.10\n", "nameserver 10.1.0.11\n"
BLUE = ("blue",)
APPLIED, UNCHANGED = ResultCode.APPLIED, ResultCode.UNCHANGED


class ResolverCalls(Protocol):
    async def set_resolv_conf(self, request: SetResolvConfRequest) -> GuestResult: ...


class ResolverSubject(Protocol):
    """A bridge with the sandbox `s1` of the pod `uid-s1`, on network blue."""

    client: ResolverCalls

    async def start(self) -> str:
        """Start a container; return why it was denied, or ""."""
        ...

    def file(self) -> str:
        """The resolv.conf of the container that was started."""
        ...


class FakeResolverSubject:
    def __init__(self, fake: FakeBridge, client: ResolverCalls) -> None:
        self.fake, self.client = fake, client
        fake.add("s1", "vc-a", uid="uid-s1", networks=BLUE)

    async def start(self) -> str:
        latest = self.fake.resolvers.get("uid-s1")
        if latest is None:
            return "no resolver was set"
        if latest.networks not in ((), BLUE):
            return "its resolver is for another network"
        return latest.wait_message

    def file(self) -> str:
        return self.fake.resolv_confs["uid-s1"]


class StartGateSubject:
    def __init__(self, node: GatedNode) -> None:
        self.client: ResolverCalls = node.client
        self.node = node
        self.pod = replace(pod("s1"), labels={keys.ARKTOS_NETWORK: "blue"})
        self.path: Path | None = None

    async def start(self) -> str:
        try:
            (mount,) = (await self.node.start(self.pod)).mounts
        except TtrpcError as error:
            return error.message
        self.path = Path(mount.source)
        assert content(mount)
        return ""

    def file(self) -> str:
        assert self.path is not None
        return self.path.read_text()


ServeSubject = Callable[[Path], AbstractAsyncContextManager[ResolverSubject]]


@asynccontextmanager
async def fake_in_process(_: Path) -> AsyncIterator[ResolverSubject]:
    fake = FakeBridge()
    yield FakeResolverSubject(fake, fake)


@asynccontextmanager
async def fake_over_grpc(directory: Path) -> AsyncIterator[ResolverSubject]:
    fake = FakeBridge()
    await fake.serve(directory / "bridge.sock")
    try:
        async with BridgeClient(directory / "bridge.sock") as client:
            yield FakeResolverSubject(fake, client)
    finally:
        await fake.stop()


@asynccontextmanager
async def kata_bridge(directory: Path) -> AsyncIterator[ResolverSubject]:
    async with gated(directory) as node:
        subject = StartGateSubject(node)
        await node.runtime.run_pod(subject.pod)
        yield subject


@pytest_asyncio.fixture(params=[fake_in_process, fake_over_grpc, kata_bridge], ids=lambda each: each.__name__)
async def subject(request: pytest.FixtureRequest, short_dir: Path) -> AsyncIterator[ResolverSubject]:
    async with request.param(short_dir) as started:
        yield started


async def test_a_resolver_is_applied_once(subject: ResolverSubject) -> None:
    first = await subject.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT, networks=BLUE))
    assert (first.code, await subject.start(), subject.file()) == (APPLIED, "", TEXT)
    again = await subject.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT, networks=BLUE))
    assert again.code is UNCHANGED


async def test_the_latest_request_counts_however_named(subject: ResolverSubject) -> None:
    await subject.client.set_resolv_conf(SetResolvConfRequest("", TEXT, pod_uid="uid-s1", networks=BLUE))
    assert (await subject.start(), subject.file()) == ("", TEXT)
    result = await subject.client.set_resolv_conf(SetResolvConfRequest("s1", OTHER, networks=BLUE))
    assert (result.code, subject.file()) == (APPLIED, OTHER)
    result = await subject.client.set_resolv_conf(
        SetResolvConfRequest("", OTHER, pod_uid="uid-s1", networks=BLUE)
    )
    assert result.code is UNCHANGED


async def test_a_wait_message_blocks_starts_only(subject: ResolverSubject) -> None:
    await subject.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT, networks=BLUE))
    assert await subject.start() == ""
    await subject.client.set_resolv_conf(
        SetResolvConfRequest("s1", OTHER, wait_message="no such network", networks=BLUE)
    )
    assert "no such network" in await subject.start()
    assert subject.file() == OTHER
    await subject.client.set_resolv_conf(
        SetResolvConfRequest("s1", "", wait_message="no such network", networks=BLUE)
    )
    assert subject.file() == OTHER


async def test_an_empty_request_withdraws_the_resolver(subject: ResolverSubject) -> None:
    await subject.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT, networks=BLUE))
    assert await subject.start() == ""
    assert (await subject.client.set_resolv_conf(SetResolvConfRequest("s1", ""))).code is APPLIED
    assert await subject.start() != ""
    assert subject.file() == TEXT
    assert (await subject.client.set_resolv_conf(SetResolvConfRequest("s1", ""))).code is UNCHANGED


async def test_a_resolver_of_another_network_is_not_used(subject: ResolverSubject) -> None:
    await subject.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT, networks=BLUE))
    assert await subject.start() == ""
    await subject.client.set_resolv_conf(SetResolvConfRequest("s1", OTHER, networks=("green",)))
    assert "another network" in await subject.start()
    assert subject.file() == TEXT


async def test_an_unknown_guest_gets_no_resolver(subject: ResolverSubject) -> None:
    assert (
        await subject.client.set_resolv_conf(SetResolvConfRequest("absent", TEXT))
    ).code is ResultCode.GONE
    assert (await subject.client.set_resolv_conf(SetResolvConfRequest("absent", ""))).code is UNCHANGED


@pytest.mark.parametrize("serve", [fake_over_grpc, kata_bridge])
async def test_a_request_names_exactly_one_pod(serve: ServeSubject, short_dir: Path) -> None:
    async with serve(short_dir) as subject:
        for guest, uid in (("", ""), ("s1", "uid-s1")):
            with pytest.raises(BridgeRejectedError):
                await subject.client.set_resolv_conf(SetResolvConfRequest(guest, TEXT, pod_uid=uid))
