# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kata_bridge.start_gate.core.decision import (
    BEHIND_S,
    Admitted,
    Asking,
    Held,
    Kind,
    MountPoint,
    Need,
    Policy,
    PolicyRule,
    Resolver,
    Rules,
    Subject,
    are_in,
    brings_its_own,
    decide,
    is_in_place,
    policy_of,
)

BOTH = frozenset(Need)
IN = Rules(digest="d", desired="d")
POD = Subject(
    tenant="vc-a",
    networks=("blue",),
    is_host_network=False,
    refusal="",
    readiness=None,
    rules=IN,
    resolver=Resolver("nameserver 10.1.0.10\n"),
)
MAIN = Asking("main")
NOBODY_SAID = "nobody has said yet which DNS server network blue has"


def held(subject: Subject, asking: Asking = MAIN) -> str:
    decision = decide(subject, asking, Policy.ENFORCE, BOTH)
    assert isinstance(decision, Held), decision
    return "; ".join(reason.words for reason in decision.reasons)


def test_all_is_in() -> None:
    assert decide(POD, MAIN, Policy.ENFORCE, BOTH) == Admitted(has_mount=True)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (Rules(), "the pod's guest has not answered yet, so the Services of network blue are not in it"),
        (
            Rules(unreachable="/run/vc/sbs/x/shim-monitor.sock: Connection refused"),
            "the pod's guest cannot be reached, so the Services of network blue are not in it",
        ),
        (
            Rules(not_injectable="the guest has no\niptables"),
            "the Services of network blue cannot be put into the pod's guest: the guest has no iptables",
        ),
        (Rules(digest=""), "nobody has said yet what the Services of network blue are"),
        (Rules(digest="", desired="d"), "the Services of network blue are being put into the pod's guest"),
        (
            Rules(digest="", desired="d", refused="-A VCN-X line of a rule"),
            "the pod's guest refuses the rules for the Services of network blue",
        ),
        (
            Rules(digest="d", desired="d", has_drifted=True),
            "the pod's guest has lost the Services of network blue, they are being put back",
        ),
        (
            Rules(digest="c", desired="d", was_lost=True),
            "the pod's guest has lost the Services of network blue, they are being put back",
        ),
        (
            Rules(digest="c", desired="d", behind_s=BEHIND_S + 1),
            "the Services of network blue are being put into the pod's guest",
        ),
    ],
)
def test_rules_that_are_not_in_and_what_the_author_reads(rules: Rules, words: str) -> None:
    assert held(replace(POD, rules=rules)) == words


@pytest.mark.parametrize(
    "rules",
    [
        IN,
        Rules(digest="d"),  # since our start nobody has said what it shall hold; it says what it holds
        Rules(digest="c", desired="d", behind_s=BEHIND_S),  # a change is on its way to all that run
        Rules(digest="d", desired="d", refused="an older one"),
    ],
)
def test_rules_that_are_in(rules: Rules) -> None:
    assert are_in(rules)


@pytest.mark.parametrize(
    ("resolver", "words"),
    [
        (None, NOBODY_SAID),
        (Resolver(waits="network blue has no DNS server yet"), "network blue has no DNS server yet"),
        (Resolver("nameserver 10.1.0.10\n", waits="network blue is gone"), "network blue is gone"),
    ],
)
def test_resolvers_that_are_waited_for(resolver: Resolver | None, words: str) -> None:
    assert held(replace(POD, resolver=resolver)) == words


ELSEWHERE = "its resolver is for another network; waiting for dnsconfig"


