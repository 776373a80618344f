# SPDX-License-Identifier: Apache-2.0
"""A service mesh's own rules in a guest: unmarked packets are redirected to its proxy."""

from ruleset.model import Family
from ruleset.names import Backend
from tests.cases.services.filters import KernelFilter
from tests.cases.services.namespace import ThreadedNamespace

PORT = 15001
MARK = 0x539
"""The mark of the proxy's own packets."""

_IPTABLES = """\
*nat
:MESH_OUTPUT - [0:0]
-A OUTPUT -p tcp -j MESH_OUTPUT
-A MESH_OUTPUT -m mark --mark 0x539 -j RETURN
-A MESH_OUTPUT -d {range} -p tcp -j REDIRECT --to-ports 15001
COMMIT
"""
_NFT = """\
table {family} mesh {{
	chain mesh-output {{
		type nat hook output priority -100; policy accept;
		meta mark 0x539 return
		{family} daddr {range} meta l4proto tcp redirect to :15001
	}}
}}
"""


def load(filter_: KernelFilter, guest: ThreadedNamespace, family: Family, service_cidr: str) -> None:
    """Put the mesh's rules for the service range into a guest."""
    template = _NFT if filter_.backend is Backend.NFT else _IPTABLES
    name = "ip6" if family is Family.IPV6 else "ip"
    filter_.load(guest, family, template.format(range=service_cidr, family=name))


def lines(saved: str) -> list[str]:
    """The mesh's lines of a packet filter's own text, in order."""
    if "table " not in saved:
        return [line for line in saved.splitlines() if "MESH_OUTPUT" in line and not line.startswith("[")]
    begin = saved.index(" mesh {")
    return saved[begin : saved.index("\n}", begin)].splitlines()
