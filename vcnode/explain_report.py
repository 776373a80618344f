# SPDX-License-Identifier: Apache-2.0
"""Where one packet of one guest goes: as it should, as it does, and why the two may differ. Pure.

As it should: the model that kubeproxy-ext has of the guest's rules. As it does: the rules that the
guest's packet filter holds, walked as text. Three digests tell how far a change has come: of what
kubeproxy-ext wants, of what kata-bridge was given, and of what the guest holds.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ruleset.document import Document, make_ruleset
from ruleset.model import EndpointSet, Frontend, GuestRules, ServiceRules
from ruleset.names import Backend
from ruletrace.iptables.trace import trace as trace_iptables
from ruletrace.model_trace import trace_model
from ruletrace.nft.trace import trace as trace_nft
from ruletrace.packet import Packet, PacketVerdict, Trace
from vcnode import explain_canary
from vcnode.terminal import columns, duration

_MAX_NAMED = 6
_DIGITS = 12
_FATES = {
    PacketVerdict.REJECT: "is rejected: the sender is told at once",
    PacketVerdict.DROP: "is dropped: the sender hears nothing",
    PacketVerdict.PASS: "leaves for the destination that it has, untouched",
    PacketVerdict.UNKNOWN: "is taken by a rule that cannot be followed",
}


class State(enum.Enum):
    """How the rules in the guest stand to those that it is to have."""

    CURRENT = "current"
    BEHIND = "behind"
    DRIFTED = "drifted"
    NOT_INJECTABLE = "notInjectable"
    NO_RULESET = "noRuleset"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Subject:
    """The guest. `pod` and `tenant_pod` are `namespace/name` in the super cluster and the tenant;
    `digest` is of the ruleset that it said it holds when it was last heard."""

    id: str
    pod: str
    tenant: str = ""
    tenant_pod: str = ""
    ips: tuple[str, ...] = ()
    channel: str = ""
    digest: str = ""
    not_injectable: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What kubeproxy-ext says of the guest. `rules` are of the packet's family, None if it has none.

    `namespaces` are the tenant's names of super namespaces; `elsewhere` are its Services that have the
    packet's destination in other networks, as (`namespace/name`, network).
    """

    rules: GuestRules | None
    digest: str = ""
    generation: int | None = None
    problem: str = ""
    knowledge: str = "heard"
    last_known_age_s: float | None = None
    held_namespaces: tuple[str, ...] = ()
    namespaces: Mapping[str, str] = field(default_factory=dict)
    elsewhere: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """What the guest's packet filter holds of ours, and what kata-bridge was given for it."""

    held: tuple[Document, ...]
    given: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The answer. `model` and `guest` are None where they are not known; `why_not` says why."""

    subject: Subject
    packet: Packet
    model: Trace | None
    guest: Trace | None
    state: State
    why: str
    why_not: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def agrees(self) -> bool | None:
        """Whether the packet ends where it should; None if that is not known."""
        if self.model is None or self.guest is None:
            return None
        return self.model.outcomes == self.guest.outcomes

    @property
    def is_good(self) -> bool:
        return self.agrees is True and self.state is State.CURRENT


def report(subject: Subject, packet: Packet, wanted: Wanted | str, rules: Filter | str) -> Report:
    """Put together what is known; a text stands for what is not, and says why."""
    why_not: list[str] = []
    notes: list[str] = []
    model = guest = None
    if isinstance(wanted, str):
        why_not.append(f"what it should do is not known: {wanted}")
    else:
        notes += _of_knowledge(wanted)
        if wanted.rules is not None:
            named = _tenants_names(wanted.rules, wanted.namespaces)
            model = trace_model(named, packet)
            notes += _of_neighbours(named, packet)
            notes += _of_other_networks(wanted, packet)
        else:
            lack = wanted.problem or f"the guest gets no rules for {packet.family.value}"
            why_not.append(f"what it should do is not known: {lack}")
    if isinstance(rules, str):
        why_not.append(f"what it does is not known: {rules}")
    else:
        try:
            guest = _traced(rules, packet)
        except ValueError as error:
            why_not.append(f"what it does is not known: its rules cannot be followed: {error}")
    state, why = _state(subject, wanted, rules)
    if not isinstance(wanted, str) and wanted.rules is not None:
        current = wanted.generation if state is State.CURRENT else None
        notes += explain_canary.notes(wanted.rules, packet, guest, current)
    return Report(subject, packet, model, guest, state, why, tuple(why_not), tuple(notes))


# ---- the rules in the guest


def _traced(rules: Filter, packet: Packet) -> Trace:
    """Raises ValueError for rules that cannot be read or followed."""
    given = {document.backend for document in rules.given}
    ours = [document for document in rules.held if document.family is packet.family and document.objects]
    # Rules in a language that it was not given are left from another time; those it was given count.
    ours.sort(key=lambda document: document.backend not in given)
    if not ours:
        return Trace(frozenset({PacketVerdict.PASS}), ("the guest holds no rule of ours: the packet passes",))
    walk = trace_nft if ours[0].backend is Backend.NFT else trace_iptables
    return walk(ours[0].text(), packet)


def _state(subject: Subject, wanted: Wanted | str, rules: Filter | str) -> tuple[State, str]:
    if subject.not_injectable:
        return State.NOT_INJECTABLE, subject.not_injectable
    problem = "" if isinstance(wanted, str) else wanted.problem
    if isinstance(rules, str):
        return State.UNKNOWN, problem
    held, given = _digest(rules.held), _digest(rules.given)
    if held != given and subject.digest == given:
        return State.DRIFTED, f"somebody changed them in the guest: {_differences(rules)}"
    if held != given:
        return State.BEHIND, problem or "kata-bridge has newer ones for it, which are not in yet"
    if isinstance(wanted, str):
        return (State.CURRENT if given else State.NO_RULESET), "as far as kata-bridge knows"
    if wanted.digest != given:
        return State.BEHIND, problem or "kubeproxy-ext has newer ones, which kata-bridge has not got yet"
    if not wanted.digest:
        return State.NO_RULESET, problem or "none were made for it yet"
    return State.CURRENT, f"generation {wanted.generation}, digest {held[:_DIGITS]}"


def _digest(documents: Sequence[Document]) -> str:
    """Of these documents as one ruleset; empty if there is nothing in them."""
    made = make_ruleset(0, documents)
    return made.digest if made.documents else ""


def _differences(rules: Filter) -> str:
    """Which objects are not as they were given: `missing chain VCN-X; changed nat/OUTPUT; ...`."""
    held = {(d.family, d.backend, name): lines for d in rules.held for name, lines in d.objects.items()}
    given = {(d.family, d.backend, name): lines for d in rules.given for name, lines in d.objects.items()}
    found = {
        "missing": given.keys() - held.keys(),
        "changed": {key for key in given.keys() & held.keys() if given[key] != held[key]},
        "added": held.keys() - given.keys(),
    }
    said = []
    for how, keys in found.items():
        names = sorted(f"{name} ({family.value})" for family, _, name in keys)
        if names:
            more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
            said.append(f"{how} {', '.join(names[:_MAX_NAMED])}{more}")
    return "; ".join(said)


# ---- the model


def _tenants_names(rules: GuestRules, namespaces: Mapping[str, str]) -> GuestRules:
    """The rules with the tenant's names of its Services, as far as they are known."""

    def named(text: str) -> str:
        return _tenants_name(text, namespaces)

    def renamed(frontend: Frontend) -> Frontend:
        to = frontend.to
        if isinstance(to, EndpointSet):
            to = replace(to, service_port=named(to.service_port))
        return replace(frontend, service_port=named(frontend.service_port), to=to)

    services = (
        ServiceRules(named(each.service), tuple(map(renamed, each.frontends))) for each in rules.services
    )
    return replace(rules, services=tuple(services))


