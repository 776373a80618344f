# SPDX-License-Identifier: Apache-2.0
"""Fake `TableCalls` of the stock channel, with faults on demand.

`tests/functional/kata_bridge/channels/stock/test_table_calls_contract.py` runs against it and `StockCalls`.
"""

from dataclasses import dataclass, field

from devkit.kata.guest_tables import FakeTables
from ruleset.model import Family


@dataclass
class FakeTableCalls:
    """The table calls of a guest with fake iptables.

    `fails` are raised by call and family. Pushes of the families in `losing` have no effect.
    """

    tables: FakeTables = field(default_factory=FakeTables)
    pushes: list[tuple[Family, str]] = field(default_factory=list)
    reads: list[Family] = field(default_factory=list)
    fails: dict[tuple[str, Family], Exception] = field(default_factory=dict)
    is_save_failing: bool = False
    losing: set[Family] = field(default_factory=set)
    released: int = 0
    route: str = "shim"

    async def read(self, family: Family) -> str:
        self._fail("read", family)
        self.reads.append(family)
        return "" if self.is_save_failing else self.tables.save(family)

    async def push(self, family: Family, text: str) -> None:
        self._fail("push", family)
        self.pushes.append((family, text))
        if family in self.losing:
            return
        tool = "ip6tables-restore" if family is Family.IPV6 else "iptables-restore"
        ended = await self.tables.run(tool, (), text.encode())
        if ended.code:
            raise AssertionError(ended.stderr)

    def release(self) -> None:
        self.released += 1

    async def version(self) -> str:
        return "3.4.0"

    def _fail(self, what: str, family: Family) -> None:
        if error := self.fails.get((what, family)):
            raise error