@pytest.mark.parametrize("said", [Resolver("nameserver 10.1.0.10\n"), Resolver(waits="network red is gone")])
@pytest.mark.parametrize("networks", [("red",), ("blue", "red"), ("Blue",)])
def test_what_was_said_for_another_network_is_not_said(said: Resolver, networks: tuple[str, ...]) -> None:
    subject = replace(POD, resolver=replace(said, networks=networks))
    assert held(subject) == ELSEWHERE
    assert decide(subject, MAIN, Policy.OFF, BOTH) == Admitted(has_mount=False)
    on_host = replace(subject, is_host_network=True, rules=None)
    assert decide(on_host, MAIN, Policy.ENFORCE, BOTH) == Admitted(has_mount=False)
    # A container that brings its own, and a node where nobody says resolvers, wait for none.
    assert decide(subject, Asking("main", has_own=True), Policy.ENFORCE, BOTH) == Admitted(has_mount=False)
    assert decide(subject, MAIN, Policy.ENFORCE, {Need.RULES}) == Admitted(has_mount=False)


@pytest.mark.parametrize("networks", [(), ("blue",), ("blue", "blue")])
def test_what_was_said_for_its_own_network(networks: tuple[str, ...]) -> None:
    subject = replace(POD, resolver=Resolver("nameserver 10.1.0.10\n", networks=networks))
    assert decide(subject, MAIN, Policy.ENFORCE, BOTH) == Admitted(has_mount=True)


def test_an_agent_without_its_certificate_waits_where_its_pod_may_be_held() -> None:
    asking = Asking("vcnode-guest-agent", is_agent=True, lacks_certificate=True)
    subject = replace(POD, rules=Rules(digest=""))
    words = (
        "the node cannot make the certificate of the pod's agent now, which is to put in the Services of"
        " network blue"
    )
    assert held(subject, asking) == words
    assert decide(subject, asking, Policy.OFF, BOTH) == Admitted(has_mount=True)
    assert decide(replace(subject, tenant=""), asking, Policy.ENFORCE, BOTH) == Admitted(has_mount=True)
    warned = decide(subject, asking, Policy.WARN, BOTH)
    assert isinstance(warned, Admitted)
    assert [reason.words for reason in warned.lacks] == [words]


def test_both_at_once_are_both_said() -> None:
    decision = decide(replace(POD, rules=Rules(digest=""), resolver=None), MAIN, Policy.ENFORCE, BOTH)
    assert isinstance(decision, Held)
    assert [reason.kind for reason in decision.reasons] == [Kind.RULES, Kind.RESOLVER]
    assert decision.text == (
        f"waiting: nobody has said yet what the Services of network blue are; {NOBODY_SAID}"
        " (it is tried again by itself)"
    )


@pytest.mark.parametrize(
    ("readiness", "is_held"),
    [(None, False), ("true", False), ("True", False), ("false", True), ("", True), ("yes", True)],
)
def test_network_readiness(readiness: str | None, is_held: bool) -> None:
    decision = decide(replace(POD, readiness=readiness), MAIN, Policy.ENFORCE, BOTH)
    assert isinstance(decision, Held) == is_held
    on_host = replace(POD, readiness=readiness, is_host_network=True, rules=None)
    assert isinstance(decide(on_host, MAIN, Policy.ENFORCE, BOTH), Admitted)


def test_a_pod_that_is_no_guest_waits_for_its_resolver_alone() -> None:
    runc = replace(POD, rules=None)
    assert decide(runc, MAIN, Policy.ENFORCE, BOTH) == Admitted(has_mount=True)
    assert held(replace(runc, resolver=None)) == NOBODY_SAID


def test_needs_are_configuration() -> None:
    bare = replace(POD, rules=Rules(), resolver=None)
    assert isinstance(decide(bare, MAIN, Policy.ENFORCE, ()), Admitted)
    for need, kind in ((Need.RULES, Kind.RULES), (Need.RESOLVER, Kind.RESOLVER)):
        decision = decide(bare, MAIN, Policy.ENFORCE, {need})
        assert isinstance(decision, Held)
        assert [reason.kind for reason in decision.reasons] == [kind]
    # What was said of a pod counts, whether anybody was expected to say it or not.
    decision = decide(replace(bare, resolver=Resolver(waits="w")), MAIN, Policy.ENFORCE, ())
    assert isinstance(decision, Held)


