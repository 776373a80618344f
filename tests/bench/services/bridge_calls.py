# SPDX-License-Identifier: Apache-2.0
"""Calls to kata-bridge: drift checks, and the sizes of rulesets and their deltas."""

import asyncio
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge_api import messages, rulesets
from bridge_api.client import BridgeClient
from bridge_api.messages import ResultCode
from daemonkit.protobuf import encode
from ruleset.delta import difference
from ruleset.document import Ruleset, make_ruleset
from ruleset.names import Backend
from tests.bench.processes import RunError


@dataclass(frozen=True, slots=True)
class Size:
    """Rules of the nat table (iptables alone); bytes of the text, of that deflated, of the message."""

    rules: int
    text_bytes: int
    deflated_bytes: int
    message_bytes: int


def check_drift(socket: Path, count: int, times: int) -> list[float]:
    """Milliseconds of each check of all guests; RunError unless there are `count`."""
    return asyncio.run(_check_drift(socket, count, times))


async def _check_drift(socket: Path, count: int, times: int) -> list[float]:
    took_ms = []
    async with BridgeClient(socket) as client:
        for number in range(times + 1):
            begun_s = time.monotonic()
            results = [result async for result in client.check_drift()]
            if number:  # the first one connects
                took_ms.append((time.monotonic() - begun_s) * 1e3)
            if len(results) != count or any(each.code is not ResultCode.APPLIED for each in results):
                raise RunError(f"drift check: {results[:3]}")
            # Separate checks: one right after another would include work that the first one caused in the
            # guests.
            await asyncio.sleep(0.02)
    return took_ms


def dump_all(socket: Path, guests: Sequence[str], times: int) -> list[float]:
    """Milliseconds until all of these guests have returned every installed rule."""
    return asyncio.run(_dump_all(socket, guests, times))


async def _dump_all(socket: Path, guests: Sequence[str], times: int) -> list[float]:
    took_ms = []
    async with BridgeClient(socket) as client:
        for number in range(times + 1):
            begun_s = time.monotonic()
            replies = await asyncio.gather(*(client.read_back(guest) for guest in guests))
            if number:  # the first one connects
                took_ms.append((time.monotonic() - begun_s) * 1e3)
            if not all(reply.installed for reply in replies):
                raise RunError("a guest returned no rules")
    return took_ms


def desired(socket: Path, guest: str) -> Ruleset:
    """The guest's desired ruleset."""
    reply = asyncio.run(_read_back(socket, guest))
    return make_ruleset(0, [rulesets.from_part(part) for part in reply.desired])


async def _read_back(socket: Path, guest: str) -> messages.ReadBackReply:
    async with BridgeClient(socket) as client:
        return await client.read_back(guest)


def size(ruleset: Ruleset) -> Size:
    text = "".join(document.text() for document in ruleset.documents)
    nat = [
        rule
        for document in ruleset.documents
        if document.backend is Backend.IPTABLES
        for name, lines in document.objects.items()
        if name.startswith("nat/VCN-")
        for rule in lines
    ]
    return Size(
        len(nat),
        len(text.encode()),
        len(zlib.compress(text.encode(), 1)),
        len(encode(rulesets.to_message(ruleset))),
    )


def delta_bytes(old: Ruleset, new: Ruleset) -> int:
    """Bytes of the delta message from `old` to `new`."""
    delta = difference(old, new)
    if delta is None:
        raise RunError("a change without an effect")
    return len(encode(rulesets.to_message(delta)))
