# SPDX-License-Identifier: Apache-2.0
"""What a guest's iptables does: holds for the fake (unit) and for the real tools (lab)."""

import re

import pytest

from devkit.kata.guest_tables import IptablesTools

# Rules by table and chain.
SavedTables = dict[str, dict[str, list[str]]]

_NAT = {"OUTPUT": ["-j A"], "A": ["-j B"], "B": ["-j RETURN"]}
_FILTER = {"OUTPUT": ["-j F"], "F": list[str]()}
_BASE = (
    "*nat\n:A - [0:0]\n:B - [0:0]\n-A OUTPUT -j A\n-A A -j B\n-A B -j RETURN\nCOMMIT\n"
    "*filter\n:F - [0:0]\n-A OUTPUT -j F\nCOMMIT\n"
)
_LONGEST = "N" * 28
_WHOLE, _NOFLUSH = ("--wait", "5"), ("--wait", "5", "--noflush")


async def saved_tables(tables: IptablesTools, tool: str = "iptables-save") -> SavedTables:
    """Without empty built-in chains, and tables with nothing else: some variants do not list those."""
    found: SavedTables = {}
    for line in (await tables.run(tool, (), b"")).stdout.decode().splitlines():
        if line.startswith("*"):
            chains = found[line[1:]] = {}
        elif declared := re.match(r":(\S+) - ", line):
            chains[declared[1]] = []
        elif line.startswith("-A "):
            _, chain, rule = line.split(" ", 2)
            chains.setdefault(chain, []).append(rule)
    return {name: chains for name, chains in found.items() if chains}


@pytest.mark.asyncio
class IptablesContract:
    """Subclasses have a fixture `tables`: fresh iptables."""

    async def test_a_fresh_guest_has_no_rules(self, tables: IptablesTools) -> None:
        assert await saved_tables(tables) == await saved_tables(tables, "ip6tables-save") == {}

    @pytest.mark.parametrize(
        ("arguments", "text", "expected"),
        [
            (_WHOLE, "", {}),
            (_WHOLE, "# nothing\n", {}),
            (_WHOLE, "*nat\n:C - [0:0]\n-A C -j RETURN\nCOMMIT\n", {"nat": {"C": ["-j RETURN"]}}),
            (
                _WHOLE,
                "*nat\n:C - [0:0]\nCOMMIT\n*filter\n-A INPUT -j DROP\nCOMMIT\n",
                {"nat": {"C": []}, "filter": {"INPUT": ["-j DROP"]}},
            ),
            (_NOFLUSH, "*nat\nCOMMIT\n", {}),
            (_NOFLUSH, "*nat\n:OUTPUT ACCEPT [0:0]\n:B - [0:0]\nCOMMIT\n", {"nat": {**_NAT, "B": []}}),
            (_NOFLUSH, "*nat\n-A A -j RETURN\nCOMMIT\n", {"nat": {**_NAT, "A": ["-j B", "-j RETURN"]}}),
            (
                _NOFLUSH,
                "*nat\n-A B -m statistic --mode random --probability 0.3333333333 -j ACCEPT\nCOMMIT\n",
                {
                    "nat": {
                        **_NAT,
                        "B": [
                            "-j RETURN",
                            "-m statistic --mode random --probability 0.33333333349 -j ACCEPT",
                        ],
                    }
                },
            ),
            (_NOFLUSH, "*nat\n-D A -j B\n:B - [0:0]\n-X B\nCOMMIT\n", {"nat": {"OUTPUT": ["-j A"], "A": []}}),
            (_NOFLUSH, f"*filter\n:{_LONGEST} - [0:0]\nCOMMIT\n", {"filter": {**_FILTER, _LONGEST: []}}),
        ],
    )
    async def test_a_restore_changes_the_named_tables(
        self, tables: IptablesTools, arguments: tuple[str, ...], text: str, expected: SavedTables
    ) -> None:
        await tables.run("iptables-restore", _WHOLE, _BASE.encode())
        assert (await tables.run("iptables-restore", arguments, text.encode())).code == 0
        assert await saved_tables(tables) == {"nat": _NAT, "filter": _FILTER} | expected
        assert await saved_tables(tables, "ip6tables-save") == {}

    @pytest.mark.parametrize("arguments", [_WHOLE, _NOFLUSH], ids=["whole", "noflush"])
    @pytest.mark.parametrize(
        "text",
        [
            "*nat\n-A NOPE -j ACCEPT\nCOMMIT\n",
            "*nat\n:C - [0:0]\n-A C -j NOPE\nCOMMIT\n",
            "*nat\nwhat is this\nCOMMIT\n",
            "*nat\n:C - [0:0]\n",
            "-A OUTPUT -j ACCEPT\n",
            "*nat\n-D OUTPUT -j RETURN\nCOMMIT\n",
            "*nat\n-X NOPE\nCOMMIT\n",
            f"*nat\n:{_LONGEST}N - [0:0]\nCOMMIT\n",
            "*nat\n:C - [0:0]\n-A C -j RETURN\n-X C\nCOMMIT\n",
            "*nat\n:C - [0:0]\n-A OUTPUT -j C\n-X C\nCOMMIT\n",
        ],
    )
    async def test_a_refused_table_keeps_its_rules(
        self, tables: IptablesTools, arguments: tuple[str, ...], text: str
    ) -> None:
        await tables.run("iptables-restore", _WHOLE, _BASE.encode())
        done = "*filter\n:G - [0:0]\nCOMMIT\n"
        assert (await tables.run("iptables-restore", arguments, (done + text).encode())).code
        after = await saved_tables(tables)
        assert after["nat"] == _NAT
        assert "G" in after["filter"], "the table before it is changed"

    async def test_an_unknown_table_is_refused(self, tables: IptablesTools) -> None:
        assert (await tables.run("iptables-restore", _WHOLE, b"*nope\nCOMMIT\n")).code

    async def test_families_have_rules_of_their_own(self, tables: IptablesTools) -> None:
        await tables.run("ip6tables-restore", _WHOLE, b"*nat\n:SIX - [0:0]\nCOMMIT\n")
        assert await saved_tables(tables) == {}
        assert await saved_tables(tables, "ip6tables-save") == {"nat": {"SIX": []}}

    async def test_save_refuses_arguments_of_restore(self, tables: IptablesTools) -> None:
        assert (await tables.run("ip6tables-save", _WHOLE, b"*nat\n:LOST - [0:0]\nCOMMIT\n")).code == 1
        assert await saved_tables(tables, "ip6tables-save") == {}
