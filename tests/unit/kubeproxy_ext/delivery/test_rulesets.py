# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from bridge_api.messages import Capabilities, Guest
from kubeproxy_ext.compute.objects import (
    EndpointSliceObject,
    Ingress,
    LoadBalancer,
    Meta,
    NamespaceObject,
    ServiceObject,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
    SliceEndpoint,
    SlicePort,
)
from kubeproxy_ext.compute.service_state import ServiceState
from kubeproxy_ext.delivery.rulesets import Generations, GuestSpec, Ineligible, Rulesets, guest_spec
from ruleset.model import Family
from ruleset.names import Backend
from tenancy import keys

BOTH = Capabilities(channel="agent", backends=("iptables", "nft"), ipv6=True)


def guest(**fields: Any) -> Guest:
    known: dict[str, Any] = {"id": "g", "tenant": "a", "ips": ("10.244.0.1",), "capabilities": BOTH}
    return Guest(**(known | fields))


def spec_of(**fields: Any) -> GuestSpec:
    found = guest_spec(guest(**fields), "n1", ("10.96.0.0/16",))
    assert isinstance(found, GuestSpec)
    return found


class ClusterRulesets:
    """A service state with one tenant's Services, and their groups."""

    def __init__(self) -> None:
        self.state = ServiceState()
        self.now = 1_800_000_000.0
        self.rulesets = Rulesets(self.state, Generations(lambda: self.now))
        for tenant in ("a", "b"):
            meta = Meta(name=f"{tenant}-default", annotations={keys.CLUSTER: tenant})
            self.state.put_namespace(NamespaceObject(meta))
            self.put(f"{tenant}-default", "web", f"10.96.{ord(tenant)}.1", "10.0.0.1")

    def put(self, namespace: str, name: str, ip: str, *endpoints: str, **spec: Any) -> None:
        port = ServicePort("p", "TCP", 80)
        known: dict[str, Any] = {"cluster_ip": ip, "ports": [port]}
        meta = Meta(name=name, namespace=namespace)
        balancer = ServiceStatus(LoadBalancer([Ingress("192.0.2.1")]))
        self.state.put_service(ServiceObject(meta, ServiceSpec(**(known | spec)), balancer))
        self.put_slice(namespace, name, *endpoints)

    def put_slice(self, namespace: str, name: str, *endpoints: str) -> None:
        meta = Meta(name=name, namespace=namespace, labels={"kubernetes.io/service-name": name})
        ends = [SliceEndpoint(addresses=[ip]) for ip in endpoints]
        self.state.put_slice(EndpointSliceObject(meta, "IPv4", ends, [SlicePort("p", "TCP", 8080)]))


@pytest.mark.parametrize(
    ("fields", "families", "backend"),
    [
        ({}, [Family.IPV4], Backend.IPTABLES),
        ({"ips": ("10.244.0.1", "fd00::1")}, [Family.IPV4, Family.IPV6], Backend.IPTABLES),
        ({"ips": ()}, [Family.IPV4, Family.IPV6], Backend.IPTABLES),
        ({"ips": ("fd00::1",)}, [Family.IPV6], Backend.IPTABLES),
        (
            {"ips": (), "capabilities": Capabilities(backends=("pf", "nft", "iptables"))},
            [Family.IPV4],
            Backend.NFT,
        ),
    ],
)
def test_guest_spec(fields: dict[str, Any], families: list[Family], backend: Backend) -> None:
    found = spec_of(**fields)
    assert [view.family for view in found.views] == families
    assert found.backend is backend
    assert {view.tenant for view in found.views} == {"a"}
    assert {view.networks for view in found.views} == {("default",)}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tenant": ""}, "its pod belongs to no tenant"),
        ({"not_injectable": "policy"}, "policy"),
        ({"capabilities": None}, "kata-bridge has probed no channel of it yet"),
        ({"capabilities": Capabilities()}, "its packet filter is not supported: neither iptables nor nft"),
        (
            {"ips": ("fd00::1",), "capabilities": Capabilities(backends=("nft",))},
            "it has IPv6 addresses only, and no packet filter for IPv6",
        ),
    ],
)
def test_ineligible_guests_have_a_reason(fields: dict[str, Any], reason: str) -> None:
    assert guest_spec(guest(**fields), "n1", ()) == Ineligible(reason)


def test_guests_with_equal_specs_share_one_ruleset() -> None:
    cluster = ClusterRulesets()
    one = spec_of()
    found = cluster.rulesets.desired_for(
        {"g1": one, "g2": spec_of(ips=("10.244.0.2",)), "g3": spec_of(networks=("x",))}
    )
    assert found["g1"] is found["g2"]
    assert found["g1"].digest != found["g3"].digest
    assert (cluster.rulesets.render_count, len(cluster.rulesets)) == (2, 2)
    assert cluster.rulesets.desired_for({"g4": one})["g4"] is found["g1"]
    nft = cluster.rulesets.desired_for({"g5": spec_of(capabilities=Capabilities(backends=("nft",)))})["g5"]
    assert nft.ruleset.documents[0].backend is Backend.NFT
    assert cluster.rulesets.render_count == 3


def test_source_ranges_separate_rulesets() -> None:
    cluster = ClusterRulesets()
    cluster.put("a-default", "lb", "10.96.97.9", "10.0.0.9", load_balancer_source_ranges=["10.244.0.1/32"])
    found = cluster.rulesets.desired_for({"in": spec_of(), "out": spec_of(ips=("10.244.0.2",))})
    assert found["in"] is not found["out"]


def test_only_visible_changes_make_a_new_ruleset() -> None:
    cluster = ClusterRulesets()
    guests = {"g": spec_of()}
    first = cluster.rulesets.desired_for(guests)["g"]
    cluster.put_slice("b-default", "web", "10.0.0.2")
    assert cluster.rulesets.desired_for(guests)["g"] is first
    cluster.put_slice("a-default", "web", "10.0.0.1")
    assert cluster.rulesets.desired_for(guests)["g"] is first
    cluster.put_slice("a-default", "web", "10.0.0.2")
    second = cluster.rulesets.desired_for(guests)["g"]
    assert second.digest != first.digest
    assert second.ruleset.generation > first.ruleset.generation
    cluster.put_slice("a-default", "web", "10.0.0.1")
    third = cluster.rulesets.desired_for(guests)["g"]
    assert third.digest == first.digest
    assert third.ruleset.generation > second.ruleset.generation


def test_unused_rulesets_are_dropped() -> None:
    cluster = ClusterRulesets()
    found = cluster.rulesets.desired_for({"g1": spec_of(), "g2": spec_of(networks=("x",))})
    cluster.rulesets.keep_only([found["g1"]])
    cluster.rulesets.keep_results_of([spec_of()])
    assert len(cluster.rulesets) == 1
    assert cluster.rulesets.desired_for({"g1": spec_of()})["g1"] is found["g1"]


def test_generations_grow_across_restarts_and_clock_changes() -> None:
    wall = 1000.0
    before = Generations(lambda: wall)
    assert [before.next_generation("a") for _ in range(3)] == [1_000_000, 1_000_001, 1_000_002]
    wall = 2000.0
    assert before.next_generation("a") == 2_000_000
    wall = 10.0
    assert before.next_generation("a") == 2_000_001
    after = Generations(lambda: wall)
    after.observe("a", 2_000_001)
    after.observe("a", 5)
    assert after.next_generation("a") == 2_000_002
    # One tenant's changes leave another's generations unchanged.
    assert after.next_generation("b") == 10_000
