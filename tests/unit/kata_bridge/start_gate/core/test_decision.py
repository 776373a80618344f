# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kata_bridge.start_gate.core.decision import (
    MAX_RULES_LAG_S,
    Allowed,
    Blocked,
    ContainerFacts,
    MountPoint,
    Need,
    PodFacts,
    Policy,
    PolicyRule,
    Reason,
    RulesState,
    StartGateSettings,
    SubmittedResolver,
    decide,
    has_own_resolv_conf,
    is_complete,
    is_only_resolv_conf,
)

BOTH = frozenset(Need)
POD = PodFacts(
    tenant="vc-a",
    networks=("blue",),
    is_host_network=False,
    ownership_problem="",
    readiness=None,
    rules=RulesState(digest="d", desired="d"),
    resolver=SubmittedResolver("nameserver 10.1.0.10\n"),
)
MAIN = ContainerFacts("main")
NO_RESOLVER = "the resolver of network blue is not synced: dnsconfig has not submitted it yet"
NO_RULES = "the Services of network blue are not synced: kubeproxy-ext has not submitted them yet"


def messages(pod: PodFacts, container: ContainerFacts = MAIN) -> list[str]:
    """Why an enforced pod is blocked."""
    decision = decide(pod, container, Policy.ENFORCE, BOTH)
    assert isinstance(decision, Blocked), decision
    return [blocker.message for blocker in decision.blockers]


def test_a_pod_with_all_needs_met_starts() -> None:
    assert decide(POD, MAIN, Policy.ENFORCE, BOTH) == Allowed(mounts_resolv_conf=True)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            RulesState(),
            "the pod's guest has not answered yet, so the Services of network blue are not applied",
        ),
        (
            RulesState(unreachable="/run/vc/sbs/x/shim-monitor.sock: Connection refused"),
            "the pod's guest cannot be reached, so the Services of network blue are not applied",
        ),
        (
            RulesState(not_injectable="the guest has no\niptables"),
            "the Services of network blue cannot be applied in the pod's guest: the guest has no iptables",
        ),
        (RulesState(digest=""), NO_RULES),
        (
            RulesState(digest="", desired="d"),
            "the Services of network blue are being applied in the pod's guest",
        ),
        (
            RulesState(digest="", desired="d", refused="-A VCN-X line of a rule"),
            "the pod's guest refuses the rules of the Services of network blue",
        ),
        (
            RulesState(digest="d", desired="d", has_drifted=True),
            "the pod's guest has lost the Services of network blue, they are being applied again",
        ),
        (
            RulesState(digest="c", desired="d", was_lost=True),
            "the pod's guest has lost the Services of network blue, they are being applied again",
        ),
        (
            RulesState(digest="c", desired="d", lag_s=MAX_RULES_LAG_S + 1),
            "the Services of network blue are being applied in the pod's guest",
        ),
    ],
)
def test_rules_that_are_not_current_block(rules: RulesState, message: str) -> None:
    assert messages(replace(POD, rules=rules)) == [message]


@pytest.mark.parametrize(
    "rules",
    [
        RulesState(digest="d", desired="d"),
        RulesState(digest="d"),  # after our restart the guest has reported, and kubeproxy-ext has not
        RulesState(digest="c", desired="d", lag_s=MAX_RULES_LAG_S),  # an endpoint changed a moment ago
        RulesState(digest="d", desired="d", refused="an older ruleset"),
    ],
)
def test_rules_that_are_current(rules: RulesState) -> None:
    assert rules.are_current


@pytest.mark.parametrize(
    ("resolver", "message"),
    [
        (None, NO_RESOLVER),
        (
            SubmittedResolver(wait_message="network blue has no DNS server yet"),
            "network blue has no DNS server yet",
        ),
        (
            SubmittedResolver("nameserver 10.1.0.10\n", wait_message="network blue is gone"),
            "network blue is gone",
        ),
    ],
)
def test_a_missing_resolver_or_its_wait_message_blocks(
    resolver: SubmittedResolver | None, message: str
) -> None:
    assert messages(replace(POD, resolver=resolver)) == [message]


