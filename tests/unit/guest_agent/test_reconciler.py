# SPDX-License-Identifier: Apache-2.0
"""Applying rulesets, drift and rollbacks, with a fake packet filter."""

from collections.abc import Callable

import pytest

from devkit.fake_packet_filter import FakePacketFilter
from guest_agent.core.packet_filter import FilterUnavailableError, RulesRefusedError
from guest_agent.reconciler import AppliedRuleset, CheckLevel, RulesetReconciler
from ruleset.delta import BaseMismatch, RulesetDelta, difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Endpoint, Family
from ruleset.names import Backend, marker_chain

V4, V6 = (Family.IPV4, Backend.IPTABLES), (Family.IPV6, Backend.IPTABLES)


def rules(ip: str, *endpoints: str) -> list[str]:
    return [f"-d {ip} -p tcp -m tcp --dport 80 -j DNAT --to-destination {each}" for each in endpoints]


def document(family: Family, *endpoints: str) -> Document:
    ip = "10.0.0.1/32" if family is Family.IPV4 else "fd00::1/128"
    objects = {
        "nat/OUTPUT": ("-j VCN-SERVICES",),
        "nat/VCN-SERVICES": (f"-d {ip} -p tcp -m tcp --dport 80 -j VCN-SVC-A",),
        "nat/VCN-SVC-A": tuple(rules(ip, *endpoints)),
        "nat/VCN-SVC-B": tuple(rules(ip, "10.9.9.9:9")),
    }
    return Document(family, Backend.IPTABLES, objects)


def one(generation: int, *endpoints: str) -> Ruleset:
    return make_ruleset(generation, [document(Family.IPV4, *endpoints)])


def both(generation: int, *endpoints: str) -> Ruleset:
    return make_ruleset(generation, [document(family, *endpoints) for family in Family])


def delta(old: Ruleset, new: Ruleset) -> RulesetDelta:
    found = difference(old, new)
    assert found is not None
    return found


FIRST, SECOND = one(1, "10.1.0.1:80"), one(2, "10.1.0.1:80", "10.1.0.2:80")


@pytest.fixture
def fake() -> FakePacketFilter:
    return FakePacketFilter()


@pytest.fixture
def reconciler(fake: FakePacketFilter) -> RulesetReconciler:
    return RulesetReconciler(fake, None)


def drifted(reconciler: RulesetReconciler) -> bool:
    return reconciler.has_drifted


def nat(fake: FakePacketFilter, family: Family = Family.IPV4) -> dict[str, list[str]]:
    return fake.iptables[family].tables["nat"]


def test_a_fresh_guest_has_no_rules_and_no_drift(reconciler: RulesetReconciler) -> None:
    assert (reconciler.generation, reconciler.digest, reconciler.has_drifted) == (0, "", False)
    assert reconciler.read_back() == ()


def test_apply_installs_rules_hook_and_marker(fake: FakePacketFilter, reconciler: RulesetReconciler) -> None:
    nat(fake)["OUTPUT"].append("-j ACCEPT")
    assert reconciler.apply(FIRST) is True
    assert (reconciler.generation, reconciler.digest, reconciler.has_drifted) == (1, FIRST.digest, False)
    assert reconciler.read_back() == FIRST.documents
    assert nat(fake)["OUTPUT"] == ["-j ACCEPT", "-j VCN-SERVICES"]
    assert marker_chain(FIRST.digest) in nat(fake)


def test_an_applied_ruleset_is_not_loaded_again(
    fake: FakePacketFilter, reconciler: RulesetReconciler
) -> None:
    reconciler.apply(FIRST)
    again = make_ruleset(7, FIRST.documents)
    assert reconciler.apply(again) is False
    assert reconciler.generation == 7
    assert len(fake.loaded) == 1


def test_a_delta_loads_its_objects_and_the_marker(
    fake: FakePacketFilter, reconciler: RulesetReconciler
) -> None:
    reconciler.apply(FIRST)
    assert reconciler.apply(delta(FIRST, SECOND)) is True
    assert reconciler.read_back() == SECOND.documents
    assert "VCN-SVC-B" not in fake.loaded[-1].text
    assert marker_chain(FIRST.digest) not in nat(fake)
    assert marker_chain(SECOND.digest) in nat(fake)


