# SPDX-License-Identifier: Apache-2.0
"""The kernel's packet filters meet the same contract as the fake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from guest_agent.core.packet_filter import FilterKey
from guest_agent.kernel.kernel_packet_filter import KernelPacketFilter
from guest_agent.kernel.netfilter_socket import NetfilterSocket
from ruleset.model import Family
from ruleset.names import Backend
from tests.lab.guest_agent.tools import IPTABLES_NFT, LEGACY, NFT
from tests.lab.namespaces import Lab, LabNamespace
from tests.packet_filter_contract import PacketFilterContract

T = TypeVar("T")


class KernelFilterSubject:
    """The packet filter of a namespace in which `tool` is in use."""

    def __init__(self, namespace: LabNamespace, family: Family, tool: str, *, keep_process: bool) -> None:
        self._namespace = namespace
        self._tool = tool if family is Family.IPV4 else tool.replace("iptables", "ip6tables")
        self._table = ("ip" if family is Family.IPV4 else "ip6", "vcnode")
        self.key: FilterKey = (family, Backend.NFT if tool == NFT else Backend.IPTABLES)
        if tool != NFT:
            # The agent uses the variant that has rules.
            namespace.run(tool, "-t", "nat", "-A", "OUTPUT", "-d", "192.0.2.1", "-j", "ACCEPT")
        self._netfilter = self.call(NetfilterSocket)
        self.packet_filter = self.call(lambda: KernelPacketFilter(self._netfilter, keep_process=keep_process))

    def close(self) -> None:
        self.packet_filter.close()
        self._netfilter.close()

    def call(self, function: Callable[[], T]) -> T:
        return self._namespace.inside(function)

    def flush_ours(self) -> None:
        if self._tool == NFT:
            self._namespace.run(NFT, "flush", "chain", *self._table, "nat-output")
        else:
            self._namespace.run(self._tool, "-t", "nat", "-F", "VCN-SERVICES")

    def add_theirs(self) -> None:
        tool = IPTABLES_NFT if self._tool == NFT else self._tool
        self._namespace.run(tool, "-t", "nat", "-A", "PREROUTING", "-j", "RETURN")


@pytest.mark.parametrize("family", list(Family), ids=lambda family: family.value)
@pytest.mark.parametrize(
    ("tool", "keep_process"),
    [(LEGACY, True), (LEGACY, False), (IPTABLES_NFT, False), (NFT, False)],
    ids=["legacy, kept", "legacy", "iptables-nft", "nft"],
)
class TestKernelPacketFilter(PacketFilterContract):
    @pytest.fixture
    def subject(
        self, lab: Lab, family: Family, tool: str, keep_process: bool
    ) -> Iterator[KernelFilterSubject]:
        made = KernelFilterSubject(lab.namespace("sb"), family, tool, keep_process=keep_process)
        yield made
        made.close()
