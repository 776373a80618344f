# SPDX-License-Identifier: Apache-2.0
"""Keeps one ruleset in a packet filter: applies the next one, sees when somebody changed it.

What is in is remembered as a value, the mirror: a delta is checked against its digest before the
kernel sees any of it. Whether the kernel still holds the mirror is told by the packet filter's
fingerprint; only when that moved are the rules read and compared.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from guest_agent.core.packet_filter import Broken, Change, PacketFilter, Place, Refused
from ruleset.delta import BaseMismatch, DocumentDelta, RulesetDelta, apply_delta, difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.installed.rules import InstalledRules, expected, nothing_installed
from ruleset.model import Family
from ruleset.names import Backend
from ruleset.restore.script import delta_restore, full_restore, removal

_NOTHING = make_ruleset(0, ())


@dataclass(frozen=True, slots=True)
class Remembered:
    """What outlives the agent's process: see `guest_agent.state_file`."""

    generation: int
    digest: str


class Keeper:
    """The rules of one network namespace. Not for several threads."""

    def __init__(self, packet_filter: PacketFilter, remembered: Remembered | None) -> None:
        """Take up what is in the packet filter."""
        self._filter = packet_filter
        self._mirror: Ruleset | None = _NOTHING
        """What is in, as far as applying it went well; None if that is not known."""
        self._generation = 0
        self._digest = ""
        self._is_drifted = False
        self._fingerprint = ""
        self._glance: object = None
        self._is_unread = False
        """Whether the rules were changed and not yet read back."""
        try:
            self._take_up(remembered)
        except Broken:
            # What is there is not known; whoever wants to change it hears why.
            self._mirror, self._is_drifted = None, True

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def digest(self) -> str:
        """Of the ruleset last applied; "" if there is none or it is not known."""
        return self._digest

    @property
    def is_drifted(self) -> bool:
        """Whether the kernel's rules are not those that were applied, as far as last looked."""
        return self._is_drifted

    def look(self) -> bool:
        """Look at little, and closer if that moved; return whether `is_drifted` became another."""
        if self._filter.glance(self._places()) == self._glance:
            return False
        return self.check()

    def check(self, *, is_thorough: bool = False) -> bool:
        """Look whether the kernel's rules are those applied; return whether `is_drifted` became another.

        Reads the rules where their fingerprint moved; if `is_thorough` also once after each change,
        for what somebody did in the moment between our change and its fingerprint. Raises `Broken`.
        """
        fingerprint = self._filter.fingerprint(self._places())
        if fingerprint == self._fingerprint and not (is_thorough and self._is_unread):
            return False
        before = self._is_drifted
        self._glance = self._filter.glance(self._places())
        self._is_drifted = self._mirror is None or not self._holds(self._mirror)
        self._fingerprint, self._is_unread = fingerprint, False
        return self._is_drifted != before

    def apply(self, ruleset: Ruleset | RulesetDelta) -> bool:
        """Make the kernel hold `ruleset`; return False if it did already.

        Raises `BaseMismatch`, `Refused` and `Broken`; the kernel then holds what it held before, or
        `is_drifted` says that it does not.
        """
        self._note_a_stranger()
        if ruleset.digest == self._digest and not self._is_drifted:
            self._generation = ruleset.generation
            return False
        mirror = None if self._is_drifted else self._mirror
        if isinstance(ruleset, Ruleset):
            new = ruleset
        elif mirror is None:
            raise BaseMismatch("the guest does not hold what it was given last")
        else:
            new = apply_delta(mirror, ruleset)
        for document in new.documents:
            # All of a ruleset is applied or nothing, so what is missing is said first.
            why = self._filter.why_not((document.family, document.backend))
            if why:
                raise Broken(why)
        changes = self._repairs(new) if mirror is None else _changes(mirror, new, ruleset)
        self._load(changes)
        self._mirror, self._generation, self._digest = new, new.generation, new.digest
        self._is_drifted = False
        self._settle()
        return True

    def read_back(self) -> tuple[Document, ...]:
        """Our objects as the packet filter holds them, with whatever others wrote there. Raises `Broken`.

        Where there is no packet filter, `Broken` says all that is missing.
        """
        if not self._filter.places:
            raise Broken("; ".join(self._filter.why_not((Family.IPV4, backend)) for backend in Backend))
        held = (self._filter.held(place).document() for place in self._filter.places)
        return tuple(document for document in held if document.objects)

    def _take_up(self, remembered: Remembered | None) -> None:
        """Find out what is in after a start: the rules are there, and who wrote them is remembered.

        The marker in the kernel says whether what is remembered is what is in: a process that was
        killed between applying and remembering remembers the one before.
        """
        held = {place: self._filter.held(place) for place in self._filter.places}
        there = {place: each for place, each in held.items() if not each.is_empty}
        if there:
            digest = remembered.digest if remembered is not None else ""
            found = make_ruleset(0, (each.document() for each in there.values()))
            is_whole = all(each.is_marked(found.digest) and not each.shadowed for each in there.values())
            if is_whole:
                # To the byte what was applied under this digest, remembered or not.
                generation = remembered.generation if remembered is not None and digest == found.digest else 0
                self._mirror = Ruleset(generation, found.digest, found.documents)
                self._generation, self._digest = generation, found.digest
            else:
                is_it = bool(digest) and all(each.is_marked(digest) for each in there.values())
                self._mirror, self._is_drifted = None, True
                self._digest = digest if is_it else ""
                self._generation = remembered.generation if remembered is not None and is_it else 0
        elif remembered is not None and remembered.digest and remembered.digest != _NOTHING.digest:
            # All of it is gone while this program was away.
            self._mirror, self._is_drifted = None, True
            self._generation, self._digest = remembered.generation, remembered.digest
        self._settle()
        self._is_unread = False

    def _places(self) -> tuple[Place, ...]:
        """Where rules of ours are, or may be."""
        if self._mirror is None:
            return self._filter.places
        return tuple((document.family, document.backend) for document in self._mirror.documents)

    def _settle(self) -> None:
        """Take what the kernel holds now for what was applied, until it is read."""
        places = self._places()
        self._glance = self._filter.glance(places)
        self._fingerprint = self._filter.fingerprint(places, is_changed=True)
        self._is_unread = True

    def _note_a_stranger(self) -> None:
        """Before a change: has somebody else been at work since we last looked?"""
        if self._filter.fingerprint(self._places()) != self._fingerprint:
            self.check()

    def _holds(self, ruleset: Ruleset) -> bool:
        places = ((document, (document.family, document.backend)) for document in ruleset.documents)
        return all(_is_in(document, self._filter.held(place), ruleset.digest) for document, place in places)

    def _repairs(self, new: Ruleset) -> list[Change]:
        """From whatever is there to `new`."""
        wanted = {(document.family, document.backend): document for document in new.documents}
        changes = []
        for place in self._filter.places:
            held = self._filter.held(place)
            document = wanted.get(place)
            text = removal(held) if document is None else full_restore(document, held, new.digest)
            changes.append(Change(place, text))
        return [change for change in changes if change.text]

    def _load(self, changes: Iterable[Change]) -> None:
        """Load all changes or, as far as that is in our hands, none."""
        places: list[Place] = []
        try:
            for change in changes:
                places.append(change.place)
                self._filter.load(change)
        except (Refused, Broken):
            self._undo(places)
            raise

    def _undo(self, places: Iterable[Place]) -> None:
        """Give back to each place what it held.

        Places are transactions of their own, in iptables even the tables of one family.
        """
        try:
            if self._mirror is not None:
                for place in places:
                    before, held = self._mirror.document(*place), self._filter.held(place)
                    if before.objects and not _is_in(before, held, self._mirror.digest):
                        self._filter.load(Change(place, full_restore(before, held, self._mirror.digest)))
                    elif not before.objects and not held.is_empty:
                        self._filter.load(Change(place, removal(held)))
            self._settle()
            self.check(is_thorough=True)
        except (Refused, Broken):
            self._is_drifted = True


