# SPDX-License-Identifier: Apache-2.0
"""The contract of fake iptables, and the error table of the stock agent, against the real iptables."""

import pytest

from devkit.kata.guest_tables import NamespaceTables
from kata_bridge.channels.stock.faults import CallFailedError, Fault, classify
from kata_bridge.ttrpc.status import Code
from tests.iptables_contract import IptablesContract, saved_tables
from tests.lab.namespaces import LabNamespace

pytestmark = pytest.mark.asyncio

_WAIT = ("--wait", "5")


class TestNamespaceTables(IptablesContract):
    """With the fixture `tables`."""


async def test_save_refuses_the_wait_option(tables: NamespaceTables) -> None:
    ended = await tables.run("ip6tables-save", _WAIT, b"*nat\n:LOST - [0:0]\nCOMMIT\n")

    assert ended.code == 1
    failure = CallFailedError(Code.INTERNAL, f"/usr/sbin/ip6tables-save failed: {ended.stderr}")
    assert classify(failure) is Fault.IPV6_SAVES


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
async def test_refused_rules_are_classified(tables: NamespaceTables, guest: LabNamespace, rules: str) -> None:
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

    assert await saved_tables(legacy) == {"nat": {"OLD": []}}
    assert await saved_tables(nft) == {"nat": {"NEW": []}}
