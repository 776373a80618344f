# SPDX-License-Identifier: Apache-2.0
"""The agent's contract with a `PacketFilter`: for the fake (unit) and for the kernel's (lab)."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import pytest

from guest_agent.core.packet_filter import FilterKey, PacketFilter, RestoreScript, RulesRefusedError
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.installed.rules import InstalledRules
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, ServiceRules
from ruleset.model import Protocol as L4Protocol
from ruleset.names import Backend
from ruleset.render import iptables, nft
from ruleset.restore.script import full_restore, removal

T = TypeVar("T")


class FilterSubject(Protocol):
    """A packet filter under test, and another program that changes its rules."""

    packet_filter: PacketFilter
    key: FilterKey

    def call(self, function: Callable[[], T]) -> T:
        """Call `function` in the packet filter's network namespace."""
        ...

    def flush_ours(self) -> None:
        """Delete the rules of one of our chains."""
        ...

    def add_theirs(self) -> None:
        """Add a rule that is not ours to a table that has rules of ours."""
        ...


class PacketFilterContract:
    """Subclasses have a fixture `subject`."""

    def test_a_fresh_filter_has_no_rules(self, subject: FilterSubject) -> None:
        assert subject.call(lambda: subject.packet_filter.read(subject.key)).is_empty
        assert subject.key in subject.packet_filter.supported
        assert subject.packet_filter.unsupported_message(subject.key) == ""

    def test_loaded_rules_read_back_as_the_document(self, subject: FilterSubject) -> None:
        ruleset = _load(subject, 2)
        installed = _read(subject)
        assert installed.is_marked(ruleset.digest)
        assert installed.document() == _document(ruleset)
        assert not installed.shadowed

    def test_a_second_script_replaces_the_rules(self, subject: FilterSubject) -> None:
        _load(subject, 2)
        ruleset = _load(subject, 3)
        assert _read(subject).document() == _document(ruleset)

    def test_a_refused_script_changes_nothing(self, subject: FilterSubject) -> None:
        ruleset = _load(subject, 2)
        (document,) = _ruleset(subject, 3).documents
        objects = dict(document.objects)
        if document.backend is Backend.NFT:
            objects["chain nat-output"] = (*objects["chain nat-output"], "goto VCN-SVC-NOWHERE")
        else:
            objects["nat/VCN-SERVICES"] = (*objects["nat/VCN-SERVICES"], "-d 10.96.0.9/32 -j VCN-SVC-NOWHERE")
        bad = make_ruleset(3, [Document(document.family, document.backend, objects)])
        script = RestoreScript(subject.key, full_restore(_document(bad), _read(subject), bad.digest))
        with pytest.raises(RulesRefusedError, match=r"VCN-SVC-NOWHERE|table nat"):
            subject.call(lambda: subject.packet_filter.load(script))
        assert _read(subject).document() == _document(ruleset)

    def test_a_removal_leaves_nothing(self, subject: FilterSubject) -> None:
        _load(subject, 2)
        script = RestoreScript(subject.key, removal(_read(subject)))
        subject.call(lambda: subject.packet_filter.load(script))
        assert _read(subject).is_empty

    def test_fingerprints_stay_without_a_change(self, subject: FilterSubject) -> None:
        _load(subject, 2)
        before = _fingerprints(subject)
        _read(subject)
        assert _fingerprints(subject) == before

    def test_fingerprints_change_with_a_change_of_ours(self, subject: FilterSubject) -> None:
        _load(subject, 2)
        before = _fingerprints(subject)
        subject.flush_ours()
        assert not set(_fingerprints(subject)) & set(before)
        assert _read(subject).document() != _document(_ruleset(subject, 2))

    def test_a_change_of_others_leaves_ours(self, subject: FilterSubject) -> None:
        ruleset = _load(subject, 2)
        before = _fingerprints(subject)
        subject.add_theirs()
        assert not set(_fingerprints(subject)) & set(before)
        assert _read(subject).document() == _document(ruleset)

    def test_a_known_change_gets_a_fingerprint(self, subject: FilterSubject) -> None:
        _load(subject, 2)
        keys = (subject.key,)
        fingerprint = subject.call(lambda: subject.packet_filter.fingerprint(keys, is_changed=True))
        assert _fingerprints(subject)[0] == fingerprint


def _ruleset(subject: FilterSubject, endpoints: int) -> Ruleset:
    family, backend = subject.key
    render = nft.render if backend is Backend.NFT else iptables.render
    ip, pod = ("10.96.0.1", "10.1.0.%d") if family is Family.IPV4 else ("fd96::1", "fd00::%d")
    some = tuple(Endpoint(pod % number, 80) for number in range(1, endpoints + 1))
    to = EndpointSet("ns/web:http", L4Protocol.TCP, False, some)
    frontend = Frontend(ip, 80, L4Protocol.TCP, "ns/web:http", to)
    ranges = ("10.96.0.0/12",) if family is Family.IPV4 else ("fd96::/108",)
    rules = GuestRules(family, (ServiceRules("ns/web", (frontend,)),), ranges)
    return make_ruleset(endpoints, [render(rules)])


def _document(ruleset: Ruleset) -> Document:
    (document,) = ruleset.documents
    return document


def _load(subject: FilterSubject, endpoints: int) -> Ruleset:
    ruleset = _ruleset(subject, endpoints)
    text = full_restore(_document(ruleset), _read(subject), ruleset.digest)
    subject.call(lambda: subject.packet_filter.load(RestoreScript(subject.key, text)))
    return ruleset


def _read(subject: FilterSubject) -> InstalledRules:
    return subject.call(lambda: subject.packet_filter.read(subject.key))


def _fingerprints(subject: FilterSubject) -> tuple[object, object]:
    keys = (subject.key,)
    return subject.call(
        lambda: (subject.packet_filter.fingerprint(keys), subject.packet_filter.quick_fingerprint(keys))
    )
