# SPDX-License-Identifier: Apache-2.0
"""Whether a container may start now, and if not, why not.

The start gate promises the pod's author: when the first container starts, Services and DNS work, or the
pod states the reason why it does not start. Unsynced state counts as missing.
A message to the pod's author names only the pod's own objects.
"""

import enum
import posixpath
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kata_bridge.sandboxes.core.sandbox import resolver_applies_to

# A guest that is behind a newer ruleset for no longer than this may still start containers. Endpoints
# change all the time, and every running container has the rules of a moment ago too.
MAX_RULES_LAG_S = 5.0

RESOLV_CONF = "/etc/resolv.conf"

_MAX_MESSAGE_CHARACTERS = 300


class Policy(enum.Enum):
    """What the start gate does for the pods of a namespace."""

    ENFORCE = "enforce"  # block a container until its pod's needs are met
    WARN = "warn"  # start it, and report what was missing
    OFF = "off"  # start it, with dnsconfig's resolver if one was submitted, else with the kubelet's


class Need(enum.Enum):
    """What pods wait for by configuration."""

    RULES = "rules"
    RESOLVER = "resolver"


class Reason(enum.Enum):
    """Why a container is blocked: label `reason` of the start gate's metrics, reason of the node's condition.

    Not the reason of an Event.
    """

    OWNERSHIP = "OwnershipInvalid"
    NETWORK = "NetworkNotReady"
    RULES = "ServicesNotSynced"
    RESOLVER = "ResolverNotSynced"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """The policy of the super cluster's namespaces that match one of the patterns."""

    namespaces: tuple[str, ...]
    policy: Policy


@dataclass(frozen=True, slots=True)
class StartGateSettings:
    """The part of the start gate's configuration that a reload replaces."""

    default_policy: Policy
    rules: tuple[PolicyRule, ...]
    needs: frozenset[Need]

    def policy_of(self, namespace: str) -> Policy:
        """The first rule that matches the namespace decides."""
        for rule in self.rules:
            if any(fnmatchcase(namespace, pattern) for pattern in rule.namespaces):
                return rule.policy
        return self.default_policy


@dataclass(frozen=True, slots=True)
class RulesState:
    """The observed rules of one guest (see `kata_bridge.guests.core.machine`).

    `digest` is empty while the guest has no ruleset of ours, and None while that is unknown. `lag_s` is how
    long the guest has differed from the desired ruleset; 0 if it does not.
    """

    digest: str | None = None
    has_drifted: bool = False
    desired: str | None = None
    lag_s: float = 0.0
    was_lost: bool = False
    not_injectable: str = ""
    refused: str = ""
    unreachable: str = ""

    @property
    def are_current(self) -> bool:
        """Whether the guest has a whole ruleset of ours that lags no more than `MAX_RULES_LAG_S`."""
        if self.not_injectable or not self.digest or self.has_drifted:
            return False
        if self.desired is None or self.desired == self.digest:
            # After our restart the guest reports its applied rules before kubeproxy-ext submits the desired
            # ones.
            return True
        return not self.was_lost and self.lag_s <= MAX_RULES_LAG_S


@dataclass(frozen=True, slots=True)
class SubmittedResolver:
    """The latest SetResolvConf for a pod: the text, or why its containers must wait, or both."""

    text: str = ""
    wait_message: str = ""
    networks: tuple[str, ...] = ()

    def applies_to(self, networks: Collection[str]) -> bool:
        """Whether it was issued for a sandbox that is attached to exactly these networks."""
        return resolver_applies_to(self.networks, networks)


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod, as far as the decision needs it.

    `networks` are those that its sandbox is attached to; the pod's label may have changed since. `readiness`
    is the annotation network-readiness, None without one. `rules` is None for a pod that is not a guest.
    `resolver` is None before the first SetResolvConf.
    """

    tenant: str
    networks: tuple[str, ...]
    is_host_network: bool
    ownership_problem: str
    readiness: str | None
    rules: RulesState | None
    resolver: SubmittedResolver | None

    @property
    def is_gated(self) -> bool:
        """Whether the pod claims to be a tenant's. No other pod is ever blocked."""
        return bool(self.tenant or self.ownership_problem)

    @property
    def applicable_resolver(self) -> SubmittedResolver | None:
        """The resolver, if it was issued for the networks of this sandbox."""
        resolver = self.resolver
        return resolver if resolver is not None and resolver.applies_to(self.networks) else None


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """A container, as far as the decision needs it.

    `has_own_resolv_conf`: a volume is mounted at /etc/resolv.conf. `is_agent`: it is the guest's agent, which
    applies the rules. `lacks_certificate`: it is the agent, and its certificate cannot be issued now.
    """

    name: str
    has_own_resolv_conf: bool = False
    is_agent: bool = False
    lacks_certificate: bool = False


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing that blocks a container."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """The container may start; `missing` is what it starts without, where the policy allows that."""

    mounts_resolv_conf: bool
    missing: tuple[Blocker, ...] = ()


@dataclass(frozen=True, slots=True)
class Blocked:
    """The container may not start now."""

    blockers: tuple[Blocker, ...]

    @property
    def message(self) -> str:
        """What the pod's author reads."""
        blockers = "; ".join(blocker.message for blocker in self.blockers)
        return f"waiting: {blockers} (the kubelet tries again)"


StartDecision = Allowed | Blocked


