# SPDX-License-Identifier: Apache-2.0
"""Applies rulesets to a packet filter and detects foreign changes.

The ruleset applied last is kept as a value. A delta is checked against its digest before the kernel
sees any of it. Drift is detected in levels: the packet filter's fingerprints are compared often, and
the rules are read and compared only when a fingerprint has changed.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from guest_agent.core.packet_filter import (
    FilterKey,
    FilterUnavailableError,
    PacketFilter,
    RestoreScript,
    RulesRefusedError,
    unsupported_family_message,
)
from ruleset.delta import BaseMismatch, DocumentDelta, RulesetDelta, apply_delta, difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.installed.rules import InstalledRules, expected, nothing_installed
from ruleset.model import Endpoint, Family
from ruleset.restore.script import delta_restore, full_restore, removal
from ruleset.udp_frontends import frontends_ended_by, udp_frontends

_EMPTY = make_ruleset(0, ())


class CheckLevel(enum.Enum):
    """How closely to look for drift."""

    QUICK = enum.auto()
    """Compare the quick fingerprint, and the full one if it changed."""
    FINGERPRINT = enum.auto()
    """Compare the full fingerprint, and read the rules if it changed."""
    VERIFY = enum.auto()
    """As FINGERPRINT, and read the rules once after each change of ours.

    This finds what another program changed between our change and our fingerprint of it.
    """


@dataclass(frozen=True, slots=True)
class AppliedRuleset:
    """The ruleset applied last; it outlives the agent's process in `guest_agent.state_file`."""

    generation: int
    digest: str


