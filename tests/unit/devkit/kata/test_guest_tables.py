# SPDX-License-Identifier: Apache-2.0
"""Tables in memory behave as iptables-restore without `--noflush`. tests/lab tests the real one."""

import pytest

from devkit.kata.guest_tables import FakeTables, ToolResult
from ruleset.model import Family
from tests.unit.ruleset.fake_iptables import FakeIptables, RestoreRefusedError

pytestmark = pytest.mark.asyncio

V4 = Family.IPV4


async def restored(tables: FakeTables, text: str, tool: str = "iptables-restore") -> ToolResult:
    return await tables.run(tool, ("--wait", "5"), text.encode())


async def test_a_restored_table_replaces_only_itself() -> None:
    tables = FakeTables()
    await restored(tables, "*nat\n:A - [0:0]\n-A OUTPUT -j A\nCOMMIT\n*filter\n:F - [0:0]\nCOMMIT\n")

    assert await restored(tables, "*nat\n:B - [0:0]\n-A B -j RETURN\nCOMMIT\n") == ToolResult(0)

    assert tables.save(V4) == (
        "*nat\n"
        ":PREROUTING ACCEPT [0:0]\n"
        ":INPUT ACCEPT [0:0]\n"
        ":OUTPUT ACCEPT [0:0]\n"
        ":POSTROUTING ACCEPT [0:0]\n"
        ":B - [0:0]\n"
        "-A B -j RETURN\n"
        "COMMIT\n"
        "*filter\n"
        ":INPUT ACCEPT [0:0]\n"
        ":FORWARD ACCEPT [0:0]\n"
        ":OUTPUT ACCEPT [0:0]\n"
        ":F - [0:0]\n"
        "COMMIT\n"
    )
    assert tables.save(Family.IPV6) == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("*nat\n-A NOPE -j ACCEPT\nCOMMIT\n", 2),
        ("*nope\nCOMMIT\n", 1),
        ("*nat\n:A - [0:0]\n-A A -j NOPE\nCOMMIT\n", 4),
        ("*nat\nwhat is this\nCOMMIT\n", 2),
        ("*nat\n:A - [0:0]\n", 3),
        ("-A OUTPUT -j ACCEPT\n", 1),
    ],
)
async def test_an_invalid_line_changes_nothing(text: str, line: int) -> None:
    tables = FakeTables()
    await restored(tables, "*nat\n:KEPT - [0:0]\nCOMMIT\n")
    before = tables.save(V4)

    assert await restored(tables, text) == ToolResult(1, stderr=f"iptables-restore: line {line} failed\n")
    assert tables.save(V4) == before
    with pytest.raises(RestoreRefusedError):
        FakeIptables().restore(text, noflush=False)


@pytest.mark.parametrize(
    "text",
    [
        "*nat\n:A - [0:0]\n-A OUTPUT -j A\n-A A -j RETURN\nCOMMIT\n",
        "*nat\n:A - [0:0]\n:OUTPUT ACCEPT [0:0]\n-A A -j DNAT --to-destination 10.0.0.2:80\nCOMMIT\n",
        "*nat\nCOMMIT\n*filter\n:F - [0:0]\n-A INPUT -j F\n-A INPUT -j DROP\nCOMMIT\n",
    ],
)
async def test_both_fakes_of_iptables_restore_the_same(text: str) -> None:
    tables, iptables = FakeTables(), FakeIptables()
    for each in ("*nat\n:OLD - [0:0]\n-A OUTPUT -j OLD\nCOMMIT\n*filter\nCOMMIT\n", text):
        assert await restored(tables, each) == ToolResult(0)
        iptables.restore(each, noflush=False)
    found = {
        (table, chain): rules for table, chains in iptables.tables.items() for chain, rules in chains.items()
    }
    assert {each: list(tables.rules(V4, *each)) for each in found} == found
    assert tables.save(V4).count("\n:") == len(found)


async def test_comments_and_an_empty_script_change_nothing() -> None:
    tables = FakeTables()

    assert await restored(tables, "") == await restored(tables, "# nothing\n") == ToolResult(0)
    assert tables.save(V4) == ""


async def test_save_rejects_arguments_of_restore() -> None:
    ended = await restored(FakeTables(), "*nat\nCOMMIT\n", "ip6tables-save")

    assert ended == ToolResult(1, stderr="ip6tables-save: unrecognized option '--wait'\n")


async def test_foreign_changes_appear_in_the_tables() -> None:
    tables = FakeTables()
    await restored(tables, "*nat\n:A - [0:0]\n-A OUTPUT -j A\n-A A -j RETURN\nCOMMIT\n")

    tables.append(V4, "nat", "OUTPUT", "-j ACCEPT")
    assert tables.rules(V4, "nat", "OUTPUT") == ("-j A", "-j ACCEPT")
    tables.flush(V4, "nat", "OUTPUT")
    assert (tables.rules(V4, "nat", "OUTPUT"), tables.rules(V4, "nat", "A")) == ((), ("-j RETURN",))
    tables.flush(V4, "nat")
    assert tables.rules(V4, "nat", "A") == ()
