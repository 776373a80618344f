# SPDX-License-Identifier: Apache-2.0
"""The daemon stays within the README's memory formula, whatever guests send."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from bridge_api.client import BridgeError
from bridge_api.messages import Capabilities, Part
from daemonkit.protobuf import decode, encode
from devkit.kata.fake_agent import AgentQuirks
from devkit.kata.fake_kata import FakeKata
from devkit.kata.guest_tables import FakeTables
from guest_agent.api.messages import (
    AgentHello,
    AgentMessage,
    AgentResult,
    AgentResultCode,
    InstalledParts,
    NodeRequest,
    RulesetState,
)
from kata_bridge.channels.agent.channel import MAX_LINES
from kata_bridge.channels.agent.server import MAX_READING_BACK
from tests.functional.kata_bridge.bridge_process import BridgeNode, bridged, dialled
from tests.waiting import until

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(300)]

# The README's formula: kata_bridge/README.md, "Memory".
BASE_MIB = 64
AGENT_MIB = 0.5
HANDSHAKES_MIB = 16
STOCK_CALL_MIB = 12
PARSING_MIB = 100
READING_BACK_MIB = 250

GUESTS = 8
CONNECTIONS = 64
READING = 4


def formula_mib(
    *, agents: int = 0, stock_calls: int = 0, reading_back: int = 0, parses: bool = False
) -> float:
    return (
        BASE_MIB
        + HANDSHAKES_MIB
        + AGENT_MIB * agents
        + STOCK_CALL_MIB * stock_calls
        + PARSING_MIB * parses
        + READING_BACK_MIB * reading_back
    )


@dataclass(slots=True)
class Peak:
    """The most that the daemon had while something was done."""

    mib: float = 0.0

    async def of(self, node: BridgeNode, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)  # noqa: TID251 - awaited below
        while not task.done():
            self.mib = max(self.mib, node.resident_kib() / 1024)
            await asyncio.sleep(0.02)  # pace: samples
        await task


@asynccontextmanager
async def attached(node: BridgeNode, name: str) -> AsyncIterator[Any]:
    """A guest's stream that was taken."""
    await node.add_pod(name)
    directory = node.directory / "state" / "sandboxes" / name
    await until(directory.is_dir)
    async with dialled(f"127.0.0.1:{node.port}", directory) as call:
        hello = AgentHello("", "1", name, Capabilities(backends=("iptables",), deltas=True), RulesetState())
        await call.write(encode(AgentMessage(hello=hello)))
        yield call


async def test_megabytes_before_a_hello_stay_in_bounds(short_dir: Path) -> None:
    """64 connections of each of 8 guests, 8 MiB on each: it was ten times as large."""
    first = b"\x12\x00" * (4 << 20)
    peak = Peak()

    async def one(directory: Path) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async with dialled(f"127.0.0.1:{node.port}", directory) as call:
                await call.write(first)
                await call.read()

    async with bridged(short_dir) as node:
        directories = []
        for number in range(GUESTS):
            await node.add_pod(f"bad{number}")
            directories.append(short_dir / "state" / "sandboxes" / f"bad{number}")
        await until(lambda: all(each.is_dir() for each in directories))
        await peak.of(node, asyncio.gather(*(one(each) for each in directories for _ in range(CONNECTIONS))))
    assert peak.mib <= formula_mib(agents=GUESTS)


def bomb() -> Part:
    """The largest result of a read-back: as much text and as many rules as allowed."""
    rule = b"-A VCN-A -j " + b"x" * ((46 << 20) // MAX_LINES - 13) + b"\n"
    lines = b"*filter\n:VCN-A - [0:0]\n" + rule * (MAX_LINES - 10) + b"COMMIT\n"
    return Part("ipv4", "iptables", zlib.compress(lines, 1), len(lines))


async def test_large_read_backs_of_all_guests_stay_in_bounds(short_dir: Path) -> None:
    bombs = InstalledParts((bomb(),))
    peak, sizes = Peak(), list[int]()

    async def answer(call: Any) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                question = decode(NodeRequest, await call.read())
                answer = AgentMessage(
                    question.id, result=AgentResult(AgentResultCode.DONE, "", RulesetState())
                )
                if question.read_back is not None:
                    answer = AgentMessage(question.id, installed=bombs)
                await call.write(encode(answer))

    async def read_back(name: str) -> None:
        with suppress(BridgeError):  # one that waited too long for its slot
            reply = await node.client.read_back(name)
            sizes.append(max((part.deflated_from for part in reply.installed), default=0))

    async with bridged(short_dir) as node, AsyncExitStack() as stack:
        calls = [await stack.enter_async_context(attached(node, f"bad{n}")) for n in range(READING)]
        guest_tasks = [asyncio.ensure_future(answer(call)) for call in calls]  # noqa: TID251 - cancelled below
        await peak.of(node, asyncio.gather(*(read_back(f"bad{n}") for n in range(READING))))
        for each in guest_tasks:
            each.cancel()
        await asyncio.gather(*guest_tasks, return_exceptions=True)
    assert max(sizes) > 40 << 20, "none reached the bound"
    assert peak.mib <= formula_mib(agents=READING, parses=True, reading_back=MAX_READING_BACK)


SAVES = {
    "chains": b"*nat\n" + b"".join(b":VCN-%07d\n" % n for n in range(290_000)),
    "rules": b"*nat\n:VCN-A - [0:0]\n" + b"-A VCN-A x\n" * 370_000,
    "wide": b"*nat\n" + "\U0001f600\n".encode() * 800_000,
}


@pytest.mark.parametrize("save", SAVES.values(), ids=SAVES)
async def test_large_saves_of_all_stock_guests_stay_in_bounds(short_dir: Path, save: bytes) -> None:
    peak = Peak()
    rules = [{"handlers": ["kata"], "channels": ["stock"]}]
    stock = {"shimDirectories": [f"{short_dir}/sbs", f"{short_dir}/kata"]}
    async with AsyncExitStack() as stack:
        katas = []
        for number in range(GUESTS):
            kata = FakeKata(
                short_dir, FakeTables(), sandbox_id=f"bad{number}", quirks=AgentQuirks(hostile_save=save)
            )
            katas.append(await stack.enter_async_context(kata))
        node = await stack.enter_async_context(bridged(short_dir, runtimes=rules, stock=stock))

        async def attack() -> None:
            for number in range(GUESTS):
                await node.add_pod(f"bad{number}")
            await until(lambda: min(len(kata.agent.calls) for kata in katas) >= 3, within_s=120)

        await peak.of(node, attack())
    assert peak.mib <= formula_mib(stock_calls=GUESTS, parses=True)
