# SPDX-License-Identifier: Apache-2.0
"""Where one packet of one guest goes: expected, actual, and why the two may differ.

Expected: by kubeproxy-ext's model of the guest's rules. Actual: by the rules that the guest's packet
filter has installed. Three digests show how far a change has come: of the ruleset that kubeproxy-ext
desires, of the one that kata-bridge was given, and of the one that the guest has installed.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kubeproxy_ext.compute.rules_probe import NAME as PROBE_NAME
from ruleset.document import Document, make_ruleset
from ruleset.model import EndpointSet, Frontend, GuestRules, ServiceRules
from ruleset.names import Backend
from ruletrace import iptables, nft
from ruletrace.model_trace import trace_model
from ruletrace.packet import Packet, PacketVerdict, Trace
from vcnode.terminal import Style, columns, duration, styled, words, wrapped

_MAX_NAMED = 6
_DIGITS = 12
_VERDICTS = {
    PacketVerdict.REJECT: "is rejected: the sender fails at once",
    PacketVerdict.DROP: "is dropped: the sender times out",
    PacketVerdict.PASS: "passes untranslated",
    PacketVerdict.UNKNOWN: "meets a rule that this tool does not understand",
}


class RulesState(enum.Enum):
    """How the rules in the guest compare with those that it is to have."""

    CURRENT = "current"
    BEHIND = "behind"
    DRIFTED = "drifted"
    NOT_INJECTABLE = "notInjectable"
    NO_RULESET = "noRuleset"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GuestIdentity:
    """The guest. `pod` and `tenant_pod` are `namespace/name` in the super cluster and in the tenant.

    `digest` is of the ruleset that the guest last reported.
    """

    id: str
    pod: str
    tenant: str = ""
    tenant_pod: str = ""
    ips: tuple[str, ...] = ()
    channel: str = ""
    digest: str = ""
    not_injectable: str = ""


@dataclass(frozen=True, slots=True)
class DesiredRules:
    """What kubeproxy-ext reports of the guest. `rules` are of the packet's family, None if it has none.

    `namespaces` are the tenant's names of super namespaces; `elsewhere` are its Services that have the
    packet's destination in other networks, as (`namespace/name`, network).
    """

    rules: GuestRules | None
    digest: str = ""
    generation: int | None = None
    problem: str = ""
    sync_state: str = "synced"
    last_known_age_s: float | None = None
    distrusted_namespaces: tuple[str, ...] = ()
    namespaces: Mapping[str, str] = field(default_factory=dict)
    elsewhere: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Our rules in the guest's packet filter, and those that kata-bridge was given for it."""

    installed: tuple[Document, ...]
    submitted: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer. `expected` and `actual` are None where they are unknown; `unknown` has the reason."""

    guest: GuestIdentity
    packet: Packet
    expected: Trace | None
    actual: Trace | None
    state: RulesState
    message: str
    unknown: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def agrees(self) -> bool | None:
        """Whether the packet ends as expected; None if that is unknown."""
        if self.expected is None or self.actual is None:
            return None
        return self.expected.outcomes == self.actual.outcomes

    @property
    def is_good(self) -> bool:
        return self.agrees is True and self.state is RulesState.CURRENT


def explain(
    guest: GuestIdentity, packet: Packet, desired: DesiredRules | str, read_back: ReadBack | str
) -> Explanation:
    """Combine the known parts. A text in place of a value is the reason why it is unknown."""
    unknown: list[str] = []
    notes: list[str] = []
    expected = actual = None
    if isinstance(desired, str):
        unknown.append(f"expected outcome: {desired}")
    else:
        notes += _sync_notes(desired)
        if desired.rules is not None:
            named = _in_tenants_names(desired.rules, desired.namespaces)
            expected = trace_model(named, packet)
            notes += _port_notes(named, packet)
            notes += _network_notes(desired, packet)
        else:
            lack = desired.problem or f"the guest gets no rules for {packet.family.value}"
            unknown.append(f"expected outcome: {lack}")
    if isinstance(read_back, str):
        unknown.append(f"actual outcome: {read_back}")
    else:
        try:
            actual = _traced(read_back, packet)
        except ValueError as error:
            unknown.append(f"actual outcome: the guest's rules cannot be traced: {error}")
    state, message = _state(guest, desired, read_back)
    if not isinstance(desired, str) and desired.rules is not None:
        current = desired.generation if state is RulesState.CURRENT else None
        notes += _probe_notes(desired.rules, packet, actual, current)
    return Explanation(guest, packet, expected, actual, state, message, tuple(unknown), tuple(notes))


# ---- the rules in the guest


def _traced(read_back: ReadBack, packet: Packet) -> Trace:
    """Raises ValueError for rules that cannot be traced."""
    submitted = {document.backend for document in read_back.submitted}
    ours = [each for each in read_back.installed if each.family is packet.family and each.objects]
    # Rules of a backend that the guest was not given are left from before: those it was given count.
    ours.sort(key=lambda document: document.backend not in submitted)
    if not ours:
        return Trace({PacketVerdict.PASS: 1.0}, ("the guest has none of our rules: the packet passes",))
    trace = nft.trace if ours[0].backend is Backend.NFT else iptables.trace
    return trace(ours[0], packet)


def _state(
    guest: GuestIdentity, desired: DesiredRules | str, read_back: ReadBack | str
) -> tuple[RulesState, str]:
    if guest.not_injectable:
        return RulesState.NOT_INJECTABLE, guest.not_injectable
    problem = "" if isinstance(desired, str) else desired.problem
    if isinstance(read_back, str):
        return RulesState.UNKNOWN, problem
    installed, submitted = _digest(read_back.installed), _digest(read_back.submitted)
    if installed != submitted and guest.digest == submitted:
        return RulesState.DRIFTED, f"changed inside the guest: {_differences(read_back)}"
    if installed != submitted:
        return RulesState.BEHIND, problem or "kata-bridge has a newer ruleset, which is not applied yet"
    if isinstance(desired, str):
        state = RulesState.CURRENT if submitted else RulesState.NO_RULESET
        return state, "by kata-bridge's account alone"
    if desired.digest != submitted:
        waits = "kubeproxy-ext has a newer ruleset, which kata-bridge has not received yet"
        return RulesState.BEHIND, problem or waits
    if not desired.digest:
        return RulesState.NO_RULESET, problem or "kubeproxy-ext has not made a ruleset for this guest yet"
    return RulesState.CURRENT, f"generation {desired.generation}, digest {installed[:_DIGITS]}"


def _digest(documents: Sequence[Document]) -> str:
    """The digest of the ruleset of these documents; "" if they are empty."""
    made = make_ruleset(0, documents)
    return made.digest if made.documents else ""


def _differences(rules: ReadBack) -> str:
    """Which objects differ from what was given: `missing chain VCN-X; changed nat/OUTPUT; ...`."""
    installed = {(d.family, d.backend, name): rs for d in rules.installed for name, rs in d.objects.items()}
    submitted = {(d.family, d.backend, name): rs for d in rules.submitted for name, rs in d.objects.items()}
    found = {
        "missing": submitted.keys() - installed.keys(),
        "changed": {key for key in submitted.keys() & installed.keys() if submitted[key] != installed[key]},
        "added": installed.keys() - submitted.keys(),
    }
    texts = []
    for how, keys in found.items():
        names = sorted(f"{name} ({family.value})" for family, _, name in keys)
        if names:
            more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
            texts.append(f"{how} {', '.join(names[:_MAX_NAMED])}{more}")
    return "; ".join(texts)


# ---- the model


def _in_tenants_names(rules: GuestRules, namespaces: Mapping[str, str]) -> GuestRules:
    """The rules with the tenant's names of its Services, as far as they are known."""

    def renamed(frontend: Frontend) -> Frontend:
        to = frontend.to
        if isinstance(to, EndpointSet):
            to = replace(to, service_port=_tenants_name(to.service_port, namespaces))
        return replace(frontend, service_port=_tenants_name(frontend.service_port, namespaces), to=to)

    services = (
        ServiceRules(_tenants_name(each.service, namespaces), tuple(map(renamed, each.frontends)))
        for each in rules.services
    )
    return replace(rules, services=tuple(services))


