# SPDX-License-Identifier: Apache-2.0
"""The client of a stock agent against the fake one, by its socket and by hybrid vsock."""

import asyncio
import socket
from pathlib import Path

import pytest

from devkit.kata.agent_policy import OPENED_POLICY, STOCK_POLICY, PolicyEngine, parse
from devkit.kata.fake_agent import IMAGE, MISSPELT, AgentQuirks, FakeAgent
from devkit.kata.fake_kata import FakeKata
from devkit.kata.guest_tables import FakeTables
from devkit.kata.listener import Listener
from kata_bridge.channels.stock.agent_client import StockAgentClient
from kata_bridge.channels.stock.faults import CallFailedError, NoAnswerError
from kata_bridge.ttrpc.status import Code
from ruleset.model import Family

pytestmark = pytest.mark.asyncio

V4, V6 = Family.IPV4, Family.IPV6
_SHORT_S = 0.3
NAT = b"*nat\n:VCN-X - [0:0]\nCOMMIT\n"


@pytest.mark.parametrize("is_hybrid", [False, True])
async def test_each_call_of_the_agent(short_dir: Path, *, is_hybrid: bool) -> None:
    quirks = AgentQuirks(policy=parse(OPENED_POLICY))
    async with FakeKata(short_dir, FakeTables(), quirks=quirks, is_hybrid=is_hybrid) as kata:
        agent = StockAgentClient(kata.shim.url)

        assert await agent.version() == "3.32.0"
        assert await agent.get_tables(V6) == b""
        for family in (V4, V6):
            await agent.set_tables(family, NAT)
            assert b":VCN-X - [0:0]\n" in await agent.get_tables(family)
        await agent.set_policy(STOCK_POLICY)
        assert kata.vmm.connects == [1024] * 7 * is_hybrid


async def test_agent_on_an_abstract_socket(short_dir: Path) -> None:
    name = f"\0{short_dir}/agent"
    async with FakeAgent(short_dir / "agent", FakeTables()) as real:
        # The fake listens on a path; this forwards the abstract name to it.
        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inner, outer = await asyncio.open_unix_connection(real.path)
            outer.write(await reader.read(4096))
            writer.write(await inner.read(4096))
            outer.close()

        listener = socket.socket(socket.AF_UNIX)
        listener.bind(name)
        served = Listener(short_dir / "unused", forward)
        await served.start_on(listener)
        assert await StockAgentClient(f"unix://@{short_dir}/agent").version() == "3.32.0"
        await served.stop()


ERRORS = [
    (AgentQuirks(has_iptables_calls=False), Code.UNIMPLEMENTED, "SetIPTables method"),
    (
        AgentQuirks(allowed_endpoints=frozenset({"GetIPTablesRequest"})),
        Code.UNIMPLEMENTED,
        "SetIPTablesRequest is blocked",
    ),
    (
        AgentQuirks(policy=parse(STOCK_POLICY)),
        Code.INTERNAL,
        "SetIPTablesRequest: internal error policy check: unexpected eval_query result len 0",
    ),
    (
        AgentQuirks(policy=parse(STOCK_POLICY, PolicyEngine.OPA)),
        Code.PERMISSION_DENIED,
        "SetIPTablesRequest is blocked by policy: ",
    ),
    (
        AgentQuirks(policy=parse(STOCK_POLICY + "default SetIPTablesRequest := false\n")),
        Code.PERMISSION_DENIED,
        "SetIPTablesRequest is blocked by policy: ",
    ),
    (AgentQuirks(files=frozenset()), Code.INTERNAL, "No such file or directory (os error 2)"),
    (
        AgentQuirks(has_nf_tables=False),
        Code.INTERNAL,
        "/usr/sbin/ip6tables-restore failed: ip6tables-restore v1.8.7 (nf_tables): "
        "Could not fetch rule set generation id: Invalid argument\n",
    ),
    (
        AgentQuirks(paths=MISSPELT),
        Code.INTERNAL,
        "/usr/sbin/ip6tables-save failed: ip6tables-save: unrecognized option '--wait'\n",
    ),
    (AgentQuirks(is_stdin_stuck=True), Code.INTERNAL, "timeout waiting for stdin writer to complete"),
]


@pytest.mark.parametrize(("quirks", "code", "text"), ERRORS, ids=lambda value: getattr(value, "name", None))
async def test_error_has_code_and_text(short_dir: Path, quirks: AgentQuirks, code: Code, text: str) -> None:
    async with FakeAgent(short_dir / "agent", FakeTables(), quirks) as agent:
        with pytest.raises(CallFailedError) as caught:
            await StockAgentClient(agent.url).set_tables(V6, NAT)

    assert (caught.value.code, caught.value.text) == (code, text)


async def test_misspelt_path_works_for_ipv4_with_merged_usr(short_dir: Path) -> None:
    async with FakeAgent(short_dir / "agent", FakeTables(), AgentQuirks(paths=MISSPELT)) as agent:
        await StockAgentClient(agent.url).set_tables(V4, NAT)
        agent.quirks.files = frozenset(path for path in IMAGE if path.startswith("/usr"))
        with pytest.raises(CallFailedError, match="No such file or directory"):
            await StockAgentClient(agent.url).set_tables(V4, NAT)


async def test_call_larger_than_a_frame_is_not_sent(short_dir: Path) -> None:
    async with FakeAgent(short_dir / "agent", FakeTables()) as agent:
        with pytest.raises(CallFailedError) as caught:
            await StockAgentClient(agent.url).set_tables(V4, b"#" * (4 << 20))

        assert (caught.value.code, agent.calls) == (Code.RESOURCE_EXHAUSTED, [])


async def test_unanswered_call_to_the_agent_may_run(short_dir: Path) -> None:
    async with FakeAgent(short_dir / "agent", FakeTables(), AgentQuirks(is_mute=True)) as agent:
        with pytest.raises(NoAnswerError, match=r"no answer to SetIPTables within 0.3 s") as caught:
            await StockAgentClient(agent.url, timeout_s=_SHORT_S).set_tables(V4, NAT)

    assert caught.value.may_run


async def test_broken_connection_raises_no_answer(short_dir: Path) -> None:
    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    listener = Listener(short_dir / "agent", serve)
    await listener.start()
    with pytest.raises(NoAnswerError, match=r"unix:///.*/agent: .+"):
        await StockAgentClient(f"unix://{short_dir}/agent").version()
    await listener.stop()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("unix://{short_dir}/nobody", "No such file or directory"),
        ("hvsock://{short_dir}/nobody:1024", "No such file or directory"),
    ],
)
async def test_missing_agent_raises_no_answer(short_dir: Path, url: str, why: str) -> None:
    with pytest.raises(NoAnswerError, match=why):
        await StockAgentClient(url.format(short_dir=short_dir)).version()


async def test_unknown_cid_raises_no_answer() -> None:
    # No guest has CID 4294967294; a kernel without vsock has another error.
    with pytest.raises(NoAnswerError, match=r"vsock://4294967294:1024: \w+"):
        await StockAgentClient("vsock://4294967294:1024", timeout_s=_SHORT_S).version()
