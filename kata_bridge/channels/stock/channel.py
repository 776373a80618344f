# SPDX-License-Identifier: Apache-2.0
"""The channel to a guest of stock Kata: HTTP to its shim, or ttrpc to its agent.

Stock Kata has two calls for each family (docs/spec/kata.md#agent): print all tables, and replace the tables
of a text. So this channel reads the tables, replaces our chains in the text, pushes it, and reads again: only
what a guest prints afterwards counts. A program in the guest that writes in between loses what it wrote; the
drift check finds what it did to ours.

Stock Kata has no deltas, no conntrack, no resolv.conf, and no nft syntax.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bridge_api.messages import Capabilities, Flow
from daemonkit import logs
from kata_bridge import off_loop
from kata_bridge.channels.port import GuestRefused, GuestState, NeedsFull, NotInjectable, Unreachable
from kata_bridge.channels.stock.agent_client import TIMEOUT_S
from kata_bridge.channels.stock.calls import FaultError, StockCalls
from kata_bridge.channels.stock.faults import Fault, NoAnswerError
from kata_bridge.channels.stock.shim import ROOTS
from ruleset.delta import RulesetDelta
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.installed.rules import InstalledRules, read_installed, state_digest
from ruleset.model import Family
from ruleset.names import MARKER_PREFIX, Backend
from ruleset.restore.whole_tables import RulesetTooLarge, whole_tables

# Both shims give their agent 60 s, and the agent gives iptables-restore no limit. An unanswered push may take
# effect until then, and two at once must not run.
PUSH_HOLD_S = 60.0

# Changes nothing, yet the agent checks its policy and runs the binary.
_NO_OP = "# is iptables-restore available\n"

# An empty chain that stays while the guest has no IPv6 rules of ours. Printed back, it proves, also after a
# restart, that the guest takes IPv6 rules.
_PROOF = "nat/VCN-PROOF"

_NO_IPV6_ADDRESS = "its pod has no IPv6 address"

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class _Printed:
    """Our rules in the text that a guest printed, and its length: parsing takes time in proportion."""

    rules: InstalledRules
    size: int


@dataclass(frozen=True, slots=True)
class _Applied:
    """The ruleset applied last, and by family the digest of what the guest printed right after."""

    ruleset: Ruleset
    printed: Mapping[Family, str]

    def is_as_printed(self, rules: InstalledRules) -> bool:
        return state_digest([rules]) == self.printed.get(rules.family)


class TableCalls(Protocol):
    """The part of `StockCalls` that this channel uses."""

    @property
    def route(self) -> str: ...

    async def read(self, family: Family) -> str: ...

    async def push(self, family: Family, text: str) -> None: ...

    def release(self) -> None: ...

    async def version(self) -> str: ...


def stock_channel(
    sandbox_id: str,
    *,
    roots: Sequence[Path] = ROOTS,
    timeout_s: float = TIMEOUT_S,
    hold_s: float = PUSH_HOLD_S,
    policy: str | None = None,
    has_ipv6: bool = True,
) -> "StockChannel":
    """Return the channel to the guest of a sandbox, whose shim has its socket below one of `roots`.

    `policy` is the whole policy for an agent that refuses the iptables calls; None keeps the agent's. Check
    `Sandbox.agent_policy_lock` before passing one. `has_ipv6` is false for a pod that is known to have no
    IPv6 address. Raises `ValueError` for an invalid sandbox id.
    """
    calls = StockCalls(sandbox_id, roots=roots, timeout_s=timeout_s, hold_s=hold_s, policy=policy)
    return StockChannel(sandbox_id, calls, has_ipv6=has_ipv6)


class StockChannel:
    """One guest of stock Kata, as a `port.Channel`."""

    def __init__(self, sandbox_id: str, calls: TableCalls, *, has_ipv6: bool = True) -> None:
        self._sandbox_id = sandbox_id
        self._calls = calls
        self._has_ipv6 = has_ipv6
        self._applied: _Applied | None = None
        # Why the guest takes no IPv6 rules; empty if it does, None until probed.
        self.ipv6_problem: str | None = None

    async def probe(self) -> Capabilities:
        """Find out whether the guest takes rules, and IPv6 rules. Changes no IPv4 rules.

        IPv6 works if a pushed chain is printed again: agents from 3.1 to 2026-09 run the wrong program for
        it, and kernels before the end of 2025 lack IPv6 nat. A guest without an IPv6 address is not probed
        for it, which saves five processes between its start and its rules.
        """
        printed = await self._read_rules(Family.IPV4)
        if printed.rules.is_empty:
            await self._push(Family.IPV4, _NO_OP)
        before, self.ipv6_problem = self.ipv6_problem, await self._find_ipv6_problem()
        if self._has_ipv6 and self.ipv6_problem and self.ipv6_problem != before:
            _log.warning("guest takes no IPv6 rules", sandbox=self._sandbox_id, reason=self.ipv6_problem)
        return Capabilities(
            channel=self._calls.route,
            backends=(Backend.IPTABLES.value,),
            ipv6=not self.ipv6_problem,
            ipv6_message=self.ipv6_problem or "",
            version=await self._calls.version(),
        )

    async def state(self) -> GuestState:
        """Read what the guest holds, also where an earlier run of kata-bridge has applied it."""
        await self._ensure_probed()
        families = [Family.IPV4]
        applied = self._applied
        if not self.ipv6_problem and (applied is None or _has_ipv6(applied.ruleset)):
            families.append(Family.IPV6)
        printed = [await self._read_rules(family) for family in families]
        size = sum(each.size for each in printed)
        return await off_loop.run(size, self._state_of, [each.rules for each in printed])

    async def apply(self, ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow]) -> GuestState:
        """Apply `ruleset` family by family, where the guest does not hold it already. Flushes nothing."""
        if isinstance(ruleset, RulesetDelta):
            raise NeedsFull("stock Kata replaces whole tables")
        await self._ensure_probed()
        digests: dict[Family, str] = {}
        for document in self._documents(ruleset):
            printed = await self._apply_document(
                document, "" if _PROOF in document.objects else ruleset.digest
            )
            digests[printed.rules.family] = await off_loop.run(printed.size, state_digest, [printed.rules])
        self._applied = _Applied(ruleset, digests)
        return GuestState(ruleset.generation, ruleset.digest, has_drifted=False)

    async def read_back(self) -> tuple[Document, ...]:
        await self._ensure_probed()
        families = [Family.IPV4] if self.ipv6_problem else list(Family)
        printed = [await self._read_rules(family) for family in families]
        documents = [await off_loop.run(each.size, each.rules.document) for each in printed]
        return tuple(document for document in documents if set(document.objects) - {_PROOF})

    async def flush_conntrack(self, flows: Sequence[Flow]) -> None:
        """Do nothing, as the capabilities report: stock Kata has no such call, and entries time out."""

    async def set_resolv_conf(self, text: str) -> None:
        """Never possible: the agent cannot write the file that a container sees."""
        raise NotInjectable("stock Kata cannot write a container's resolv.conf; let the start gate mount it")

    async def close(self) -> None:
        """Nothing to do: each call has a connection of its own."""

    # ---- the state of the guest

    async def _read_rules(self, family: Family) -> _Printed:
        return await _parse(await self._read(family), family)

    def _state_of(self, families: Sequence[InstalledRules]) -> GuestState:
        """Find the ruleset that the guest has.

        It is the ruleset whose digest the rules have, if the marker agrees: that needs no memory. The rules
        of an iptables that prints them in another form are compared with what it printed last.
        """
        applied = self._applied
        if applied is not None and all(applied.is_as_printed(rules) for rules in families):
            return GuestState(applied.ruleset.generation, applied.ruleset.digest, has_drifted=False)
        present = [rules for rules in families if _has_rules(rules)]
        digest = _digest(present)
        is_known = applied is not None and applied.ruleset.digest == digest
        if digest and all(rules.is_marked(digest) and not rules.shadowed for rules in present):
            return GuestState(applied.ruleset.generation if applied and is_known else 0, digest, False)
        if applied is not None and any(rules.is_marked(applied.ruleset.digest) for rules in present):
            return GuestState(applied.ruleset.generation, applied.ruleset.digest, has_drifted=True)
        marked = next((rules.marker for rules in present if rules.marker), "")
        return GuestState(0, marked.removeprefix(MARKER_PREFIX), has_drifted=bool(present))

    # ---- applying

    def _documents(self, ruleset: Ruleset) -> tuple[Document, ...]:
        """The document for each family of the guest. Raises `GuestRefused` for one that it cannot take."""
        ipv4, ipv6 = (ruleset.document(family, Backend.IPTABLES) for family in Family)
        for one in ruleset.documents:
            if (
                one.backend is not Backend.IPTABLES
                and not ruleset.document(one.family, Backend.IPTABLES).objects
            ):
                raise GuestRefused(f"stock Kata takes rules of iptables only, not of {one.backend.value}")
        if not self.ipv6_problem:
            return ipv4, ipv6 if ipv6.objects else Document(Family.IPV6, Backend.IPTABLES, {_PROOF: ()})
        if ipv6.objects:
            raise GuestRefused(self.ipv6_problem)
        return (ipv4,)

    async def _apply_document(self, document: Document, digest: str) -> _Printed:
        """Apply one family, marked with `digest`; return what the guest prints then."""
        family = document.family
        text = await self._read(family)
        before = await _parse(text, family)
        if await off_loop.run(before.size, self._holds, before.rules, document, digest):
            self._calls.release()
            return before
        try:
            whole = await off_loop.run(len(text), whole_tables, text, document, digest)
        except RulesetTooLarge as error:
            raise GuestRefused(str(error)) from None
        await self._push(family, whole)
        text = await self._read(family)
        after = await _parse(text, family)
        if await off_loop.run(after.size, _is_marked, after.rules, digest):
            return after
        tool = "ip6tables" if family is Family.IPV6 else "iptables"
        if not text.strip():
            # Each push without reading would erase what programs in the guest have written.
            raise NotInjectable(
                f"the guest takes rules and prints none: its {tool}-save fails; repair iptables in its image"
            )
        raise Unreachable(f"the guest took the rules but does not hold them: a program rewrites its {tool}")

    def _holds(self, rules: InstalledRules, document: Document, digest: str) -> bool:
        if not digest:
            return _PROOF in rules.objects and not _has_rules(rules)
        if not rules.is_marked(digest):
            return False
        applied = self._applied
        is_printed = applied is not None and applied.ruleset.digest == digest and applied.is_as_printed(rules)
        return is_printed or rules.matches(document)

    async def _find_ipv6_problem(self) -> str:
        if not self._has_ipv6:
            return _NO_IPV6_ADDRESS
        family = Family.IPV6
        try:
            text = await self._calls.read(family)
            if not (await _parse(text, family)).rules.is_empty:
                return ""
            proof = Document(family, Backend.IPTABLES, {_PROOF: ()})
            await self._calls.push(family, await off_loop.run(len(text), whole_tables, text, proof))
            text = await self._calls.read(family)
        except FaultError as error:
            if error.fault is Fault.TRANSIENT:
                raise Unreachable(error.text) from None
            return error.text
        except NoAnswerError as error:
            if error.may_run:
                raise Unreachable(str(error)) from None
            # IPv4 was answered just now by the same route: a shim in Rust reports errors this way.
            return f"IPv6 rules fail without an answer: {error}"
        if _PROOF in (await _parse(text, family)).rules.objects:
            return ""
        return "the guest took IPv6 rules but does not hold them"

    # ---- calls, with the outcomes of a channel

    async def _ensure_probed(self) -> None:
        if self.ipv6_problem is None:
            await self.probe()

    async def _read(self, family: Family) -> str:
        try:
            return await self._calls.read(family)
        except FaultError as error:
            raise error.as_outcome() from None
        except NoAnswerError as error:
            raise Unreachable(str(error)) from None

    async def _push(self, family: Family, text: str) -> None:
        try:
            await self._calls.push(family, text)
        except FaultError as error:
            raise error.as_outcome() from None
        except NoAnswerError as error:
            raise Unreachable(str(error)) from None


async def _parse(text: str, family: Family) -> _Printed:
    rules = await off_loop.run(len(text), read_installed, text, family, Backend.IPTABLES)
    return _Printed(rules, len(text))


def _is_marked(rules: InstalledRules, digest: str) -> bool:
    """Whether a push with this digest, or without rules, has taken effect."""
    return rules.is_marked(digest) if digest else not _has_rules(rules)


def _has_ipv6(ruleset: Ruleset) -> bool:
    return any(document.family is Family.IPV6 for document in ruleset.documents)


def _has_rules(rules: InstalledRules) -> bool:
    """Whether there is more of ours than the proof of IPv6."""
    return bool(rules.hooks) or any(name != _PROOF for name in rules.objects)


def _digest(families: Sequence[InstalledRules]) -> str:
    """The digest of the ruleset that these are; empty for none."""
    return make_ruleset(0, [rules.document() for rules in families]).digest if families else ""
