# SPDX-License-Identifier: Apache-2.0
"""The channel to a guest of stock Kata: its shim's HTTP, and its agent's ttrpc where that is silent.

Stock Kata has two calls for each family: print all tables, and replace the tables of a text. So what
is there is read, our chains in it are replaced, the whole is pushed and read back: only what a
guest prints afterwards counts. A writer in the guest can come in between, and lose what it wrote;
the drift check finds what it did to ours.

Not to be had this way: deltas, conntrack, resolv.conf, nft's own language.
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

# Both shims give their agent 60 s, and the agent gives iptables-restore no limit at all: a push that
# was not answered may happen until then, and there must not be two at once.
PUSH_HOLD_S = 60.0

# It changes nothing, and yet the policy is asked and the binary is run.
_HARMLESS = "# is iptables-restore to be had\n"

# An empty chain that stays where there are no IPv6 rules of ours: that it is printed proves, now and
# after a restart, that some could be put in.
_PROOF = "nat/VCN-PROOF"

_NO_ADDRESS = "its pod has no IPv6 address"

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a guest printed of ours, and of how long a text: so long it takes to look through it again."""

    held: InstalledRules
    size: int


@dataclass(frozen=True, slots=True)
class _Applied:
    """What was applied last, and the digests of what the guest printed right after."""

    ruleset: Ruleset
    printed: Mapping[Family, str]

    def is_as_printed(self, held: InstalledRules) -> bool:
        return state_digest([held]) == self.printed.get(held.family)