def _tenants_name(text: str, namespaces: Mapping[str, str]) -> str:
    """`namespace/...` with the tenant's name of the namespace, if that is known."""
    namespace, slash, rest = text.partition("/")
    return f"{namespaces.get(namespace) or namespace}{slash}{rest}"


def _of_other_networks(wanted: Wanted, packet: Packet) -> Iterator[str]:
    for service, network in wanted.elsewhere:
        whose = f"Service {_tenants_name(service, wanted.namespaces)} in network {network}"
        yield f"{packet.destination} is an address of {whose}, where this guest is not"


def _of_neighbours(rules: GuestRules, packet: Packet) -> Iterator[str]:
    """What else the address is good for, where no Service port has the packet."""
    here = [one for one in rules.frontends() if one.ip == packet.destination]
    if any((one.port, one.protocol) == (packet.port, packet.protocol) for one in here):
        return
    ports: dict[str, list[str]] = {}
    for one in here:
        service = one.service_port.partition(":")[0]
        ports.setdefault(service, []).append(f"{one.port}/{one.protocol.value}")
    for service, its in sorted(ports.items()):
        whose = (
            "the address of the canary"
            if service == explain_canary.NAME
            else f"an address of Service {service}"
        )
        yield f"{packet.destination} is {whose}, with {', '.join(its)} alone"


