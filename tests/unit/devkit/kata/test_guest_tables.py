# SPDX-License-Identifier: Apache-2.0
import pytest

from devkit.kata.guest_tables import FakeTables
from ruleset.model import Family
from tests.iptables_contract import IptablesContract

V4 = Family.IPV4


class TestFakeTables(IptablesContract):
    @pytest.fixture
    def tables(self) -> FakeTables:
        return FakeTables()


@pytest.mark.asyncio
async def test_foreign_changes_appear_in_the_tables() -> None:
    tables = FakeTables()
    await tables.run("iptables-restore", (), b"*nat\n:A - [0:0]\n-A OUTPUT -j A\n-A A -j RETURN\nCOMMIT\n")

    tables.append(V4, "nat", "OUTPUT", "-j ACCEPT")
    assert tables.rules(V4, "nat", "OUTPUT") == ("-j A", "-j ACCEPT")
    tables.flush(V4, "nat", "OUTPUT")
    assert (tables.rules(V4, "nat", "OUTPUT"), tables.rules(V4, "nat", "A")) == ((), ("-j RETURN",))
    tables.flush(V4, "nat")
    assert tables.rules(V4, "nat", "A") == ()
