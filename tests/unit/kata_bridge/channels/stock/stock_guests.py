# SPDX-License-Identifier: Apache-2.0
"""The stock channel to fake table calls, and the values that its tests use."""

from devkit.kata.fake_table_calls import FakeTableCalls
from kata_bridge.channels.stock.calls import FaultError
from kata_bridge.channels.stock.channel import StockChannel
from kata_bridge.channels.stock.faults import Fault
from ruleset.document import make_ruleset
from ruleset.model import Family

V4, V6 = Family.IPV4, Family.IPV6
BOTH = (V4, V6)
EMPTY = make_ruleset(5, ())


MESH = """*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A OUTPUT -d 192.0.2.1/32 -j MARK --set-mark 1
COMMIT
*nat
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
"""


def channel(guest: FakeTableCalls) -> StockChannel:
    return StockChannel("abc", guest)


async def mesh_first() -> FakeTableCalls:
    guest = FakeTableCalls()
    await guest.tables.run("iptables-restore", (), MESH.encode())
    return guest


def fault(kind: Fault, text: str = "why", *, concerns_family: bool = False) -> FaultError:
    return FaultError(kind, text, concerns_family=concerns_family)
