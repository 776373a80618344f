# SPDX-License-Identifier: Apache-2.0
"""The fake tables and the error table of the stock agent, against the real iptables."""

import re

import pytest

from devkit.kata.guest_tables import FakeTables, IptablesTools, NamespaceTables
from kata_bridge.channels.stock.faults import CallFailedError, Fault, classify
from kata_bridge.ttrpc.status import Code
from tests.lab.namespaces import LabNamespace

pytestmark = pytest.mark.asyncio

_WAIT = ("--wait", "5")

# Each line is one restore; together they show how whole tables are replaced.
HISTORY = [
    "",
    "# nothing\n",
    "*nat\n:A - [0:0]\n:B - [0:0]\n-A OUTPUT -j A\n-A A -j B\n-A B -j RETURN\nCOMMIT\n",
    "*filter\n:F - [0:0]\n-A OUTPUT -j F\nCOMMIT\n",
    "*nat\n:C - [0:0]\n-A OUTPUT -j C\n-A OUTPUT -j C\nCOMMIT\n",
    "*nat\n-A NOPE -j ACCEPT\nCOMMIT\n",
    "*nope\nCOMMIT\n",
    "*nat\n:D - [0:0]\n-A D -j NOPE\nCOMMIT\n",
    "*nat\nwhat is this\nCOMMIT\n",
    "*nat\n:E - [0:0]\n",
    "-A OUTPUT -j ACCEPT\n",
    "*nat\nCOMMIT\n*filter\n:G - [0:0]\n-A G -j DROP\nCOMMIT\n",
    "*nat\n:H - [0:0]\nCOMMIT\n*filter\n-A NOPE -j ACCEPT\nCOMMIT\n",
]


def by_table(save: bytes) -> dict[str, tuple[list[str], list[str]]]:
    """Sorted chains, and rules in order: the order of tables and of chains is undefined.

    Built-in chains are left out, and tables with nothing else: the nft variant does not list those.
    """
    tables: dict[str, tuple[list[str], list[str]]] = {}
    chains: list[str] = []
    rules: list[str] = []
    for line in save.decode().splitlines():
        if line.startswith("*"):
            chains, rules = tables.setdefault(line[1:], ([], []))
        elif line.startswith(":") and " - " in line:
            chains.append(re.sub(r" \[\d+:\d+\]", "", line))
        elif line.startswith("-A"):
            rules.append(line)
    return {name: (sorted(chains), rules) for name, (chains, rules) in tables.items() if chains or rules}


async def saved_tables(tables: IptablesTools) -> dict[str, tuple[list[str], list[str]]]:
    return by_table((await tables.run("iptables-save", (), b"")).stdout)


async def test_fake_tables_equal_the_kernels(tables: NamespaceTables) -> None:
    fake = FakeTables()
    for text in HISTORY:
        real = await tables.run("iptables-restore", _WAIT, text.encode())
        ours = await fake.run("iptables-restore", _WAIT, text.encode())

        assert (real.code == 0) == (ours.code == 0), (text, real)
        if "nope" not in text.partition("\n")[0]:
            assert (await saved_tables(tables)) == (await saved_tables(fake)), text


async def test_save_refuses_the_wait_option(tables: NamespaceTables) -> None:
    ended = await tables.run("ip6tables-save", _WAIT, b"*nat\n:LOST - [0:0]\nCOMMIT\n")

    assert ended.code == 1
    failure = CallFailedError(Code.INTERNAL, f"/usr/sbin/ip6tables-save failed: {ended.stderr}")
    assert classify(failure) is Fault.IPV6_SAVES
    assert b"LOST" not in (await tables.run("ip6tables-save", (), b"")).stdout


@pytest.mark.parametrize(
    "rules",
    [
        "-A VCN-A -d 999.1.1.1 -j RETURN",
        "-A VCN-A -m nosuchmatch -j RETURN",
        "-A VCN-A -j NOSUCHTARGET",
        "-A NOPE -j RETURN",
        "-A VCN-A -p tcp --dport 99999 -j RETURN",
        "-A VCN-A -j VCN-A\n-A OUTPUT -j VCN-A",
    ],
)
async def test_fake_tables_refuse_what_the_kernel_refuses(
    tables: NamespaceTables, guest: LabNamespace, rules: str
) -> None:
    guest.run(f"iptables-{tables.variant}", "-t", "nat", "-N", "KEPT")
    text = f"*nat\n:VCN-A - [0:0]\n{rules}\nCOMMIT\n"

    ended = await tables.run("iptables-restore", _WAIT, text.encode())

    assert ended.code
    failure = CallFailedError(Code.INTERNAL, f"/sbin/iptables-restore failed: {ended.stderr}")
    assert classify(failure) is Fault.RULE, ended.stderr
    assert "KEPT" in (await tables.run("iptables-save", (), b"")).stdout.decode()


async def test_each_iptables_variant_sees_its_own_rules(guest: LabNamespace) -> None:
    legacy, nft = (NamespaceTables(guest.path, name, guest.environment) for name in ("legacy", "nft"))
    await legacy.run("iptables-restore", _WAIT, b"*nat\n:OLD - [0:0]\nCOMMIT\n")
    await nft.run("iptables-restore", _WAIT, b"*nat\n:NEW - [0:0]\nCOMMIT\n")

    assert await saved_tables(legacy) == {"nat": ([":OLD -"], [])}
    assert await saved_tables(nft) == {"nat": ([":NEW -"], [])}