def decide(
    pod: PodFacts, container: ContainerFacts, policy: Policy, needs: Collection[Need]
) -> StartDecision:
    resolver = pod.applicable_resolver
    mounts = bool(resolver is not None and resolver.text and not container.has_own_resolv_conf)
    if policy is Policy.OFF or not pod.is_gated:
        return Allowed(mounts)
    found = (
        _ownership(pod),
        _network_readiness(pod),
        _rules(pod, container) if Need.RULES in needs else None,
        _certificate(pod, container),
        _resolver(pod, container, is_needed=Need.RESOLVER in needs),
    )
    blockers = tuple(blocker for blocker in found if blocker is not None)
    if blockers and policy is Policy.ENFORCE:
        return Blocked(blockers)
    return Allowed(mounts, blockers)


def is_complete(decision: StartDecision) -> bool:
    """Whether nothing is missing, whatever the policy."""
    return isinstance(decision, Allowed) and not decision.missing


def _ownership(pod: PodFacts) -> Blocker | None:
    if not pod.ownership_problem or pod.is_host_network:
        return None
    return Blocker(Reason.OWNERSHIP, _one_line(pod.ownership_problem))


def _network_readiness(pod: PodFacts) -> Blocker | None:
    if is_ready(pod.readiness) or pod.is_host_network:
        return None
    message = f"network {_network(pod)} is not ready for this pod (annotation network-readiness is not true)"
    return Blocker(Reason.NETWORK, message)


def is_ready(readiness: str | None) -> bool:
    """Whether the annotation network-readiness lets the pod start: it is absent, or true."""
    return readiness is None or readiness.lower() == "true"


def _rules(pod: PodFacts, container: ContainerFacts) -> Blocker | None:
    if pod.rules is None or container.is_agent or pod.rules.are_current:
        return None
    return Blocker(Reason.RULES, _rules_message(pod.rules, _services(pod)))


def _certificate(pod: PodFacts, container: ContainerFacts) -> Blocker | None:
    if not container.lacks_certificate:
        return None
    message = (
        f"the node cannot issue the certificate of the pod's guest agent, which applies {_services(pod)}"
    )
    return Blocker(Reason.RULES, message)


def _rules_message(rules: RulesState, services: str) -> str:
    if rules.not_injectable:
        return f"{services} cannot be applied in the pod's guest: {_one_line(rules.not_injectable)}"
    if rules.digest is None:
        state = "cannot be reached" if rules.unreachable else "has not answered yet"
        return f"the pod's guest {state}, so {services} are not applied"
    if rules.desired is None:
        return f"{services} are not synced: kubeproxy-ext has not submitted them yet"
    if rules.refused:
        return f"the pod's guest refuses the rules of {services}"
    if rules.has_drifted or rules.was_lost:
        return f"the pod's guest has lost {services}, they are being applied again"
    return f"{services} are being applied in the pod's guest"


def _resolver(pod: PodFacts, container: ContainerFacts, *, is_needed: bool) -> Blocker | None:
    resolver = pod.applicable_resolver
    if resolver is not None and resolver.wait_message:
        return Blocker(Reason.RESOLVER, _one_line(resolver.wait_message))
    # A pod in the host's network may use the host's resolver, and need not be given one.
    has_one = resolver is not None and resolver.text
    if not is_needed or container.has_own_resolv_conf or pod.is_host_network or has_one:
        return None
    if pod.resolver is not None and resolver is None:
        return Blocker(Reason.RESOLVER, "its resolver is for another network; waiting for dnsconfig")
    message = f"the resolver of network {_network(pod)} is not synced: dnsconfig has not submitted it yet"
    return Blocker(Reason.RESOLVER, message)


def _services(pod: PodFacts) -> str:
    return f"the Services of network {_network(pod)}"


def _network(pod: PodFacts) -> str:
    return ", ".join(_one_line(name) for name in pod.networks)


def _one_line(text: str) -> str:
    """One line of bounded length: it becomes part of an Event, a log line and a row in a terminal."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MAX_MESSAGE_CHARACTERS else f"{line[: _MAX_MESSAGE_CHARACTERS - 1]}…"


@dataclass(frozen=True, slots=True)
class MountPoint:
    """A mount of a container: its place in the container, and what is mounted there."""

    destination: str
    source: str


def has_own_resolv_conf(sandbox: str, mounts: Sequence[MountPoint]) -> bool:
    """Whether a container, before any plugin adjusted it, has a resolv.conf other than its sandbox's.

    The runtime's own is a file in a directory named like the sandbox (containerd:
    .../sandboxes/ID/resolv.conf, CRI-O: .../ID/userdata/resolv.conf). The runtime leaves it out where a
    volume is mounted there.
    """
    return any(
        _is_resolv_conf(mount.destination) and sandbox not in mount.source.split("/") for mount in mounts
    )


def is_only_resolv_conf(source: str, adjusted: Sequence[MountPoint]) -> bool:
    """Whether `source` is the only resolv.conf among all mounts that plugins added or removed."""
    at_place = [mount for mount in adjusted if _is_resolv_conf(mount.destination.removeprefix("-"))]
    added = [mount for mount in at_place if not mount.destination.startswith("-")]
    return len(added) == 1 and added[0].source == source


def _is_resolv_conf(destination: str) -> bool:
    # normpath keeps two leading slashes: POSIX allows another meaning for them, Linux gives them none.
    return posixpath.normpath(destination).replace("//", "/", 1) == RESOLV_CONF