def test_pods_that_are_none_of_ours_are_never_refused() -> None:
    nobodys = replace(POD, tenant="", rules=Rules(), resolver=None, readiness="false")
    for policy in Policy:
        assert decide(nobodys, MAIN, policy, BOTH) == Admitted(has_mount=False)
    said = replace(nobodys, resolver=Resolver("nameserver 10.1.0.10\n"))
    assert decide(said, MAIN, Policy.ENFORCE, BOTH) == Admitted(has_mount=True)


def test_the_hosts_network_waits_only_for_what_somebody_says() -> None:
    host = replace(POD, is_host_network=True, rules=None, resolver=None)
    assert decide(host, MAIN, Policy.ENFORCE, BOTH) == Admitted(has_mount=False)
    assert (
        held(replace(host, resolver=Resolver(waits="network blue is missing"))) == "network blue is missing"
    )


def test_a_pod_whose_tenant_cannot_be_told_is_held() -> None:
    unclear = replace(POD, tenant="", refusal="whose pod it is cannot be told: key")
    assert held(unclear) == "whose pod it is cannot be told: key"


def test_a_container_with_a_resolv_conf_of_its_own() -> None:
    own = Asking("main", has_own=True)
    assert decide(POD, own, Policy.ENFORCE, BOTH) == Admitted(has_mount=False)
    assert decide(replace(POD, resolver=None), own, Policy.ENFORCE, BOTH) == Admitted(has_mount=False)
    assert held(replace(POD, resolver=Resolver(waits="w")), own) == "w"


def test_the_agent_in_the_pod_does_not_wait_for_itself() -> None:
    agent = Asking("vcnode-guest-agent", is_agent=True)
    starting = replace(POD, rules=Rules())
    assert decide(starting, agent, Policy.ENFORCE, BOTH) == Admitted(has_mount=True)
    assert held(replace(starting, resolver=None), agent) == NOBODY_SAID


def test_warn_says_what_is_missing_and_off_does_not() -> None:
    bare = replace(POD, rules=Rules(digest=""), resolver=None)
    warned = decide(bare, MAIN, Policy.WARN, BOTH)
    assert isinstance(warned, Admitted)
    assert [reason.kind for reason in warned.lacks] == [Kind.RULES, Kind.RESOLVER]
    assert decide(bare, MAIN, Policy.OFF, BOTH) == Admitted(has_mount=False)
    assert decide(POD, MAIN, Policy.OFF, BOTH) == Admitted(has_mount=True)


TEXTS = st.sampled_from(["", "d", "e"])
RULES = st.builds(
    Rules,
    digest=st.none() | TEXTS,
    has_drifted=st.booleans(),
    desired=st.none() | TEXTS,
    behind_s=st.sampled_from([0.0, BEHIND_S, 60.0]),
    was_lost=st.booleans(),
    not_injectable=TEXTS,
    refused=TEXTS,
    unreachable=TEXTS,
)
SUBJECTS = st.builds(
    Subject,
    tenant=st.sampled_from(["", "vc-a"]),
    networks=st.just(("blue",)),
    is_host_network=st.booleans(),
    refusal=TEXTS,
    readiness=st.sampled_from([None, "true", "false"]),
    rules=st.none() | RULES,
    resolver=st.none() | st.builds(Resolver, TEXTS, TEXTS),
)
ASKING = st.builds(Asking, st.just("main"), st.booleans(), st.booleans())


@given(SUBJECTS, ASKING)
def test_nothing_of_a_tenant_starts_before_all_is_in(subject: Subject, asking: Asking) -> None:
    decision = decide(subject, asking, Policy.ENFORCE, BOTH)
    if not isinstance(decision, Admitted) or not subject.tenant or subject.is_host_network:
        return
    assert (
        subject.rules is None or asking.is_agent or (subject.rules.digest and not subject.rules.has_drifted)
    )
    assert subject.readiness in (None, "true")
    assert not subject.refusal
    assert subject.resolver is None or not subject.resolver.waits
    assert asking.has_own or (subject.resolver is not None and subject.resolver.text and decision.has_mount)


