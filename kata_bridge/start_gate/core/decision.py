# SPDX-License-Identifier: Apache-2.0
"""Whether a container may be created now, and if not, what its pod waits for.

A promise to the pod's author: when the first container starts, Services and DNS work, or the pod
says in plain words why it is not started. Unknown is not no, and not yes: what nobody has said yet
is waited for. Whatever is said to a pod's author names the pod's own things and no others.
"""

import enum
import posixpath
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

# How long a guest that has a whole ruleset of ours may be behind a newer one and still start
# containers. Endpoints change all the time; a container that is held for each change would be worse
# off than one that starts with the rules of a moment ago, as every running one has them.
BEHIND_S = 5.0

RESOLV_CONF = "/etc/resolv.conf"

_MAX_WORDS = 300


class Policy(enum.Enum):
    """What a namespace's pods are to expect."""

    ENFORCE = "enforce"  # a container waits for what its pod needs
    WARN = "warn"  # it starts, and it is said what it lacked
    OFF = "off"  # it starts; it gets the resolver that is there


class Need(enum.Enum):
    """What a pod may have to wait for by configuration."""

    RULES = "rules"
    RESOLVER = "resolver"


class Kind(enum.Enum):
    """What a reason is about: a label of metrics and of events."""

    IDENTITY = "identity"
    READINESS = "readiness"
    RULES = "rules"
    RESOLVER = "resolver"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """The policy of the super cluster's namespaces that one of the patterns names."""

    namespaces: tuple[str, ...]
    policy: Policy


def policy_of(namespace: str, rules: Sequence[PolicyRule], default: Policy) -> Policy:
    """The first rule that names the namespace decides."""
    for rule in rules:
        if any(fnmatchcase(namespace, pattern) for pattern in rule.namespaces):
            return rule.policy
    return default


@dataclass(frozen=True, slots=True)
class Settings:
    """What a configuration says of the gate."""

    policy: Policy
    rules: tuple[PolicyRule, ...]
    needs: frozenset[Need]

    def policy_of(self, namespace: str) -> Policy:
        return policy_of(namespace, self.rules, self.policy)


@dataclass(frozen=True, slots=True)
class Rules:
    """What is known of the rules of one guest (see `guest.GuestMachine`).

    `digest` is empty while the guest has none of ours, and None while nobody knows. `behind_s` is how
    long it has not been what it shall be; 0 if it is.
    """

    digest: str | None = None
    has_drifted: bool = False
    desired: str | None = None
    behind_s: float = 0.0
    was_lost: bool = False
    not_injectable: str = ""
    refused: str = ""
    unreachable: str = ""


@dataclass(frozen=True, slots=True)
class Resolver:
    """What was said of a pod's resolv.conf: its text, or why there may be no container yet, or both.

    `networks` are those that it was said for; none while that is not known.
    """

    text: str = ""
    waits: str = ""
    networks: tuple[str, ...] = ()

    def is_for(self, networks: Collection[str]) -> bool:
        """Whether it was said for a sandbox that is attached to exactly these."""
        return are_for(self.networks, networks)


def are_for(said: Collection[str], networks: Collection[str]) -> bool:
    """Whether what was said for these networks, none where that is not known, is for a sandbox in those."""
    return not said or frozenset(said) == frozenset(networks)


@dataclass(frozen=True, slots=True)
class Subject:
    """A pod, as far as the gate is concerned.

    `networks` are those that its sandbox is attached to, whatever its label says by now. `readiness` is
    the annotation of that name, None without one. `rules` is None for a pod that is no guest. `resolver`
    is None while nobody has said anything; one for other networks is not used.
    """

    tenant: str
    networks: tuple[str, ...]
    is_host_network: bool
    refusal: str
    readiness: str | None
    rules: Rules | None
    resolver: Resolver | None