def test_apply_and_check_read_no_rules(fake: FakePacketFilter, reconciler: RulesetReconciler) -> None:
    fake.reads.clear()
    reconciler.apply(FIRST)
    reconciler.apply(delta(FIRST, SECOND))
    reconciler.check_drift()
    assert fake.reads == []
    reconciler.check_drift(CheckLevel.VERIFY)
    reconciler.check_drift(CheckLevel.VERIFY)
    assert fake.reads == [V4]


def test_a_full_ruleset_is_loaded_as_a_delta(fake: FakePacketFilter, reconciler: RulesetReconciler) -> None:
    reconciler.apply(FIRST)
    reconciler.apply(SECOND)
    assert "VCN-SVC-B" not in fake.loaded[-1].text


def test_a_delta_of_another_base_is_a_mismatch(reconciler: RulesetReconciler) -> None:
    with pytest.raises(BaseMismatch):
        reconciler.apply(delta(FIRST, SECOND))
    reconciler.apply(one(3, "10.1.0.9:80"))
    with pytest.raises(BaseMismatch):
        reconciler.apply(delta(FIRST, SECOND))


def test_a_delta_with_a_wrong_digest_loads_nothing(
    fake: FakePacketFilter, reconciler: RulesetReconciler
) -> None:
    reconciler.apply(FIRST)
    true = delta(FIRST, SECOND)
    lie = RulesetDelta(true.generation, "0" * 64, true.base_digest, true.documents)
    with pytest.raises(BaseMismatch, match="the delta makes"):
        reconciler.apply(lie)
    assert len(fake.loaded) == 1
    assert reconciler.digest == FIRST.digest


@pytest.mark.parametrize(
    "spoil",
    [
        lambda chains: chains["VCN-SVC-A"].clear(),
        lambda chains: chains["OUTPUT"].clear(),
        lambda chains: chains["VCN-SVC-A"].append("-j ACCEPT"),
        lambda chains: chains["OUTPUT"].append("-j ACCEPT"),
        lambda chains: chains.pop(marker_chain(FIRST.digest)),
        lambda chains: [chains.pop(name) for name in list(chains) if name.startswith("VCN-")],
    ],
    ids=["a chain", "the hook", "a rule of theirs in ours", "a jump behind ours", "the marker", "all"],
)
def test_a_foreign_change_is_drift_until_applied_again(
    fake: FakePacketFilter, reconciler: RulesetReconciler, spoil: Callable[[dict[str, list[str]]], object]
) -> None:
    reconciler.apply(FIRST)
    spoil(nat(fake))
    assert reconciler.check_drift(CheckLevel.QUICK) is True
    assert drifted(reconciler)
    assert reconciler.check_drift(CheckLevel.QUICK) is False
    with pytest.raises(BaseMismatch):
        reconciler.apply(delta(FIRST, SECOND))
    assert reconciler.apply(FIRST) is True
    assert not reconciler.has_drifted
    assert reconciler.read_back() == FIRST.documents
    assert nat(fake)["OUTPUT"][-1] == "-j VCN-SERVICES"


def test_foreign_rules_are_no_drift(fake: FakePacketFilter, reconciler: RulesetReconciler) -> None:
    reconciler.apply(FIRST)
    nat(fake)["PREROUTING"].append("-j ACCEPT")
    fake.iptables[Family.IPV4].tables["filter"]["INPUT"].append("-j DROP")
    assert reconciler.check_drift() is False
    assert not reconciler.has_drifted
    assert reconciler.apply(delta(FIRST, SECOND)) is True


def test_a_reverted_foreign_change_ends_the_drift(
    fake: FakePacketFilter, reconciler: RulesetReconciler
) -> None:
    reconciler.apply(FIRST)
    rule = nat(fake)["VCN-SVC-A"].pop()
    assert reconciler.check_drift() is True
    nat(fake)["VCN-SVC-A"].append(rule)
    assert reconciler.check_drift() is True
    assert not reconciler.has_drifted


def test_apply_detects_a_foreign_change_first(fake: FakePacketFilter, reconciler: RulesetReconciler) -> None:
    reconciler.apply(FIRST)
    nat(fake)["VCN-SERVICES"].clear()
    assert reconciler.digest == FIRST.digest
    with pytest.raises(BaseMismatch):
        reconciler.apply(delta(FIRST, SECOND))
    assert reconciler.has_drifted