@pytest.mark.parametrize(
    "resolver",
    [SubmittedResolver("nameserver 10.1.0.10\n"), SubmittedResolver(wait_message="network red is gone")],
)
@pytest.mark.parametrize("networks", [("red",), ("blue", "red"), ("Blue",)])
def test_a_resolver_for_another_network_is_not_used(
    resolver: SubmittedResolver, networks: tuple[str, ...]
) -> None:
    pod = replace(POD, resolver=replace(resolver, networks=networks))
    assert messages(pod) == ["its resolver is for another network; waiting for dnsconfig"]
    assert decide(pod, MAIN, Policy.OFF, BOTH) == Allowed(mounts_resolv_conf=False)
    on_host = replace(pod, is_host_network=True, rules=None)
    assert decide(on_host, MAIN, Policy.ENFORCE, BOTH) == Allowed(mounts_resolv_conf=False)
    # Neither a container with its own resolv.conf nor a node without dnsconfig needs one.
    own = ContainerFacts("main", has_own_resolv_conf=True)
    assert decide(pod, own, Policy.ENFORCE, BOTH) == Allowed(mounts_resolv_conf=False)
    assert decide(pod, MAIN, Policy.ENFORCE, {Need.RULES}) == Allowed(mounts_resolv_conf=False)


@pytest.mark.parametrize("networks", [(), ("blue",), ("blue", "blue")])
def test_a_resolver_for_the_sandboxs_networks_is_mounted(networks: tuple[str, ...]) -> None:
    pod = replace(POD, resolver=SubmittedResolver("nameserver 10.1.0.10\n", networks=networks))
    assert decide(pod, MAIN, Policy.ENFORCE, BOTH) == Allowed(mounts_resolv_conf=True)


def test_an_agent_without_its_certificate_is_blocked() -> None:
    agent = ContainerFacts("vcnode-guest-agent", is_agent=True, lacks_certificate=True)
    pod = replace(POD, rules=RulesState(digest=""))
    message = (
        "the node cannot issue the certificate of the pod's guest agent, which applies the Services of"
        " network blue"
    )
    assert messages(pod, agent) == [message]
    assert decide(pod, agent, Policy.OFF, BOTH) == Allowed(mounts_resolv_conf=True)
    assert decide(replace(pod, tenant=""), agent, Policy.ENFORCE, BOTH) == Allowed(mounts_resolv_conf=True)
    warned = decide(pod, agent, Policy.WARN, BOTH)
    assert isinstance(warned, Allowed)
    assert [blocker.message for blocker in warned.missing] == [message]


def test_the_message_has_all_blockers() -> None:
    pod = replace(POD, rules=RulesState(digest=""), resolver=None)
    decision = decide(pod, MAIN, Policy.ENFORCE, BOTH)
    assert isinstance(decision, Blocked)
    assert [blocker.reason for blocker in decision.blockers] == [Reason.RULES, Reason.RESOLVER]
    assert decision.message == f"waiting: {NO_RULES}; {NO_RESOLVER} (the kubelet tries again)"


@pytest.mark.parametrize(
    ("readiness", "is_blocked"),
    [(None, False), ("true", False), ("True", False), ("false", True), ("", True), ("yes", True)],
)
def test_only_an_absent_or_true_readiness_starts(readiness: str | None, is_blocked: bool) -> None:
    decision = decide(replace(POD, readiness=readiness), MAIN, Policy.ENFORCE, BOTH)
    assert isinstance(decision, Blocked) == is_blocked
    on_host = replace(POD, readiness=readiness, is_host_network=True, rules=None)
    assert isinstance(decide(on_host, MAIN, Policy.ENFORCE, BOTH), Allowed)


