# SPDX-License-Identifier: Apache-2.0
"""Fake table calls of a stock guest, with faults on demand, and the channel to one."""

from dataclasses import dataclass, field

from devkit.kata.guest_tables import FakeTables
from kata_bridge.channels.stock.calls import FaultError
from kata_bridge.channels.stock.channel import StockChannel
from kata_bridge.channels.stock.faults import Fault
from ruleset.document import make_ruleset
from ruleset.model import Family

V4, V6 = Family.IPV4, Family.IPV6
BOTH = (V4, V6)
EMPTY = make_ruleset(5, ())


MESH = """*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
-A OUTPUT -p tcp -j ISTIO_OUTPUT
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A OUTPUT -d 192.0.2.1/32 -j MARK --set-mark 1
COMMIT
"""


@dataclass
class FakeTableCalls:
    """The table calls of a guest with fake iptables. `fails` are raised by call and family."""

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
        tool = "ip6tables-restore" if family is V6 else "iptables-restore"
        ended = await self.tables.run(tool, (), text.encode())
        assert ended.code == 0, ended.stderr

    def release(self) -> None:
        self.released += 1

    async def version(self) -> str:
        return "3.4.0"

    def _fail(self, what: str, family: Family) -> None:
        if error := self.fails.get((what, family)):
            raise error


def channel(guest: FakeTableCalls) -> StockChannel:
    return StockChannel("abc", guest)


async def mesh_first() -> FakeTableCalls:
    guest = FakeTableCalls()
    await guest.tables.run("iptables-restore", (), MESH.encode())
    return guest


def fault(kind: Fault, text: str = "why", *, concerns_family: bool = False) -> FaultError:
    return FaultError(kind, text, concerns_family=concerns_family)
