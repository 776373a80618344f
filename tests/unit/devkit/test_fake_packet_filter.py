# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import TypeVar

import pytest

from devkit.fake_packet_filter import FakePacketFilter
from ruleset.model import Family
from ruleset.names import Backend
from tests.packet_filter_contract import PacketFilterContract

T = TypeVar("T")


class FakeFilterSubject:
    def __init__(self, family: Family) -> None:
        self.packet_filter = FakePacketFilter()
        self.key = (family, Backend.IPTABLES)

    @property
    def _nat(self) -> dict[str, list[str]]:
        return self.packet_filter.iptables[self.key[0]].tables["nat"]

    def call(self, function: Callable[[], T]) -> T:
        return function()

    def flush_ours(self) -> None:
        self._nat["VCN-SERVICES"].clear()

    def add_theirs(self) -> None:
        self._nat["PREROUTING"].append("-j RETURN")


class TestFakePacketFilter(PacketFilterContract):
    @pytest.fixture(params=list(Family), ids=lambda family: family.value)
    def subject(self, request: pytest.FixtureRequest) -> FakeFilterSubject:
        return FakeFilterSubject(request.param)