@given(SUBJECTS, ASKING, st.sets(st.sampled_from(Need)))
def test_only_enforce_refuses_and_what_it_refuses_warn_names(
    subject: Subject, asking: Asking, needs: set[Need]
) -> None:
    enforced = decide(subject, asking, Policy.ENFORCE, needs)
    warned = decide(subject, asking, Policy.WARN, needs)
    off = decide(subject, asking, Policy.OFF, needs)
    assert isinstance(warned, Admitted)
    assert isinstance(off, Admitted)
    assert not off.lacks
    assert warned.lacks == (enforced.reasons if isinstance(enforced, Held) else ())
    if isinstance(enforced, Held):
        assert enforced.reasons
        assert all(reason.words and "\n" not in reason.words for reason in enforced.reasons)
        assert subject.tenant or subject.refusal


@given(st.text(max_size=2000))
def test_what_others_say_becomes_one_short_line(text: str) -> None:
    decision = decide(replace(POD, resolver=Resolver(waits=text or "x")), MAIN, Policy.ENFORCE, BOTH)
    assert isinstance(decision, Held)
    assert len(decision.text) < 400
    assert decision.text.isprintable()


def test_the_first_rule_that_names_a_namespace_decides() -> None:
    rules = (PolicyRule(("vc-a-*", "kube-system"), Policy.OFF), PolicyRule(("vc-*",), Policy.WARN))
    names = ("vc-a-shop", "kube-system", "vc-b-shop", "default")
    found = [policy_of(name, rules, Policy.ENFORCE) for name in names]
    assert found == [Policy.OFF, Policy.OFF, Policy.WARN, Policy.ENFORCE]


OF_CONTAINERD = "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/s1/resolv.conf"
OF_CRIO = "/run/containers/storage/overlay-containers/s1/userdata/resolv.conf"
OF_POD = "/var/lib/kubelet/pods/uid/volume-subpaths/config/main/0"


@pytest.mark.parametrize(
    ("mounts", "is_own"),
    [
        ([], False),
        ([("/etc/resolv.conf", OF_CONTAINERD)], False),
        ([("/etc/resolv.conf", OF_CRIO)], False),
        ([("/etc/resolv.conf", OF_POD)], True),
        ([("/etc//resolv.conf/", OF_POD)], True),
        ([("//etc/./resolv.conf", OF_POD)], True),
        ([("/etc", OF_POD), ("/etc/resolv.conf", OF_CONTAINERD)], False),
        ([("/etc/hosts", OF_POD)], False),
    ],
)
def test_whose_resolv_conf_a_container_has(mounts: list[tuple[str, str]], is_own: bool) -> None:
    assert brings_its_own("s1", [MountPoint(*mount) for mount in mounts]) == is_own


OURS = "/run/vcnode/pods/s1/resolv.conf"


@pytest.mark.parametrize(
    ("adjusted", "is_ours"),
    [
        ([("/etc/resolv.conf", OURS)], True),
        ([("-/etc/resolv.conf", ""), ("/etc/resolv.conf", OURS)], True),
        ([("/etc/hosts", "/x"), ("/etc/resolv.conf", OURS)], True),
        ([], False),
        ([("/etc/resolv.conf", "/other")], False),
        ([("-/etc/resolv.conf", "")], False),
        ([("/etc/resolv.conf", OURS), ("/etc//resolv.conf", "/other")], False),
    ],
)
def test_whether_our_mount_is_still_in_place(adjusted: list[tuple[str, str]], is_ours: bool) -> None:
    assert is_in_place(OURS, [MountPoint(*mount) for mount in adjusted]) == is_ours