def _of_knowledge(wanted: Wanted) -> Iterator[str]:
    if wanted.last_known_age_s is not None:
        age = duration(wanted.last_known_age_s)
        yield f"kubeproxy-ext has not heard the API server: these are the last known Services, {age} old"
    elif wanted.knowledge not in ("heard", "last known"):
        yield f"the tenant's Services: {wanted.knowledge}"
    for namespace in wanted.held_namespaces:
        name = wanted.namespaces.get(namespace) or namespace
        yield f"a list that takes all Services from namespace {name} is not believed yet"


# ---- for people


def render(said: Report) -> list[str]:
    """The lines to print: what comes of it, then the way, then the rules as a whole."""
    subject = said.subject
    whose = f"{subject.tenant_pod or subject.pod}"
    if subject.tenant:
        whose += f" of tenant {subject.tenant}"
    lines = [f"{said.packet} from {whose}", f"{_conclusion(said)}", ""]
    rows = [("guest", _guest(subject))]
    rows += _way("should", said.model)
    rows += _way("does", said.guest)
    rows += [("not known", text) for text in said.why_not]
    rows.append(("rules", f"{said.state.value}{f': {said.why}' if said.why else ''}"))
    rows += [("note", note) for note in said.notes]
    return [*lines, *columns(rows)]


def _guest(subject: Subject) -> str:
    through = f", reached by {subject.channel}" if subject.channel else ""
    pod = f", {subject.pod} in the super cluster" if subject.tenant_pod else ""
    return f"{subject.id}{pod}{through}"


def _way(title: str, trace: Trace | None) -> list[tuple[str, str]]:
    if trace is None:
        return []
    return [(title, trace.verdict), *(("", step) for step in trace.steps)]


def _conclusion(said: Report) -> str:
    if said.model is not None and said.guest is not None:
        if said.agrees:
            return f"-> {_fate(said.guest)}, as it should"
        return f"-> {_fate(said.guest)}; IT SHOULD NOT: it {_fate(said.model)}, by the model"
    if said.guest is not None:
        return f"-> {_fate(said.guest)}; whether it should is not known"
    if said.model is not None:
        return f"-> {_fate(said.model)}, if the guest's rules are what they should be, which is not known"
    return "-> not known"


def _fate(trace: Trace) -> str:
    endpoints = trace.endpoints
    parts = []
    if len(endpoints) == 1:
        parts.append(f"goes to {endpoints[0]}")
    elif endpoints:
        parts.append(f"goes to one of {', '.join(map(str, endpoints))}")
    parts += [said for fate, said in _FATES.items() if fate in trace.outcomes]
    return " or ".join(parts)


# ---- for programs


def as_json(said: Report) -> dict[str, object]:
    subject, packet = said.subject, said.packet
    return {
        "guest": subject.id,
        "pod": subject.pod,
        "tenant": subject.tenant,
        "tenantPod": subject.tenant_pod,
        "packet": {
            "protocol": packet.protocol.value,
            "source": packet.source,
            "destination": packet.destination,
            "port": packet.port,
        },
        "should": _trace_json(said.model),
        "does": _trace_json(said.guest),
        "agrees": said.agrees,
        "rules": said.state.value,
        "why": said.why,
        "notKnown": list(said.why_not),
        "notes": list(said.notes),
    }


def _trace_json(trace: Trace | None) -> dict[str, object] | None:
    if trace is None:
        return None
    return {
        "endpoints": [str(endpoint) for endpoint in trace.endpoints],
        "fates": [fate.value for fate in PacketVerdict if fate in trace.outcomes],
        "steps": list(trace.steps),
    }