def _tenants_name(text: str, namespaces: Mapping[str, str]) -> str:
    """`namespace/...` with the tenant's name of the namespace, if that is known."""
    namespace, slash, rest = text.partition("/")
    return f"{namespaces.get(namespace) or namespace}{slash}{rest}"


def _network_notes(desired: DesiredRules, packet: Packet) -> Iterator[str]:
    for service, network in desired.elsewhere:
        name = _tenants_name(service, desired.namespaces)
        yield (
            f"{packet.destination} is an address of Service {name} in network {network}; "
            "this guest is not in that network"
        )


def _port_notes(rules: GuestRules, packet: Packet) -> Iterator[str]:
    """The ports of the destination, where no Service port has the packet's."""
    here = [one for one in rules.frontends() if one.ip == packet.destination]
    if any((one.port, one.protocol) == (packet.port, packet.protocol) for one in here):
        return
    ports: dict[str, list[str]] = {}
    for one in here:
        service = one.service_port.partition(":")[0]
        ports.setdefault(service, []).append(f"{one.port}/{one.protocol.value}")
    for service, its in sorted(ports.items()):
        owner = "the rules probe" if service == PROBE_NAME else f"Service {service}"
        yield f"{packet.destination} is an address of {owner}, which has {', '.join(its)} only"


def _sync_notes(desired: DesiredRules) -> Iterator[str]:
    if desired.last_known_age_s is not None:
        age = duration(desired.last_known_age_s)
        yield f"kubeproxy-ext is not synced: it uses the last known Services, which are {age} old"
    elif desired.sync_state not in ("synced", "lastKnown"):
        yield f"the tenant's Services: {words(desired.sync_state)}"
    for namespace in desired.distrusted_namespaces:
        name = desired.namespaces.get(namespace) or namespace
        yield f"a relist removed all Services of namespace {name}; their rules stay until it is confirmed"


