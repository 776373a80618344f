# SPDX-License-Identifier: Apache-2.0
"""The rules of one Service, and the model's results for the flow cases in a guest's view."""

import ipaddress
from collections.abc import Iterable

import pytest

from kubeproxy_ext.compute.addresses import AddressRange
from kubeproxy_ext.compute.guest_view import GuestView, ServingEndpoints
from kubeproxy_ext.compute.objects import read
from kubeproxy_ext.compute.parse import Addresses, EndpointInfo, PortInfo, ServiceInfo, SliceInfo
from kubeproxy_ext.compute.service_rules import CompiledService, GuestLocation, compile_service
from kubeproxy_ext.compute.service_state import ServiceState
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
from tests.cases.services.case_file import ApiState, CaseFile, Check, FlowCase, GuestCase
from tests.cases.services.load import MORE, load, load_shared
from tests.unit.kubeproxy_ext.compute.builders import put

FILES = (load_shared(), load(MORE))
HERE = GuestLocation("here", "", Family.IPV4)
NO_RANGES: tuple[AddressRange, ...] | None = None


def service(
    *,
    external: tuple[str, ...] = (),
    balancer: tuple[str, ...] = (),
    is_internal_local: bool = False,
    protocol: Protocol = Protocol.TCP,
    port_name: str = "p",
    affinity_s: int | None = None,
) -> ServiceInfo:
    return ServiceInfo(
        namespace="a",
        name="s",
        network=None,
        created="",
        ports=(PortInfo(port_name, protocol, 80),),
        ipv4=Addresses("172.30.0.41", ("10.96.0.5",), external, balancer, NO_RANGES),
        ipv6=None,
        is_internal_local=is_internal_local,
        affinity_s=affinity_s,
        problems=(),
    )


def endpoints(
    *ips_and_nodes: tuple[str, str], protocol: Protocol = Protocol.TCP, name: str = "p"
) -> list[SliceInfo]:
    found = tuple(EndpointInfo(ip, node, True, True, False, (), ()) for ip, node in ips_and_nodes)
    return [SliceInfo("a", "s-1", "s", Family.IPV4, (PortInfo(name, protocol, 8080),), found, ())]


BOTH = endpoints(("10.0.0.2", "there"), ("10.0.0.1", "here"))
FAR = endpoints(("10.0.0.2", "there"))


def test_own_and_super_cluster_ip_lead_to_endpoints() -> None:
    target = EndpointSet(
        service_port="a/s:p",
        protocol=Protocol.TCP,
        is_local=False,
        endpoints=(Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080)),
        affinity_s=60,
    )
    assert compile_service(service(affinity_s=60), BOTH, HERE, is_in_source_ranges=True) == CompiledService(
        ServiceRules(
            "a/s",
            (
                Frontend("172.30.0.41", 80, Protocol.TCP, "a/s:p", target),
                Frontend("10.96.0.5", 80, Protocol.TCP, "a/s:p", target),
            ),
        ),
        (),
    )


def test_text_of_an_unnamed_port_has_no_colon() -> None:
    found = compile_service(
        service(port_name=""), endpoints(("10.0.0.1", "here"), name=""), HERE, is_in_source_ranges=True
    )
    assert {frontend.service_port for frontend in found.rules.frontends} == {"a/s"}


def meanings(found: CompiledService) -> dict[str, str]:
    """What becomes of packets to each address, in a word."""
    return {
        frontend.ip: frontend.to.name
        if isinstance(frontend.to, NoBackendAction)
        else ("local " if frontend.to.is_local else "") + ",".join(e.ip for e in frontend.to.endpoints)
        for frontend in found.rules.frontends
    }


@pytest.mark.parametrize(
    ("is_internal_local", "slices", "is_in_source_ranges", "internal", "external", "balancer"),
    [
        (False, BOTH, True, "10.0.0.1,10.0.0.2", "10.0.0.1,10.0.0.2", "10.0.0.1,10.0.0.2"),
        (False, BOTH, False, "10.0.0.1,10.0.0.2", "10.0.0.1,10.0.0.2", "DROP"),
        (True, BOTH, True, "local 10.0.0.1", "10.0.0.1,10.0.0.2", "10.0.0.1,10.0.0.2"),
        (True, FAR, True, "DROP", "10.0.0.2", "10.0.0.2"),
        (False, [], True, "REJECT", "REJECT", "REJECT"),
        (True, [], True, "REJECT", "REJECT", "REJECT"),
        (True, [], False, "REJECT", "REJECT", "REJECT"),
    ],
)
def test_policy_by_kind_of_address(
    is_internal_local: bool,
    slices: list[SliceInfo],
    is_in_source_ranges: bool,
    internal: str,
    external: str,
    balancer: str,
) -> None:
    subject = service(external=("192.168.99.11",), balancer=("1.2.3.4",), is_internal_local=is_internal_local)
    assert meanings(compile_service(subject, slices, HERE, is_in_source_ranges=is_in_source_ranges)) == {
        "172.30.0.41": internal,
        "10.96.0.5": internal,
        "192.168.99.11": external,
        "1.2.3.4": balancer,
    }


