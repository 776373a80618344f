# SPDX-License-Identifier: Apache-2.0
"""Which conntrack entries are flushed, for the case data and for each kind of change."""

import pytest

from kubeproxy_ext.compute import objects
from kubeproxy_ext.compute.guest_view import GuestRulesResult, GuestView, ServingEndpoints
from kubeproxy_ext.compute.service_state import ServiceState
from kubeproxy_ext.compute.stale_flows import StaleFlow, stale_flows
from ruleset.model import (
    Endpoint,
    EndpointSet,
    Family,
    Frontend,
    GuestRules,
    NoBackendAction,
    Protocol,
    ServiceRules,
)
from tests.cases.services.case_file import ConntrackEntry, EndpointMap
from tests.cases.services.load import load_shared
from tests.unit.kubeproxy_ext.compute import builders

CASES = load_shared()
assert CASES.conntrack is not None
CONNTRACK = CASES.conntrack

IP, PORT = "172.30.0.41", 80
UDP, TCP, SCTP = Protocol.UDP, Protocol.TCP, Protocol.SCTP


def result(
    *endpoints: str,
    ip: str = IP,
    name: str = "a/s",
    protocol: Protocol = UDP,
    serving: tuple[str, ...] | None = None,
) -> GuestRulesResult:
    """One Service with these endpoints; `serving` if more of them serve."""
    to = targets(endpoints, name, protocol)
    rules = ServiceRules(name, (Frontend(ip, PORT, protocol, f"{name}:p", to),))
    servings = (
        (ServingEndpoints(f"{name}:p", protocol, parse(serving or endpoints)),) if protocol is UDP else ()
    )
    return GuestRulesResult(GuestRules(Family.IPV4, (rules,)), servings)


def targets(endpoints: tuple[str, ...], name: str, protocol: Protocol) -> EndpointSet | NoBackendAction:
    if not endpoints:
        return NoBackendAction.REJECT
    return EndpointSet(f"{name}:p", protocol, False, parse(endpoints))


def parse(endpoints: tuple[str, ...]) -> tuple[Endpoint, ...]:
    parts = (text.rpartition(":") for text in endpoints)
    return tuple(Endpoint(ip, int(port)) for ip, _, port in parts)


NOTHING = GuestRulesResult(GuestRules(Family.IPV4, ()), ())
ALL = (StaleFlow(UDP, IP, PORT),)


def keeping(*endpoints: str) -> tuple[StaleFlow, ...]:
    return (StaleFlow(UDP, IP, PORT, keep_replies_from=endpoints),)


@pytest.mark.parametrize(
    ("old", "new", "flows"),
    [
        (result("10.0.0.1:53"), result("10.0.0.1:53"), ()),
        (result("10.0.0.1:53"), result("10.0.0.2:53"), keeping("10.0.0.2:53")),
        (result("10.0.0.1:53"), result("10.0.0.1:54"), keeping("10.0.0.1:54")),
        (result("10.0.0.1:53"), result(), ALL),
        (result("10.0.0.1:53"), NOTHING, ALL),
        (NOTHING, result("10.0.0.1:53"), keeping("10.0.0.1:53")),
        (None, result("10.0.0.1:53"), keeping("10.0.0.1:53")),
        (result(), result("10.0.0.1:53"), keeping("10.0.0.1:53")),
        (
            result("10.0.0.1:53", serving=("10.0.0.1:53", "10.0.0.2:53")),
            result("10.0.0.1:53"),
            keeping("10.0.0.1:53"),
        ),
        (
            result("10.0.0.1:53", "10.0.0.2:53"),
            result("10.0.0.1:53", serving=("10.0.0.1:53", "10.0.0.2:53")),
            (),
        ),
        (
            result("10.0.0.1:53"),
            result("10.0.0.1:53", ip="172.30.0.42"),
            (
                StaleFlow(UDP, IP, PORT),
                StaleFlow(UDP, "172.30.0.42", PORT, keep_replies_from=("10.0.0.1:53",)),
            ),
        ),
        (result("10.0.0.1:53"), result("10.0.0.9:53", name="a/t"), keeping("10.0.0.9:53")),
    ],
    ids=[
        *("same", "moved", "renumbered", "fell to zero", "deleted", "new", "unknown guest"),
        *("back from zero", "no longer serves", "unready yet serving"),
        *("another address", "the address is another Service's now"),
    ],
)
def test_udp_flows_to_delete(
    old: GuestRulesResult | None, new: GuestRulesResult, flows: tuple[StaleFlow, ...]
) -> None:
    assert stale_flows(old, new) == flows


