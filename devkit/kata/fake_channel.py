# SPDX-License-Identifier: Apache-2.0
"""A fake channel, with its guest in memory.

`tests/functional/kata_bridge/channels/test_channel_contract.py` runs against it, the stock channel and the
agent's.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from bridge_api.messages import Capabilities, Flow
from kata_bridge.channels.port import Channel, GuestRefused, GuestState, NeedsFull, NotInjectable, Unreachable
from kata_bridge.sandboxes.core.sandbox import Sandbox
from ruleset.delta import RulesetDelta, apply_delta
from ruleset.document import Document, Ruleset


@dataclass
class FakeChannel:
    """A guest that holds `ruleset`. Tests change it as a program in the guest would.

    `calls` are the names of all calls, `applied` what they applied. A call takes `delay_s`, and waits for
    `blocker`.
    """

    ruleset: Ruleset | None = None
    has_drifted: bool = False
    is_reachable: bool = True
    refused_digests: set[str] = field(default_factory=set)
    delay_s: float = 0.0
    calls: list[str] = field(default_factory=list)
    applied: list[Ruleset | RulesetDelta] = field(default_factory=list)
    flushed: list[Flow] = field(default_factory=list)
    resolv_conf: str = ""
    blocker: asyncio.Event | None = None
    _is_in_flight: bool = False

    async def probe(self) -> Capabilities:
        await self._call("probe")
        return Capabilities("fake", ("iptables",), deltas=True, conntrack=True, resolv_conf=True)

    async def state(self) -> GuestState:
        await self._call("state")
        return self._state()

    async def apply(self, ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow]) -> GuestState:
        await self._call("apply")
        if ruleset.digest in self.refused_digests:
            raise GuestRefused("line 2: -j NOPE")
        if self.ruleset is not None and self.ruleset.digest == ruleset.digest and not self.has_drifted:
            return self._state()
        if isinstance(ruleset, Ruleset):
            self.ruleset = ruleset
        elif self.ruleset is None or self.ruleset.digest != ruleset.base_digest:
            raise NeedsFull("the guest holds another ruleset than the delta's base")
        else:
            self.ruleset = apply_delta(self.ruleset, ruleset)
        self.has_drifted = False
        self.applied.append(ruleset)
        self.flushed += flush
        return self._state()

    async def read_back(self) -> tuple[Document, ...]:
        await self._call("read_back")
        return () if self.ruleset is None else self.ruleset.documents

    async def flush_conntrack(self, flows: Sequence[Flow]) -> None:
        await self._call("flush")
        self.flushed += flows

    async def set_resolv_conf(self, text: str) -> None:
        await self._call("resolv_conf")
        self.resolv_conf = text

    async def close(self) -> None:
        pass

    async def _call(self, name: str) -> None:
        self.calls.append(name)
        if self._is_in_flight:
            raise AssertionError(f"{name} overlaps another call: {self.calls}")
        self._is_in_flight = True
        try:
            await asyncio.sleep(self.delay_s)
            if self.blocker is not None:
                await self.blocker.wait()
        finally:
            self._is_in_flight = False
        if not self.is_reachable:
            raise Unreachable("the fake guest is unreachable")

    def _state(self) -> GuestState:
        if self.ruleset is None:
            return GuestState(0, "", self.has_drifted)
        return GuestState(self.ruleset.generation, self.ruleset.digest, self.has_drifted)


class FakeChannelProvider:
    """Fake channels by sandbox id, made at the first use. With `error` none opens."""

    def __init__(self, error: Unreachable | NotInjectable | None = None) -> None:
        self.error = error
        self.channels: dict[str, FakeChannel] = {}

    async def open(self, sandbox: Sandbox) -> Channel:
        if self.error is not None:
            raise self.error
        return self.channels.setdefault(sandbox.id, FakeChannel())

    async def forget(self, sandbox: str) -> None:
        self.channels.pop(sandbox, None)