def _probe_notes(
    rules: GuestRules, packet: Packet, actual: Trace | None, current: int | None
) -> Iterator[str]:
    """What the rules probe is for, and what an init container that probes sees; none for other packets.

    A rule like any other answers it, so an older generation does too: it proves that a whole ruleset
    is installed, and not which one. `current` is the installed generation if it is the current one.
    """
    to = _probe_endpoints(rules, packet)
    if to is None:
        return
    yield (
        f"{packet.endpoint} is the rules probe (kubeproxy-ext's `canary`): with a ruleset installed it leads "
        "to the guest's own loopback, and the init container of packaging/canary ends"
    )
    if actual is None:
        yield "whether the guest has the rules probe is unknown"
        return
    has = f"the guest has the current generation, {current}"
    if current is None:
        has = "the guest does not have the current generation"
    if actual.outcomes == frozenset(to.endpoints):
        but = ", but its rules have the probe" if current is None else ""
        yield f"{has}{but}: the init container ends"
    else:
        yield f"{has}, and no rule for the probe: the init container keeps waiting"


def _probe_endpoints(rules: GuestRules, packet: Packet) -> EndpointSet | None:
    """Where the rules probe leads, if that is where the packet is to go."""
    place = (packet.destination, packet.port, packet.protocol)
    for one in rules.frontends():
        if one.service_port == PROBE_NAME and (one.ip, one.port, one.protocol) == place:
            return one.to if isinstance(one.to, EndpointSet) else None
    return None


# ---- for people


def render(explanation: Explanation, width: int | None = None) -> list[str]:
    """The lines to print, of at most `width` characters: outcome, steps to it, state of the rules."""
    guest = explanation.guest
    sender = f"{guest.tenant_pod or guest.pod}"
    if guest.tenant:
        sender += f" of tenant {guest.tenant}"
    lines = [
        *wrapped(f"{explanation.packet} from {sender}", width, "   "),
        *wrapped(f"-> {_conclusion(explanation)}", width, "   "),
        "",
    ]
    rows = [("guest", _guest(guest))]
    rows += _steps("expected", explanation.expected)
    rows += _steps("actual", explanation.actual)
    rows += [("unknown", text) for text in explanation.unknown]
    message = f": {explanation.message}" if explanation.message else ""
    style = Style.GOOD if explanation.state is RulesState.CURRENT else Style.BAD
    rows.append(("rules", styled(explanation.state.value, style, message)))
    rows += [("note", note) for note in explanation.notes]
    return [*lines, *columns(rows, width)]


def _guest(guest: GuestIdentity) -> str:
    channel = f", channel {guest.channel}" if guest.channel else ""
    pod = f", {guest.pod} in the super cluster" if guest.tenant_pod else ""
    return f"{guest.id}{pod}{channel}"


def _steps(title: str, trace: Trace | None) -> list[tuple[str, str]]:
    if trace is None:
        return []
    return [(title, trace.summary), *(("", step) for step in trace.steps)]


def _conclusion(explanation: Explanation) -> str:
    expected, actual = explanation.expected, explanation.actual
    if expected is not None and actual is not None:
        if explanation.agrees:
            return f"{_outcome(actual)}, as expected"
        return f"{_outcome(actual)}; MISMATCH: by the model it {_outcome(expected)}"
    if actual is not None:
        return f"{_outcome(actual)}; the expected outcome is unknown"
    if expected is not None:
        return f"{_outcome(expected)} if the guest has its rules; that is unknown"
    return "unknown"


def _outcome(trace: Trace) -> str:
    endpoints = trace.endpoints
    parts = []
    if len(endpoints) == 1:
        parts.append(f"goes to {endpoints[0]}")
    elif endpoints:
        parts.append(f"goes to one of {', '.join(map(str, endpoints))}")
    parts += [_VERDICTS[verdict] for verdict in trace.verdicts]
    return " or ".join(parts)


# ---- for programs


def as_json(explanation: Explanation) -> dict[str, object]:
    guest, packet = explanation.guest, explanation.packet
    return {
        "guest": guest.id,
        "pod": guest.pod,
        "tenant": guest.tenant,
        "tenantPod": guest.tenant_pod,
        "packet": {
            "protocol": packet.protocol.value,
            "source": packet.source,
            "destination": packet.destination,
            "port": packet.port,
        },
        "expected": _trace_json(explanation.expected),
        "actual": _trace_json(explanation.actual),
        "agrees": explanation.agrees,
        "rules": explanation.state.value,
        "message": explanation.message,
        "unknown": list(explanation.unknown),
        "notes": list(explanation.notes),
    }


def _trace_json(trace: Trace | None) -> dict[str, object] | None:
    if trace is None:
        return None
    return {
        "endpoints": [str(endpoint) for endpoint in trace.endpoints],
        "verdicts": [verdict.value for verdict in trace.verdicts],
        "steps": list(trace.steps),
    }