def test_a_pod_that_is_not_a_guest_needs_only_its_resolver() -> None:
    runc = replace(POD, rules=None)
    assert decide(runc, MAIN, Policy.ENFORCE, BOTH) == Allowed(mounts_resolv_conf=True)
    assert messages(replace(runc, resolver=None)) == [NO_RESOLVER]


def test_only_configured_needs_block() -> None:
    without_both = replace(POD, rules=RulesState(), resolver=None)
    assert isinstance(decide(without_both, MAIN, Policy.ENFORCE, ()), Allowed)
    for need, reason in ((Need.RULES, Reason.RULES), (Need.RESOLVER, Reason.RESOLVER)):
        decision = decide(without_both, MAIN, Policy.ENFORCE, {need})
        assert isinstance(decision, Blocked)
        assert [blocker.reason for blocker in decision.blockers] == [reason]
    # A wait message blocks also where the resolver is not needed.
    waiting = replace(without_both, resolver=SubmittedResolver(wait_message="w"))
    assert isinstance(decide(waiting, MAIN, Policy.ENFORCE, ()), Blocked)


def test_a_pod_without_tenant_is_never_blocked() -> None:
    pod = replace(POD, tenant="", rules=RulesState(), resolver=None, readiness="false")
    for policy in Policy:
        assert decide(pod, MAIN, policy, BOTH) == Allowed(mounts_resolv_conf=False)
    with_resolver = replace(pod, resolver=SubmittedResolver("nameserver 10.1.0.10\n"))
    assert decide(with_resolver, MAIN, Policy.ENFORCE, BOTH) == Allowed(mounts_resolv_conf=True)


def test_in_the_host_network_only_a_wait_message_blocks() -> None:
    host = replace(POD, is_host_network=True, rules=None, resolver=None)
    assert decide(host, MAIN, Policy.ENFORCE, BOTH) == Allowed(mounts_resolv_conf=False)
    waiting = replace(host, resolver=SubmittedResolver(wait_message="network blue is missing"))
    assert messages(waiting) == ["network blue is missing"]


def test_invalid_ownership_annotations_block() -> None:
    pod = replace(POD, tenant="", ownership_problem="its ownership annotations are invalid: key")
    assert messages(pod) == ["its ownership annotations are invalid: key"]


def test_a_container_with_its_own_resolv_conf_needs_none() -> None:
    own = ContainerFacts("main", has_own_resolv_conf=True)
    assert decide(POD, own, Policy.ENFORCE, BOTH) == Allowed(mounts_resolv_conf=False)
    assert decide(replace(POD, resolver=None), own, Policy.ENFORCE, BOTH) == Allowed(mounts_resolv_conf=False)
    assert messages(replace(POD, resolver=SubmittedResolver(wait_message="w")), own) == ["w"]


def test_the_agents_container_does_not_wait_for_rules() -> None:
    agent = ContainerFacts("vcnode-guest-agent", is_agent=True)
    starting = replace(POD, rules=RulesState())
    assert decide(starting, agent, Policy.ENFORCE, BOTH) == Allowed(mounts_resolv_conf=True)
    assert messages(replace(starting, resolver=None), agent) == [NO_RESOLVER]


def test_warn_allows_and_names_missing_parts_off_does_not() -> None:
    without_both = replace(POD, rules=RulesState(digest=""), resolver=None)
    warned = decide(without_both, MAIN, Policy.WARN, BOTH)
    assert isinstance(warned, Allowed)
    assert [blocker.reason for blocker in warned.missing] == [Reason.RULES, Reason.RESOLVER]
    assert not is_complete(warned)
    assert decide(without_both, MAIN, Policy.OFF, BOTH) == Allowed(mounts_resolv_conf=False)
    assert decide(POD, MAIN, Policy.OFF, BOTH) == Allowed(mounts_resolv_conf=True)