def test_a_refused_ruleset_changes_nothing(fake: FakePacketFilter, reconciler: RulesetReconciler) -> None:
    reconciler.apply(FIRST)
    before = fake.text(Family.IPV4)
    fake.refused = "10.1.0.2"
    with pytest.raises(RulesRefusedError, match=r"10\.1\.0\.2"):
        reconciler.apply(delta(FIRST, SECOND))
    assert fake.text(Family.IPV4) == before
    assert (reconciler.digest, reconciler.has_drifted) == (FIRST.digest, False)


def test_a_refused_family_rolls_back_the_other(fake: FakePacketFilter, reconciler: RulesetReconciler) -> None:
    old, new = both(1, "10.1.0.1:80"), both(2, "10.1.0.2:80")
    reconciler.apply(old)
    fake.refused = rules("fd00::1/128", "10.1.0.2:80")[0]
    with pytest.raises(RulesRefusedError):
        reconciler.apply(new)
    assert reconciler.read_back() == old.documents
    assert (reconciler.digest, reconciler.has_drifted) == (old.digest, False)


def test_a_failed_rollback_is_drift(fake: FakePacketFilter, reconciler: RulesetReconciler) -> None:
    reconciler.apply(FIRST)
    fake.refused = "VCN-"
    nat(fake)["VCN-SVC-A"].clear()
    with pytest.raises(RulesRefusedError):
        reconciler.apply(SECOND)
    assert reconciler.has_drifted
    fake.refused = ""
    reconciler.apply(SECOND)
    assert not reconciler.has_drifted


def test_a_refused_first_ruleset_leaves_nothing(
    fake: FakePacketFilter, reconciler: RulesetReconciler
) -> None:
    fake.refused = "-d fd00::1/128"
    with pytest.raises(RulesRefusedError):
        reconciler.apply(both(1, "10.1.0.1:80"))
    assert reconciler.read_back() == ()
    assert (reconciler.digest, reconciler.has_drifted) == ("", False)


def test_a_missing_program_is_found_before_any_load(
    fake: FakePacketFilter, reconciler: RulesetReconciler
) -> None:
    fake.missing[V6] = "no ip6tables-restore in this guest"
    with pytest.raises(FilterUnavailableError, match="no ip6tables-restore in this guest"):
        reconciler.apply(both(1, "10.1.0.1:80"))
    assert fake.loaded == []


def test_a_family_without_document_is_removed(fake: FakePacketFilter, reconciler: RulesetReconciler) -> None:
    reconciler.apply(both(1, "10.1.0.1:80"))
    reconciler.apply(FIRST)
    assert reconciler.read_back() == FIRST.documents
    assert not [name for name in nat(fake, Family.IPV6) if name.startswith("VCN-")]
    reconciler.apply(make_ruleset(9, ()))
    assert reconciler.read_back() == ()
    assert nat(fake)["OUTPUT"] == []
    assert reconciler.digest == make_ruleset(0, ()).digest


def test_without_a_packet_filter_all_missing_is_named(fake: FakePacketFilter) -> None:
    fake.missing = {tool: f"no {tool[1].value}" for tool in (*fake.supported, *fake.missing)}
    reconciler = RulesetReconciler(fake, None)
    with pytest.raises(FilterUnavailableError, match="no iptables; no nft"):
        reconciler.read_back()