class Calls(Protocol):
    """What `stock_calls.StockCalls` does, as far as it is needed here."""

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

    `policy` is the whole policy text that may be given to an agent which refuses the iptables calls;
    None leaves it alone. Whoever passes one has asked `sandbox.policy_lock_reason`. `has_ipv6` is
    false for a pod that is known to have no IPv6 address. Raises `ValueError` for what is no sandbox id.
    """
    calls = StockCalls(sandbox_id, roots=roots, timeout_s=timeout_s, hold_s=hold_s, policy=policy)
    return StockChannel(sandbox_id, calls, has_ipv6=has_ipv6)


class StockChannel:
    """One guest of stock Kata, by its sandbox id; a `channel.Channel`."""

    def __init__(self, sandbox_id: str, calls: Calls, *, has_ipv6: bool = True) -> None:
        self._sandbox_id = sandbox_id
        self._calls = calls
        self._has_ipv6 = has_ipv6
        self._applied: _Applied | None = None
        # Why the guest takes no IPv6 rules; empty if it does, None until it was tried.
        self.ipv6_problem: str | None = None

    async def probe(self) -> Capabilities:
        """Find out whether rules can be put in, and IPv6 rules too. Changes nothing of IPv4.

        IPv6 is believed when a chain that was pushed is printed again: agents from 3.1 to 2026-09
        run the wrong program for it, kernels before the end of 2025 have no IPv6 nat. The guest of a
        pod without an IPv6 address is not asked: five processes fewer between a sandbox and its rules.
        """
        seen = await self._seen(Family.IPV4)
        if seen.held.is_empty:
            await self._push(Family.IPV4, _HARMLESS)
        before, self.ipv6_problem = self.ipv6_problem, await self._find_ipv6_problem()
        if self._has_ipv6 and self.ipv6_problem and self.ipv6_problem != before:
            _log.warning("a guest takes no IPv6 rules", sandbox=self._sandbox_id, why=self.ipv6_problem)
        return Capabilities(
            channel=self._calls.route,
            backends=(Backend.IPTABLES.value,),
            ipv6=not self.ipv6_problem,
            ipv6_message=self.ipv6_problem or "",
            version=await self._calls.version(),
        )

    async def state(self) -> GuestState:
        """Read what the guest holds. Tells the digest also if this channel has not put it there."""
        await self._settle()
        families = [Family.IPV4]
        applied = self._applied
        if not self.ipv6_problem and (applied is None or _has_ipv6(applied.ruleset)):
            families.append(Family.IPV6)
        seen = [await self._seen(family) for family in families]
        size = sum(each.size for each in seen)
        return await off_loop.run(size, self._judged, [each.held for each in seen])

    async def apply(self, ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow]) -> GuestState:
        """Put `ruleset` in, family by family; what is there already is not pushed. Flushes nothing."""
        if isinstance(ruleset, RulesetDelta):
            raise NeedsFull("stock Kata replaces whole tables")
        await self._settle()
        printed: dict[Family, str] = {}
        for document in self._documents(ruleset):
            seen = await self._bring(document, "" if _PROOF in document.objects else ruleset.digest)
            printed[seen.held.family] = await off_loop.run(seen.size, state_digest, [seen.held])
        self._applied = _Applied(ruleset, printed)
        return GuestState(ruleset.generation, ruleset.digest, has_drifted=False)

    async def read_back(self) -> tuple[Document, ...]:
        await self._settle()
        families = [Family.IPV4] if self.ipv6_problem else list(Family)
        seen = [await self._seen(family) for family in families]
        documents = [await off_loop.run(each.size, each.held.document) for each in seen]
        return tuple(document for document in documents if set(document.objects) - {_PROOF})

    async def flush_conntrack(self, flows: Sequence[Flow]) -> None:
        """Do nothing, as the capabilities say: stock Kata has no call for it, entries time out."""

    async def set_resolv_conf(self, text: str) -> None:
        """Never possible: the agent writes no file that a container sees as its resolv.conf."""
        raise NotInjectable("stock Kata has no way to a container's resolv.conf; mount one instead")

    async def close(self) -> None:
        """Nothing to do: each call has a connection of its own."""

    # ---- what the guest holds

    async def _seen(self, family: Family) -> _Seen:
        return await _seen_in(await self._read(family), family)

    def _judged(self, helds: Sequence[InstalledRules]) -> GuestState:
        """Tell which ruleset this is.

        It is the one whose digest its objects have, if the marker says so too: that needs no memory.
        An iptables that prints rules in another way than ours is compared with what it printed last.
        """
        applied = self._applied
        if applied is not None and all(applied.is_as_printed(held) for held in helds):
            return GuestState(applied.ruleset.generation, applied.ruleset.digest, has_drifted=False)
        present = [held for held in helds if _has_rules(held)]
        digest = _digest(present)
        is_known = applied is not None and applied.ruleset.digest == digest
        if digest and all(held.is_marked(digest) and not held.shadowed for held in present):
            return GuestState(applied.ruleset.generation if applied and is_known else 0, digest, False)
        if applied is not None and any(held.is_marked(applied.ruleset.digest) for held in present):
            return GuestState(applied.ruleset.generation, applied.ruleset.digest, has_drifted=True)
        marked = next((held.marker for held in present if held.marker), "")
        return GuestState(0, marked.removeprefix(MARKER_PREFIX), has_drifted=bool(present))

    # ---- bringing it there

    def _documents(self, ruleset: Ruleset) -> tuple[Document, ...]:
        """What each family of the guest is to hold. Raises `Refused` for what it cannot."""
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

    async def _bring(self, document: Document, digest: str) -> _Seen:
        """Make one family hold `document`, marked with `digest`; return what it holds then."""
        family = document.family
        text = await self._read(family)
        before = await _seen_in(text, family)
        if await off_loop.run(before.size, self._is_in, before.held, document, digest):
            self._calls.release()
            return before
        try:
            whole = await off_loop.run(len(text), whole_tables, text, document, digest)
        except RulesetTooLarge as error:
            raise GuestRefused(str(error)) from None
        await self._push(family, whole)
        printed = await self._read(family)
        after = await _seen_in(printed, family)
        if await off_loop.run(after.size, _is_taken, after.held, digest):
            return after
        tool = "ip6tables" if family is Family.IPV6 else "iptables"
        if not printed.strip():
            # Blind pushes would erase, each time, what others in the guest have written.
            raise NotInjectable(
                f"the guest takes rules and prints none: its {tool}-save fails; repair iptables in its image"
            )
        raise Unreachable(f"the guest took the rules and does not hold them: somebody rewrites its {tool}")

    def _is_in(self, held: InstalledRules, document: Document, digest: str) -> bool:
        if not digest:
            return _PROOF in held.objects and not _has_rules(held)
        if not held.is_marked(digest):
            return False
        applied = self._applied
        is_printed = applied is not None and applied.ruleset.digest == digest and applied.is_as_printed(held)
        return is_printed or held.matches(document)

    async def _find_ipv6_problem(self) -> str:
        if not self._has_ipv6:
            return _NO_ADDRESS
        family = Family.IPV6
        try:
            text = await self._calls.read(family)
            if not (await _seen_in(text, family)).held.is_empty:
                return ""
            proof = Document(family, Backend.IPTABLES, {_PROOF: ()})
            await self._calls.push(family, await off_loop.run(len(text), whole_tables, text, proof))
            printed = await self._calls.read(family)
        except FaultError as error:
            if error.fault is Fault.TRANSIENT:
                raise Unreachable(error.text) from None
            return error.text
        except NoAnswerError as error:
            if error.may_run:
                raise Unreachable(str(error)) from None
            # IPv4 was answered just now by the same way: this is how a shim in Rust reports an error.
            return f"IPv6 rules fail without an answer: {error}"
        if _PROOF in (await _seen_in(printed, family)).held.objects:
            return ""
        return "the guest says that it took IPv6 rules and does not hold them"

    # ---- calls, with the outcomes that a channel has

    async def _settle(self) -> None:
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


async def _seen_in(text: str, family: Family) -> _Seen:
    held = await off_loop.run(len(text), read_installed, text, family, Backend.IPTABLES)
    return _Seen(held, len(text))


def _is_taken(held: InstalledRules, digest: str) -> bool:
    """Whether what was pushed with this digest, or without rules, is there."""
    return held.is_marked(digest) if digest else not _has_rules(held)


def _has_ipv6(ruleset: Ruleset) -> bool:
    return any(document.family is Family.IPV6 for document in ruleset.documents)


def _has_rules(held: InstalledRules) -> bool:
    """Whether there is more of ours than the proof of IPv6."""
    return bool(held.hooks) or any(name != _PROOF for name in held.objects)


def _digest(helds: Sequence[InstalledRules]) -> str:
    """The digest of the ruleset that this would be, empty if it is nothing."""
    return make_ruleset(0, [held.document() for held in helds]).digest if helds else ""
