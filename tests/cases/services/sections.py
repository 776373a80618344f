# SPDX-License-Identifier: Apache-2.0
"""The sections of a file without packets: names, numbers, selection, order, choice, conntrack."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from kubeproxy_ext.compute.guest_view import GuestRulesResult
from kubeproxy_ext.compute.stale_flows import StaleFlow, stale_flows
from ruleset.model import EndpointSet, Frontend, NoBackendAction
from ruleset.names import chain_hash
from ruleset.render.iptables import weight
from tests.cases.services import rendering, slice_rules, sync_section
from tests.cases.services.case_file import (
    ApiState,
    CaseFile,
    ChoiceEndpoint,
    Conntrack,
    EndpointChoiceCase,
    EndpointMap,
    EndpointSpec,
    Ingress,
    PortSpec,
    Selection,
    ServiceCaseSpec,
    SlicePort,
    SliceSpec,
)
from tests.cases.services.entries import KernelEntry, is_stale
from tests.cases.services.packet_checks import UnknownWordError
from tests.cases.services.rendering import RenderedGuest

Job = Callable[[], tuple[list[str], str]]
"""Runs a case; returns its failures, and a note about what was checked and left out."""

_NODE = "test-node"
_POD = "10.0.0.2"
_POD_6 = "fd00:10::2"
_VIP = "172.30.55.1"
_LB = "1.2.3.4"


def jobs(file: CaseFile) -> Iterator[tuple[str, Job]]:
    """Every case of these sections, with its id."""
    if file.chain_names:
        yield "chain_names", partial(_chain_names, file)
    if file.probabilities:
        yield "probabilities", partial(_probabilities, file)
    for one in file.selection:
        yield f"selection: {one.reason}", partial(_selection, one)
    for rule, effect in file.slice_rules.items():
        yield f"slice_rules: {rule}", partial(slice_rules.check, rule, effect)
    for order in file.endpoint_map:
        yield order.id, partial(_endpoint_map, order)
    for choice in file.endpoint_choices:
        yield choice.id, partial(_endpoint_choice, choice)
    if file.conntrack is not None:
        yield "conntrack", partial(_conntrack, file.conntrack)
    for sequence in file.sync:
        yield sequence.id, partial(sync_section.check, sequence)


def _chain_names(file: CaseFile) -> tuple[list[str], str]:
    found = [
        f"{text}: {chain_hash(text)}, not {expected}"
        for text, expected in file.chain_names.items()
        if chain_hash(text) != expected
    ]
    return found, f"{len(file.chain_names)} names"


def _probabilities(file: CaseFile) -> tuple[list[str], str]:
    expected = {int(left): text for left, text in file.probabilities.items()}
    found = [
        f"{left} left: {weight(left)}, not {text}" for left, text in expected.items() if weight(left) != text
    ]
    # "must stay strictly increasing as n falls from 100000 to 2"
    before = 0.0
    for left in range(100_000, 1, -1):
        now = float(weight(left))
        if now <= before:
            found.append(f"{left} left has no greater weight than {left + 1}")
            break
        before = now
    return found, f"{len(expected)} weights, and their order from 100000 to 2"


def _selection(case: Selection) -> tuple[list[str], str]:
    service = case.service
    is_six = case.ipv6 is not None
    slices = []
    for ip in ("10.1.0.3", *(("fd00:10::3",) if is_six else ())):
        ports = tuple(SlicePort(port.name, port.proto, port.port) for port in service.ports)
        slices.append(SliceSpec(service.svc, ports, (EndpointSpec(ip),)))
    data = rendering.objects_list(ApiState((service,), tuple(slices)), _NODE)
    found = []
    for pod, expected in ((_POD, case.ipv4), (_POD_6, case.ipv6)):
        frontends = list(rendering.rules_for(data, RenderedGuest(pod, _NODE)).frontends())
        addresses = {frontend.ip for frontend in frontends}
        if expected is not None and addresses != {expected}:
            found.append(f"frontends {sorted(addresses)}, not {expected}")
        if not case.is_proxied and frontends:
            found.append(f"frontends {sorted(addresses)}, though it is not proxied")
        if case.is_proxied and pod == _POD:
            count = len({(frontend.service_port, frontend.protocol) for frontend in frontends})
            if count != (case.service_ports or 1):
                found.append(f"{count} service ports, not {case.service_ports or 1}")
    return found, "proxied" if case.is_proxied else "not proxied"


def _endpoint_map(case: EndpointMap) -> tuple[list[str], str]:
    results = []
    found = []
    for mapping in (case.before, case.after):
        outcome = rendering.result_for(
            rendering.objects_list(_state_of(mapping), _NODE), RenderedGuest(_POD, _NODE)
        )
        results.append(outcome)
        seen = {
            frontend.service_port: tuple(str(endpoint) for endpoint in frontend.to.endpoints)
            for frontend in outcome.rules.frontends()
            if isinstance(frontend.to, EndpointSet)
        }
        if seen != dict(mapping):
            found.append(f"{seen}, not {dict(mapping)}")
    if case.has_udp_pass is not None:
        flows = stale_flows(results[0], results[1])
        if bool(flows) != case.has_udp_pass:
            found.append(f"conntrack entries to delete: {flows}")
    return found, "order of endpoints, and deleted conntrack entries"


def _state_of(mapping: Mapping[str, tuple[str, ...]]) -> ApiState:
    """A Service and slices, of UDP ports, that come to this map of service ports to endpoints."""
    services: dict[str, list[PortSpec]] = {}
    slices = []
    for number, (name, endpoints) in enumerate(sorted(mapping.items())):
        svc, _, port = name.partition(":")
        services.setdefault(svc, []).append(PortSpec(port, "UDP", 1000 + number))
        for endpoint in reversed(endpoints):  # the order is the daemon's to make
            ip, _, number_of_port = endpoint.rpartition(":")
            ports = (SlicePort(port, "UDP", int(number_of_port)),)
            slices.append(SliceSpec(svc, ports, (EndpointSpec(ip.strip("[]")),)))
    return ApiState(
        tuple(
            ServiceCaseSpec(svc, vip=(f"172.30.7.{number}",), ports=tuple(ports))
            for number, (svc, ports) in enumerate(sorted(services.items()), 1)
        ),
        tuple(slices),
    )


# Ready, serving, terminating.
_STATES = {"ready": (True, True, False), "dead": (False, False, False), "term": (False, True, True)}


def _endpoint_choice(case: EndpointChoiceCase) -> tuple[list[str], str]:
    """The cluster IP shows one set, a load balancer's address the other: a guest is a pod, so that a
    Local external policy lets it reach all endpoints (service-proxy.md 1.3, "short circuit")."""
    me = case.me or _NODE
    ips = {endpoint.name: f"10.1.0.{number}" for number, endpoint in enumerate(case.endpoints, 1)}
    is_external = bool(case.node_port)
    service = ServiceCaseSpec(
        "ns/svc",
        "LoadBalancer" if is_external else "ClusterIP",
        (_VIP,),
        (PortSpec("p", "TCP", 80, case.node_port),),
        case.itp,
        case.etp,
        lb=(Ingress(_LB),) if is_external else (),
    )
    endpoints = tuple(_endpoint(one, ips[one.name], me) for one in case.endpoints)
    state = ApiState((service,), (SliceSpec("ns/svc", (SlicePort("p", "TCP", 80),), endpoints),))
    guest = RenderedGuest(_POD, me, zone=case.zone)
    rules = rendering.rules_for(rendering.objects_list(state, me), guest)
    frontends = {frontend.ip: frontend for frontend in rules.frontends()}
    internal = case.local if case.itp == "Local" else case.cluster
    found = _chosen("cluster IP", frontends[_VIP], internal, case, ips)
    if is_external:
        found += _chosen("load balancer", frontends[_LB], case.cluster, case, ips)
    return found, "from inside and outside" if is_external else "from inside"


def _endpoint(one: ChoiceEndpoint, ip: str, me: str) -> EndpointSpec:
    node = me if one.is_local else f"not-{me}"
    ready, serving, terminating = _STATES[one.state]
    return EndpointSpec(ip, node, None, ready, serving, terminating, one.zones, one.nodes)


def _chosen(
    where: str,
    frontend: Frontend,
    names: frozenset[str] | None,
    case: EndpointChoiceCase,
    ips: dict[str, str],
) -> list[str]:
    if names:
        expected: object = {ips[name] for name in names}
    else:
        expected = NoBackendAction.DROP if case.has_any else NoBackendAction.REJECT
    seen: object = (
        {end.ip for end in frontend.to.endpoints} if isinstance(frontend.to, EndpointSet) else frontend.to
    )
    return [] if seen == expected else [f"{where}: {seen}, not {expected}"]


def _conntrack(case: Conntrack) -> tuple[list[str], str]:
    known = {"svc", "vip", "external_ip", "lb_ip", "service_port", "node_port", "udp"}
    unknown = sorted(set(case.service) - known)
    if unknown:
        raise UnknownWordError(f"the runner does not know conntrack.service {unknown}")
    before, after = (_serving_outcome(case, names) for names in (("serving", "gone"), ("serving",)))
    flows = stale_flows(before, after)
    # After its restart a guest's daemon knows of no entry: all count as new.
    flows_of_all = stale_flows(None, after)
    found, left_out = [], 0
    for entry in case.entries:
        if entry.destination == "*":
            left_out += 1
            continue
        kernel_entry = KernelEntry(
            entry.protocol,
            entry.destination,
            entry.port,
            entry.reply_source,
            entry.reply_port,
            has_reply=False,
        )
        for event, stale in (("a change", flows), ("a restart", flows_of_all)):
            if is_stale(kernel_entry, stale) == entry.is_kept and not _is_ours_alone(kernel_entry, stale):
                found.append(f"{entry}: after {event} it is {'deleted' if entry.is_kept else 'kept'}")
    found += [one for fix in case.later for one in _later(case, fix)]
    count = len(case.entries) - left_out
    return found, f"{count} entries; {left_out} of node ports, which guests do not have"


def _is_ours_alone(entry: KernelEntry, flows: Sequence[StaleFlow]) -> bool:
    """TCP entries that were never translated go too: upstream leaves them, and the connection hangs."""
    return entry.protocol == "tcp" and is_stale(entry, [flow for flow in flows if flow.never_translated])


def _later(case: Conntrack, fix: Mapping[str, str]) -> list[str]:
    states = {
        "UDP service falls to zero serving endpoints": _serving_outcome(case, ()),
        "UDP service is deleted": _serving_outcome(case, None),
    }
    if fix.get("when") not in states or fix.get("then") != "delete its entries":
        raise UnknownWordError(f"the runner does not know the later fix {fix}")
    flows = stale_flows(_serving_outcome(case, ("serving",)), states[fix["when"]])
    ip, _, port = case.endpoints["serving"].rpartition(":")
    service = case.service
    entry = KernelEntry("udp", service["vip"], service["service_port"], ip, int(port))
    return [] if is_stale(entry, flows) else [f"{fix['when']}: its entries stay"]


def _serving_outcome(case: Conntrack, names: tuple[str, ...] | None) -> GuestRulesResult:
    """With the Service and these of its endpoints serving; None: without the Service."""
    service = case.service
    endpoints = []
    for name, text in case.endpoints.items():
        ip, _, port = text.rpartition(":")
        is_serving = names is not None and name in names
        if is_serving or name == "not_serving":
            endpoints.append((int(port), EndpointSpec(ip, ready=is_serving, serving=is_serving)))
    made = ServiceCaseSpec(
        service["svc"],
        "LoadBalancer",
        (service["vip"],),
        (PortSpec("p", "UDP", service["service_port"], service.get("node_port", 0)),),
        external_ips=(service["external_ip"],),
        lb=(Ingress(service["lb_ip"]),),
    )
    slices = tuple(
        SliceSpec(service["svc"], (SlicePort("p", "UDP", port),), (endpoint,)) for port, endpoint in endpoints
    )
    state = ApiState((made,) if names is not None else (), slices)
    return rendering.result_for(rendering.objects_list(state, _NODE), RenderedGuest(_POD, _NODE))