def _is_in(document: Document, held: InstalledRules, digest: str) -> bool:
    """Whether what is held is `document`, and says that it is of the ruleset with this digest."""
    return held.is_marked(digest) and held.matches(document)


def _changes(mirror: Ruleset, new: Ruleset, given: Ruleset | RulesetDelta) -> list[Change]:
    """From `mirror`, which the kernel holds, to `new`: what differs, and the marker in every place.

    A whole ruleset is compared with the mirror too: chains that stay keep what the kernel remembers
    with their rules, such as which client goes to which endpoint.
    """
    delta = given if isinstance(given, RulesetDelta) else difference(mirror, new)
    touched = {(each.family, each.backend): each for each in delta.documents} if delta is not None else {}
    changes = []
    for document in new.documents:
        place = (document.family, document.backend)
        base = mirror.document(*place)
        if base.objects:
            untouched = DocumentDelta(*place, {}, (), {})
            held = expected(base, mirror.digest)
            text = delta_restore(touched.get(place, untouched), base, held, new.digest)
        else:
            text = full_restore(document, nothing_installed(*place), new.digest)
        changes.append(Change(place, text))
    kept = {change.place for change in changes}
    for document in mirror.documents:
        place = (document.family, document.backend)
        if place not in kept:
            changes.append(Change(place, removal(expected(document, mirror.digest))))
    return [change for change in changes if change.text]