TEXTS = st.sampled_from(["", "d", "e"])
RULES = st.builds(
    RulesState,
    digest=st.none() | TEXTS,
    has_drifted=st.booleans(),
    desired=st.none() | TEXTS,
    lag_s=st.sampled_from([0.0, MAX_RULES_LAG_S, 60.0]),
    was_lost=st.booleans(),
    not_injectable=TEXTS,
    refused=TEXTS,
    unreachable=TEXTS,
)
PODS = st.builds(
    PodFacts,
    tenant=st.sampled_from(["", "vc-a"]),
    networks=st.just(("blue",)),
    is_host_network=st.booleans(),
    ownership_problem=TEXTS,
    readiness=st.sampled_from([None, "true", "false"]),
    rules=st.none() | RULES,
    resolver=st.none() | st.builds(SubmittedResolver, TEXTS, TEXTS),
)
CONTAINERS = st.builds(ContainerFacts, st.just("main"), st.booleans(), st.booleans())


@given(PODS, CONTAINERS)
def test_no_tenants_container_starts_before_its_needs_are_met(
    pod: PodFacts, container: ContainerFacts
) -> None:
    decision = decide(pod, container, Policy.ENFORCE, BOTH)
    if not isinstance(decision, Allowed) or not pod.tenant or pod.is_host_network:
        return
    assert pod.rules is None or container.is_agent or (pod.rules.digest and not pod.rules.has_drifted)
    assert pod.readiness in (None, "true")
    assert not pod.ownership_problem
    assert pod.resolver is None or not pod.resolver.wait_message
    has_resolver = pod.resolver is not None and pod.resolver.text and decision.mounts_resolv_conf
    assert container.has_own_resolv_conf or has_resolver


@given(PODS, CONTAINERS, st.sets(st.sampled_from(Need)))
def test_only_enforce_blocks_and_warn_names_the_same(
    pod: PodFacts, container: ContainerFacts, needs: set[Need]
) -> None:
    enforced = decide(pod, container, Policy.ENFORCE, needs)
    warned = decide(pod, container, Policy.WARN, needs)
    off = decide(pod, container, Policy.OFF, needs)
    assert isinstance(warned, Allowed)
    assert isinstance(off, Allowed)
    assert not off.missing
    assert warned.missing == (enforced.blockers if isinstance(enforced, Blocked) else ())
    if isinstance(enforced, Blocked):
        assert enforced.blockers
        assert all(blocker.message and "\n" not in blocker.message for blocker in enforced.blockers)
        assert pod.tenant or pod.ownership_problem


@given(st.text(max_size=2000))
def test_a_foreign_message_becomes_one_short_line(text: str) -> None:
    pod = replace(POD, resolver=SubmittedResolver(wait_message=text or "x"))
    decision = decide(pod, MAIN, Policy.ENFORCE, BOTH)
    assert isinstance(decision, Blocked)
    assert len(decision.message) < 400
    assert decision.message.isprintable()


def test_the_first_policy_rule_that_matches_decides() -> None:
    rules = (PolicyRule(("vc-a-*", "kube-system"), Policy.OFF), PolicyRule(("vc-*",), Policy.WARN))
    settings = StartGateSettings(Policy.ENFORCE, rules, BOTH)
    policies = [settings.policy_of(name) for name in ("vc-a-shop", "kube-system", "vc-b-shop", "default")]
    assert policies == [Policy.OFF, Policy.OFF, Policy.WARN, Policy.ENFORCE]


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
def test_a_volume_at_resolv_conf_is_the_containers_own(mounts: list[tuple[str, str]], is_own: bool) -> None:
    assert has_own_resolv_conf("s1", [MountPoint(*mount) for mount in mounts]) == is_own


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
def test_whether_our_resolv_conf_is_still_mounted(adjusted: list[tuple[str, str]], is_ours: bool) -> None:
    assert is_only_resolv_conf(OURS, [MountPoint(*mount) for mount in adjusted]) == is_ours