@dataclass(frozen=True, slots=True)
class Asking:
    """The container in question.

    `has_own`: it brings a resolv.conf of its own. `is_agent`: it is what puts the rules in.
    `lacks_certificate`: it is that, and the certificate that is mounted only now cannot be made.
    """

    name: str
    has_own: bool = False
    is_agent: bool = False
    lacks_certificate: bool = False


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is waited for, for a person."""

    kind: Kind
    words: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The container may be created; with the pod's resolv.conf mounted if `has_mount`.

    `lacks` is what it starts without, where the policy lets it.
    """

    has_mount: bool
    lacks: tuple[Reason, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing, whatever the policy."""
        return not self.lacks


@dataclass(frozen=True, slots=True)
class Held:
    """The container may not be created now."""

    reasons: tuple[Reason, ...]
    is_whole: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """What the pod's author reads."""
        return f"waiting: {'; '.join(reason.words for reason in self.reasons)} (it is tried again by itself)"


def is_ours(subject: Subject) -> bool:
    """Whether the pod says to be a tenant's; of all others nothing is ever refused."""
    return bool(subject.tenant or subject.refusal)


def decide(subject: Subject, asking: Asking, policy: Policy, needs: Collection[Need]) -> Admitted | Held:
    """Say whether the container may be created."""
    resolver = _own_resolver(subject)
    has_mount = bool(resolver is not None and resolver.text and not asking.has_own)
    if policy is Policy.OFF or not is_ours(subject):
        return Admitted(has_mount)
    reasons = tuple(
        reason
        for reason in (
            _identity(subject),
            _readiness(subject),
            None if Need.RULES not in needs else _rules(subject, asking),
            _certificate(subject, asking),
            _resolver(subject, asking, is_needed=Need.RESOLVER in needs),
        )
        if reason is not None
    )
    if not reasons:
        return Admitted(has_mount)
    return Held(reasons) if policy is Policy.ENFORCE else Admitted(has_mount, reasons)


def _identity(subject: Subject) -> Reason | None:
    if not subject.refusal or subject.is_host_network:
        return None
    return Reason(Kind.IDENTITY, _plain(subject.refusal))


def _readiness(subject: Subject) -> Reason | None:
    if is_ready(subject.readiness) or subject.is_host_network:
        return None
    words = (
        f"network {_network(subject)} is not ready for this pod (its annotation network-readiness says so)"
    )
    return Reason(Kind.READINESS, words)


def is_ready(readiness: str | None) -> bool:
    """What the annotation says: no annotation is no objection, and only the word true is a yes."""
    return readiness is None or readiness.lower() == "true"


def _rules(subject: Subject, asking: Asking) -> Reason | None:
    rules = subject.rules
    if rules is None or asking.is_agent or are_in(rules):
        return None
    return Reason(Kind.RULES, _why_not(rules, _network(subject)))


def _certificate(subject: Subject, asking: Asking) -> Reason | None:
    if not asking.lacks_certificate:
        return None
    services = f"the Services of network {_network(subject)}"
    words = f"the node cannot make the certificate of the pod's agent now, which is to put in {services}"
    return Reason(Kind.RULES, words)


def are_in(rules: Rules) -> bool:
    """Whether the guest has a whole ruleset of ours that is not outdated by more than a moment."""
    if rules.not_injectable or not rules.digest or rules.has_drifted:
        return False
    if rules.desired is None or rules.desired == rules.digest:
        # It says itself what it holds; what it shall hold may not be known since our start.
        return True
    return not rules.was_lost and rules.behind_s <= BEHIND_S


def _why_not(rules: Rules, network: str) -> str:
    services = f"the Services of network {network}"
    if rules.not_injectable:
        return f"{services} cannot be put into the pod's guest: {_plain(rules.not_injectable)}"
    if rules.digest is None:
        is_trying = "has not answered yet" if not rules.unreachable else "cannot be reached"
        return f"the pod's guest {is_trying}, so {services} are not in it"
    if rules.desired is None:
        return f"nobody has said yet what {services} are"
    if rules.refused:
        return f"the pod's guest refuses the rules for {services}"
    if rules.has_drifted or rules.was_lost:
        return f"the pod's guest has lost {services}, they are being put back"
    return f"{services} are being put into the pod's guest"


def _own_resolver(subject: Subject) -> Resolver | None:
    said = subject.resolver
    return said if said is not None and said.is_for(subject.networks) else None


def _resolver(subject: Subject, asking: Asking, *, is_needed: bool) -> Reason | None:
    own = _own_resolver(subject)
    if own is not None and own.waits:
        return Reason(Kind.RESOLVER, _plain(own.waits))
    # On the host's network it may be the host's, and nobody need say so.
    if not is_needed or asking.has_own or subject.is_host_network or (own is not None and own.text):
        return None
    if subject.resolver is not None and own is None:
        return Reason(Kind.RESOLVER, "its resolver is for another network; waiting for dnsconfig")
    return Reason(Kind.RESOLVER, f"nobody has said yet which DNS server network {_network(subject)} has")


def _network(subject: Subject) -> str:
    return ", ".join(_plain(name) for name in subject.networks)


def _plain(text: str) -> str:
    """One line of bounded length: it becomes part of an event, a log line and a terminal's row."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MAX_WORDS else f"{line[: _MAX_WORDS - 1]}…"


@dataclass(frozen=True, slots=True)
class MountPoint:
    """A mount of a container: where it is seen, and what is seen there."""

    destination: str
    source: str


def brings_its_own(sandbox: str, mounts: Sequence[MountPoint]) -> bool:
    """Whether a container, before anybody has adjusted it, has a resolv.conf that is not its sandbox's.

    The runtime's own is a file in a directory called like the sandbox (containerd:
    .../sandboxes/ID/resolv.conf, CRI-O: .../ID/userdata/resolv.conf), and is left out where a volume
    is mounted at that place.
    """
    return any(
        _is_resolv_conf(mount.destination) and sandbox not in mount.source.split("/") for mount in mounts
    )


def is_in_place(source: str, adjusted: Sequence[MountPoint]) -> bool:
    """Whether, of all mounts that plugins made or removed, the one for resolv.conf is ours alone."""
    at_place = [mount for mount in adjusted if _is_resolv_conf(mount.destination.removeprefix("-"))]
    added = [mount for mount in at_place if not mount.destination.startswith("-")]
    return len(added) == 1 and added[0].source == source


def _is_resolv_conf(destination: str) -> bool:
    # normpath keeps two leading slashes: POSIX lets them mean something else, Linux does not.
    return posixpath.normpath(destination).replace("//", "/", 1) == RESOLV_CONF