class TestAfterARestart:
    def test_saved_and_marked_rules_are_adopted(self, fake: FakePacketFilter) -> None:
        RulesetReconciler(fake, None).apply(both(5, "10.1.0.1:80"))
        loads = len(fake.loaded)
        again = RulesetReconciler(fake, AppliedRuleset(5, both(5, "10.1.0.1:80").digest))
        assert (again.generation, again.has_drifted) == (5, False)
        assert again.apply(both(5, "10.1.0.1:80")) is False
        assert len(fake.loaded) == loads
        assert again.apply(delta(both(5, "10.1.0.1:80"), both(6, "10.1.0.2:80"))) is True

    def test_without_saved_state_the_digest_is_adopted(self, fake: FakePacketFilter) -> None:
        RulesetReconciler(fake, None).apply(FIRST)
        again = RulesetReconciler(fake, None)
        assert (again.generation, again.digest, again.has_drifted) == (0, FIRST.digest, False)

    def test_the_kernels_digest_overrides_saved_state(self, fake: FakePacketFilter) -> None:
        reconciler = RulesetReconciler(fake, None)
        reconciler.apply(FIRST)
        reconciler.apply(SECOND)
        again = RulesetReconciler(fake, AppliedRuleset(1, FIRST.digest))
        assert (again.generation, again.digest, again.has_drifted) == (0, SECOND.digest, False)

    def test_rules_changed_while_stopped_are_drift(self, fake: FakePacketFilter) -> None:
        RulesetReconciler(fake, None).apply(FIRST)
        nat(fake)["VCN-SVC-A"].clear()
        again = RulesetReconciler(fake, AppliedRuleset(1, FIRST.digest))
        assert (again.generation, again.digest, again.has_drifted) == (1, FIRST.digest, True)
        assert again.apply(FIRST) is True
        assert again.read_back() == FIRST.documents

    def test_rules_removed_while_stopped_are_drift(self, fake: FakePacketFilter) -> None:
        again = RulesetReconciler(fake, AppliedRuleset(1, FIRST.digest))
        assert (again.digest, again.has_drifted) == (FIRST.digest, True)
        assert again.apply(FIRST) is True
        assert not again.has_drifted

    def test_a_half_applied_ruleset_is_drift(self, fake: FakePacketFilter) -> None:
        RulesetReconciler(fake, None).apply(both(1, "10.1.0.1:80"))
        fake.refused = "-d fd00::1/128"
        reconciler = RulesetReconciler(fake, None)
        with pytest.raises(RulesRefusedError):
            reconciler.apply(both(2, "10.1.0.2:80"))
        # As if the process had been killed before the rollback.
        fake.refused = ""
        other = FakePacketFilter()
        RulesetReconciler(other, None).apply(both(2, "10.1.0.2:80"))
        fake.iptables[Family.IPV4] = other.iptables[Family.IPV4]
        again = RulesetReconciler(fake, AppliedRuleset(1, both(1, "10.1.0.1:80").digest))
        assert again.has_drifted
        assert again.apply(both(2, "10.1.0.2:80")) is True
        assert again.read_back() == both(2, "10.1.0.2:80").documents

    def test_an_unreadable_filter_is_drift(self, fake: FakePacketFilter) -> None:
        fake.unavailable = "xtables lock"
        reconciler = RulesetReconciler(fake, None)
        assert (reconciler.digest, reconciler.has_drifted) == ("", True)
        with pytest.raises(FilterUnavailableError, match="xtables lock"):
            reconciler.apply(FIRST)
        fake.unavailable = ""
        assert reconciler.apply(FIRST) is True
        assert not reconciler.has_drifted


def _udp(generation: int, *destinations: tuple[str, int]) -> Ruleset:
    lines = tuple(
        f"-d {ip}/32 -p udp -m udp --dport {port} -j DNAT --to-destination 10.1.0.1:53"
        for ip, port in destinations
    )
    objects = {"nat/OUTPUT": ("-j VCN-SERVICES",), "nat/VCN-SERVICES": lines}
    return make_ruleset(generation, [Document(Family.IPV4, Backend.IPTABLES, objects)])


def test_the_installed_rules_show_which_flows_end(fake: FakePacketFilter) -> None:
    """Whoever sends the new ruleset may have been restarted, and this agent too."""
    old = _udp(1, ("10.96.0.10", 53), ("10.96.0.11", 53), ("10.96.0.12", 53))
    new = _udp(2, ("10.96.0.10", 53), ("10.96.0.11", 54))
    ended = {Endpoint("10.96.0.11", 53), Endpoint("10.96.0.12", 53)}
    RulesetReconciler(fake, None).apply(old)
    for saved in (None, AppliedRuleset(1, old.digest)):
        reconciler = RulesetReconciler(fake, saved)
        assert reconciler.ended_frontends(new) == ended
        assert reconciler.ended_frontends(old) == frozenset()
        # kata-bridge makes deltas of what kubeproxy-ext sends whole.
        assert reconciler.ended_frontends(delta(old, new)) == ended
        assert reconciler.ended_frontends(delta(new, old)) == frozenset()
    another = "-A VCN-SERVICES -d 10.96.0.13/32 -p udp -m udp --dport 53 -j DNAT --to-destination 10.1.0.1:53"
    fake.iptables[Family.IPV4].restore(f"*nat\n{another}\nCOMMIT\n")
    drifted = RulesetReconciler(fake, None)
    assert drifted.has_drifted
    assert drifted.ended_frontends(new) == {*ended, Endpoint("10.96.0.13", 53)}