def test_address_of_two_kinds_counts_as_the_first() -> None:
    subject = service(external=("172.30.0.41", "1.2.3.4"), balancer=("1.2.3.4",), is_internal_local=True)
    found = compile_service(subject, FAR, HERE, is_in_source_ranges=False)
    assert meanings(found) == {"172.30.0.41": "DROP", "10.96.0.5": "DROP", "1.2.3.4": "10.0.0.2"}


def test_udp_ports_have_serving_endpoints() -> None:
    subject = service(protocol=Protocol.UDP)
    found = compile_service(
        subject, endpoints(("10.0.0.1", "here"), protocol=Protocol.UDP), HERE, is_in_source_ranges=True
    )
    assert found.serving == (ServingEndpoints("a/s:p", Protocol.UDP, (Endpoint("10.0.0.1", 8080),)),)
    gone = compile_service(subject, [], HERE, is_in_source_ranges=True)
    assert gone.serving == (ServingEndpoints("a/s:p", Protocol.UDP, ()),)


def test_family_without_address_has_no_rules() -> None:
    six = GuestLocation("here", "", Family.IPV6)
    assert compile_service(service(), BOTH, six, is_in_source_ranges=True) == CompiledService(
        ServiceRules("a/s", ()), ()
    )


def evaluate(rules: GuestRules, check: Check) -> object:
    """Where the model sends a packet, in the words of the cases."""
    for frontend in rules.frontends():
        if (frontend.ip, frontend.port, frontend.protocol.value) == (
            check.destination,
            check.port,
            check.protocol,
        ):
            if isinstance(frontend.to, NoBackendAction):
                return frontend.to.value
            return tuple(str(endpoint) for endpoint in frontend.to.endpoints)
    in_range = is_in(check.destination, rules.service_cidrs)
    return "reject" if in_range else "pass"


def rules(
    state: ApiState,
    *,
    pod: str,
    node: str,
    cidrs: Iterable[str] = (),
    networks: Iterable[str] = (),
    tenant: str | None = None,
) -> GuestRules:
    services = ServiceState()
    for item in state.objects(node):
        found = read(item)
        assert found is not None
        put(services, found)
    family = Family.IPV6 if ":" in pod else Family.IPV4
    return services.rules_for(GuestView(tenant, tuple(networks), (pod,), node, None, tuple(cidrs), family))


def is_in(ip: str, cidrs: Iterable[str]) -> bool:
    return any(ipaddress.ip_address(ip) in ipaddress.ip_network(cidr.strip()) for cidr in cidrs)


FLOWS = [pytest.param(file, case, id=case.id) for file in FILES for case in file.flows]
GUESTS = [pytest.param(file, case, id=case.id) for file in FILES for case in file.guest]


@pytest.mark.parametrize(("file", "case"), FLOWS)
def test_flows_of_the_case_data(file: CaseFile, case: FlowCase) -> None:
    """Packets of the node itself and of outsiders are not a guest's."""
    where = file.node_origin
    pods = where.pod_cidr.split(",")
    for check in (check for check in case.checks if is_in(check.source, pods)):
        found = rules(case.state, pod=check.source, node=where.node)
        is_node_port = check.destination in where.node_ips and check.port >= 3000
        assert evaluate(found, check) == ("pass" if is_node_port else check.expect), check.name


# The model has neither routes nor packets that left before the rules.
_NOT_OF_THE_MODEL = {"G01", "G05"}


@pytest.mark.parametrize(("file", "case"), GUESTS)
def test_guests_of_the_case_data(file: CaseFile, case: GuestCase) -> None:
    if case.id in _NOT_OF_THE_MODEL:
        return
    guest_defaults = file.guest_origin
    cidrs = [cidr.strip() for cidr in guest_defaults.service_cidr.split(",")] if case.has_catch_all else []
    where = {"pod": case.pod or guest_defaults.pod, "node": guest_defaults.node}
    now = rules(case.state, **where, cidrs=cidrs, networks=case.networks, tenant=case.tenant)
    for check in case.checks:
        assert evaluate(now, check) == check.expect, check.name
    if case.how == "same-rules":
        assert case.before is not None
        assert now == rules(case.before, **where, cidrs=cidrs, networks=case.networks, tenant=case.tenant)