class RulesetReconciler:
    """The rules of one network namespace. Not thread-safe."""

    def __init__(self, packet_filter: PacketFilter, saved: AppliedRuleset | None) -> None:
        """Adopt the installed rules."""
        self._filter = packet_filter
        self._applied: Ruleset | None = _EMPTY
        """The installed rules, if nothing drifted; None if they are not known."""
        self._generation = 0
        self._digest = ""
        self._has_drifted = False
        self._fingerprint = ""
        self._quick_fingerprint: object = None
        self._is_unverified = False
        """Whether the rules were changed and not read since."""
        try:
            self._adopt_installed(saved)
        except FilterUnavailableError:
            # The installed rules are unknown. The next apply reports why.
            self._applied, self._has_drifted = None, True

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def digest(self) -> str:
        """Of the ruleset applied last; "" if there is none or it is unknown."""
        return self._digest

    @property
    def has_drifted(self) -> bool:
        """Whether the installed rules differed from the applied ones at the last check."""
        return self._has_drifted

    def check_drift(self, level: CheckLevel = CheckLevel.FINGERPRINT) -> bool:
        """Update `has_drifted`; return whether it changed. Raises `FilterUnavailableError`."""
        if (
            level is CheckLevel.QUICK
            and self._filter.quick_fingerprint(self._keys()) == self._quick_fingerprint
        ):
            return False
        fingerprint = self._filter.fingerprint(self._keys())
        if fingerprint == self._fingerprint and not (level is CheckLevel.VERIFY and self._is_unverified):
            return False
        before = self._has_drifted
        self._quick_fingerprint = self._filter.quick_fingerprint(self._keys())
        self._has_drifted = self._applied is None or not self._is_installed(self._applied)
        self._fingerprint, self._is_unverified = fingerprint, False
        return self._has_drifted != before

    def apply(self, ruleset: Ruleset | RulesetDelta) -> bool:
        """Install `ruleset`; return False if it was installed before.

        Raises `BaseMismatch`, `RulesRefusedError` and `FilterUnavailableError`. The kernel then has
        what it had before, or `has_drifted` is set.
        """
        self._detect_foreign_change()
        if ruleset.digest == self._digest and not self._has_drifted:
            self._generation = ruleset.generation
            return False
        applied = None if self._has_drifted else self._applied
        if isinstance(ruleset, Ruleset):
            new = ruleset
        elif applied is None:
            raise BaseMismatch("the installed rules differ from those applied last")
        else:
            new = apply_delta(applied, ruleset)
        for document in new.documents:
            # A ruleset is applied whole or not at all, so look for all that is missing first.
            message = self._filter.unsupported_message((document.family, document.backend))
            if message:
                raise FilterUnavailableError(message)
        scripts = self._full_scripts(new) if applied is None else _delta_scripts(applied, new, ruleset)
        self._load(scripts)
        self._applied, self._generation, self._digest = new, new.generation, new.digest
        self._has_drifted = False
        self._record_fingerprints()
        return True

    def ended_frontends(self, ruleset: Ruleset | RulesetDelta) -> frozenset[Endpoint]:
        """The UDP destinations that have rules now and none under `ruleset`. Raises `FilterUnavailableError`.

        Who computed the ruleset may have been started anew, also that of a delta: kata-bridge makes deltas of
        whole rulesets. Only the rules that are installed tell. To be called before `apply`.

        Raises `BaseMismatch` for a delta that does not fit.
        """
        if ruleset.digest == self._digest:
            return frozenset()
        if isinstance(ruleset, RulesetDelta):
            return frozenset() if self._applied is None else frontends_ended_by(ruleset, self._applied)
        installed = self.read_back() if self._applied is None else self._applied.documents
        return udp_frontends(installed) - udp_frontends(ruleset.documents)

    def read_back(self) -> tuple[Document, ...]:
        """Our installed rules, with what other programs added to them. Raises `FilterUnavailableError`.

        Without any packet filter, the error names all that is missing.
        """
        if not self._filter.supported:
            raise FilterUnavailableError(unsupported_family_message(self._filter, Family.IPV4))
        documents = (self._filter.read(key).document() for key in self._filter.supported)
        return tuple(document for document in documents if document.objects)

    def _adopt_installed(self, saved: AppliedRuleset | None) -> None:
        """Read the installed rules after a start.

        The marker in the kernel names their digest. A process that was killed between applying and
        saving has the ruleset before in its saved state.
        """
        read = {key: self._filter.read(key) for key in self._filter.supported}
        installed = [each for each in read.values() if not each.is_empty]
        digest, generation = (saved.digest, saved.generation) if saved is not None else ("", 0)
        if installed:
            found = make_ruleset(0, (each.document() for each in installed))
            if all(each.is_marked(found.digest) and not each.shadowed for each in installed):
                # Byte for byte what was applied under this digest, saved or not.
                self._digest = found.digest
                self._generation = generation if digest == found.digest else 0
                self._applied = Ruleset(self._generation, found.digest, found.documents)
            else:
                self._applied, self._has_drifted = None, True
                if digest and all(each.is_marked(digest) for each in installed):
                    self._digest, self._generation = digest, generation
        elif digest and digest != _EMPTY.digest:
            # The rules were removed while the agent did not run.
            self._applied, self._has_drifted = None, True
            self._digest, self._generation = digest, generation
        self._record_fingerprints()
        self._is_unverified = False

    def _keys(self) -> tuple[FilterKey, ...]:
        """The packet filters that have rules of ours, or may have."""
        if self._applied is None:
            return self._filter.supported
        return tuple((document.family, document.backend) for document in self._applied.documents)

    def _record_fingerprints(self) -> None:
        """Take the kernel's rules for the applied ones, until they are read."""
        keys = self._keys()
        self._quick_fingerprint = self._filter.quick_fingerprint(keys)
        self._fingerprint = self._filter.fingerprint(keys, is_changed=True)
        self._is_unverified = True

    def _detect_foreign_change(self) -> None:
        """Before a change of ours: check for drift since the last check."""
        if self._filter.fingerprint(self._keys()) != self._fingerprint:
            self.check_drift()

    def _is_installed(self, ruleset: Ruleset) -> bool:
        keys = ((document, (document.family, document.backend)) for document in ruleset.documents)
        return all(_is_intact(document, self._filter.read(key), ruleset.digest) for document, key in keys)

    def _full_scripts(self, new: Ruleset) -> list[RestoreScript]:
        """Install `new` over whatever is installed."""
        desired = {(document.family, document.backend): document for document in new.documents}
        scripts = []
        for key in self._filter.supported:
            installed = self._filter.read(key)
            document = desired.get(key)
            text = removal(installed) if document is None else full_restore(document, installed, new.digest)
            scripts.append(RestoreScript(key, text))
        return [script for script in scripts if script.text]

    def _load(self, scripts: Iterable[RestoreScript]) -> None:
        """Load all scripts. After an error, roll back those that were loaded."""
        keys: list[FilterKey] = []
        try:
            for script in scripts:
                keys.append(script.key)
                self._filter.load(script)
        except (RulesRefusedError, FilterUnavailableError):
            self._roll_back(keys)
            raise

    def _roll_back(self, keys: Iterable[FilterKey]) -> None:
        """Install the applied rules again.

        Each packet filter is a transaction of its own; with iptables even each table of a family.
        """
        try:
            if self._applied is not None:
                for key in keys:
                    before, installed = self._applied.document(*key), self._filter.read(key)
                    if before.objects and not _is_intact(before, installed, self._applied.digest):
                        text = full_restore(before, installed, self._applied.digest)
                        self._filter.load(RestoreScript(key, text))
                    elif not before.objects and not installed.is_empty:
                        self._filter.load(RestoreScript(key, removal(installed)))
            self._record_fingerprints()
            self.check_drift(CheckLevel.VERIFY)
        except (RulesRefusedError, FilterUnavailableError):
            self._has_drifted = True


def _is_intact(document: Document, installed: InstalledRules, digest: str) -> bool:
    """Whether exactly `document` is installed, with the marker of the ruleset with this digest."""
    return installed.is_marked(digest) and installed.matches(document)


def _delta_scripts(applied: Ruleset, new: Ruleset, requested: Ruleset | RulesetDelta) -> list[RestoreScript]:
    """From `applied`, which is installed, to `new`: what differs, and the marker in each packet filter.

    A whole ruleset is compared with the applied one too. Chains that stay keep the state that the
    kernel has for their rules, such as which client goes to which endpoint.
    """
    delta = requested if isinstance(requested, RulesetDelta) else difference(applied, new)
    touched = {(each.family, each.backend): each for each in delta.documents} if delta is not None else {}
    scripts = []
    for document in new.documents:
        key = (document.family, document.backend)
        base = applied.document(*key)
        if base.objects:
            untouched = DocumentDelta(*key, {}, (), {})
            installed = expected(base, applied.digest)
            text = delta_restore(touched.get(key, untouched), base, installed, new.digest)
        else:
            text = full_restore(document, nothing_installed(*key), new.digest)
        scripts.append(RestoreScript(key, text))
    kept = {script.key for script in scripts}
    for document in applied.documents:
        key = (document.family, document.backend)
        if key not in kept:
            scripts.append(RestoreScript(key, removal(expected(document, applied.digest))))
    return [script for script in scripts if script.text]