@pytest.mark.parametrize("protocol", [TCP, SCTP])
def test_tcp_and_sctp_flows_go_if_never_translated(protocol: Protocol) -> None:
    one, two = result("10.0.0.1:53", protocol=protocol), result("10.0.0.2:53", protocol=protocol)
    none = result(protocol=protocol)
    never = (StaleFlow(protocol, IP, PORT, never_translated=True),)
    assert stale_flows(NOTHING, one) == never
    assert stale_flows(NOTHING, none) == never
    assert stale_flows(none, one) == never
    assert stale_flows(one, result("10.0.0.1:53", protocol=protocol, name="a/t")) == never
    assert stale_flows(one, two) == ()
    assert stale_flows(one, none) == ()
    assert stale_flows(one, NOTHING) == ()


def is_deleted(entry: ConntrackEntry, flows: tuple[StaleFlow, ...]) -> bool:
    """Which entries a flow of bridge_api/bridge.proto deletes. All entries of the data have replies."""
    return any(
        (entry.protocol, entry.destination, entry.port) == (flow.protocol.value, flow.destination, flow.port)
        and not flow.never_translated
        and f"{entry.reply_source}:{entry.reply_port}" not in flow.keep_replies_from
        for flow in flows
    )


def cleanup_result(*, with_endpoints: bool) -> GuestRulesResult:
    """The Service of the conntrack cases: one endpoint serves, one does not."""
    raw, endpoints = CONNTRACK.service, CONNTRACK.endpoints
    state = ServiceState()
    state.put_namespace(builders.namespace("test"))
    item = builders.service(
        raw["svc"], raw["vip"], protocol="UDP", external=[raw["external_ip"]], balancer=[raw["lb_ip"]]
    )
    ports = [objects.ServicePort(name="p", protocol="UDP", port=raw["service_port"])]
    spec = objects.ServiceSpec(
        cluster_ip=raw["vip"],
        cluster_ips=[raw["vip"]],
        ip_families=["IPv4"],
        external_ips=[raw["external_ip"]],
        ports=ports,
    )
    state.put_service(objects.ServiceObject(metadata=item.metadata, spec=spec, status=item.status))
    described = []
    for name, is_serving in (("serving", True), ("not_serving", False)):
        ip = endpoints[name].rpartition(":")[0]
        conditions = objects.Conditions(ready=is_serving, serving=is_serving)
        described.append(objects.SliceEndpoint(addresses=[ip], conditions=conditions))
    one = builders.endpoint_slice(raw["svc"])
    state.put_slice(
        objects.EndpointSliceObject(
            metadata=one.metadata,
            address_type="IPv4",
            endpoints=described if with_endpoints else None,
            ports=[objects.SlicePort(name="p", protocol="UDP", port=9090)],
        )
    )
    return state.result_for(VIEW)


VIEW = GuestView(None, (), ("10.1.0.2",), "here", "", (), Family.IPV4)


@pytest.mark.parametrize("entry", CONNTRACK.entries, ids=str)
def test_stale_flows_of_the_case_data(entry: ConntrackEntry) -> None:
    flows = stale_flows(None, cleanup_result(with_endpoints=True))
    # A guest has no node ports: what a host would clean of them is not our Service's here.
    is_kept = entry.is_kept or entry.destination == "*"
    assert is_deleted(entry, flows) != is_kept


def test_kube_proxy_fixes_of_the_case_data() -> None:
    assert len(CONNTRACK.later) == 2
    before, fallen = cleanup_result(with_endpoints=True), cleanup_result(with_endpoints=False)
    for after in (fallen, NOTHING):
        flows = stale_flows(before, after)
        for entry in CONNTRACK.entries:
            is_ours = entry.protocol == "udp" and entry.port == 8000 and entry.destination != "*"
            assert is_deleted(entry, flows) == is_ours


@pytest.mark.parametrize(
    "case", [case for case in CASES.endpoint_map if case.has_udp_pass is not None], ids=lambda case: case.id
)
def test_which_endpoint_changes_need_a_flush(case: EndpointMap) -> None:
    def at(endpoints: dict[str, tuple[str, ...]]) -> GuestRulesResult:
        state = ServiceState()
        state.put_namespace(builders.namespace("ns1"))
        for text, ips in endpoints.items():
            reference, _, port = text.partition(":")
            spec = objects.ServiceSpec(
                cluster_ip=IP,
                cluster_ips=[IP],
                ip_families=["IPv4"],
                ports=[objects.ServicePort(name="p11", protocol="UDP", port=PORT)],
            )
            metadata = builders.service(reference, IP).metadata
            state.put_service(objects.ServiceObject(metadata=metadata, spec=spec))
            one = builders.endpoint_slice(reference, *(ip.rpartition(":")[0] for ip in ips))
            number = int(ips[0].rpartition(":")[2])
            slice_ports = [objects.SlicePort(name=port, protocol="UDP", port=number)]
            state.put_slice(
                objects.EndpointSliceObject(
                    metadata=one.metadata, address_type="IPv4", endpoints=one.endpoints, ports=slice_ports
                )
            )
        return state.result_for(VIEW)

    assert bool(stale_flows(at(dict(case.before)), at(dict(case.after)))) == case.has_udp_pass
