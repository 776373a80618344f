# SPDX-License-Identifier: Apache-2.0
"""What a tenant's exposure changes: its certificate and its administrator's kubeconfig, while it runs."""

from __future__ import annotations

import base64

import yaml

from tenant_operator.core.steps import IssueLeaf
from tenant_operator.model.objects import Object, Ref
from tenant_operator.pki.facts import facts_of
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster

NODES = ("192.0.2.10", "10.0.0.10")


def world_of(type_: str, host: str = "") -> FakeWorld:
    return FakeWorld(virtual_cluster(exposure={"type": type_, "hostName": host}), node_addresses=NODES)


def service(world: FakeWorld) -> Object:
    (found,) = (value for ref, value in world.objects.items() if ref.name == "apiserver-svc")
    return found


def names(world: FakeWorld) -> set[str]:
    """What the serving certificate is valid for beyond what each is."""
    (found,) = (value for ref, value in world.objects.items() if ref.name == "apiserver-serving")
    facts = facts_of(base64.b64decode(found["data"]["tls.crt"]))
    assert facts is not None
    inside = {"10.96.0.9", "10.32.0.1"}
    return {each for each in facts.names if "kubernetes" not in each and "svc" not in each} - inside


def server(world: FakeWorld) -> str:
    """Of the administrator's kubeconfig."""
    data = world.objects[Ref("Secret", "tenants", "acme-kubeconfig")]["data"]
    found: Object = yaml.safe_load(base64.b64decode(data["value"]))
    return str(found["clusters"][0]["cluster"]["server"])


def up_to_date(world: FakeWorld) -> tuple[str, str]:
    found = {each["type"]: each for each in world.cluster["status"]["conditions"]}["UpToDate"]
    return found["status"], found["reason"]


def test_a_node_port_is_named_once_it_is_assigned() -> None:
    world = world_of("NodePort")
    world.run()
    assert up_to_date(world) == ("False", "NotExposed")
    service(world)["spec"]["ports"][0]["nodePort"] = 31443
    world.run()
    assert server(world) == "https://192.0.2.10:31443"
    assert names(world) == set(NODES)
    assert world.cluster["status"]["endpoint"] == "https://192.0.2.10:31443"
    assert up_to_date(world)[0] == "True"


def test_other_nodes_renew_the_certificate_alone() -> None:
    """No pod restarts: the API server reads its certificate again."""
    world = world_of("NodePort")
    world.run()
    service(world)["spec"]["ports"][0]["nodePort"] = 31443
    world.run()
    world.node_addresses = ("192.0.2.11",)
    steps = world.plan().steps
    assert {each.spec.secret for each in steps if isinstance(each, IssueLeaf)} == {
        "apiserver-serving",
        "acme-kubeconfig",
    }
    assert len(steps) == 2
    world.run()
    assert (names(world), server(world)) == ({"192.0.2.11"}, "https://192.0.2.11:31443")


def test_a_load_balancer_is_not_waited_for() -> None:
    """The tenant is served inside meanwhile, and a condition tells that it is not outside."""
    world = world_of("LoadBalancer")
    world.run()
    conditions = {each["type"]: each["status"] for each in world.cluster["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert up_to_date(world) == ("False", "NotExposed")
    assert server(world) == "https://10.96.0.9:6443"
    service(world)["status"] = {"loadBalancer": {"ingress": [{"hostname": "lb.example.net"}]}}
    world.run()
    assert (names(world), server(world)) == ({"lb.example.net"}, "https://lb.example.net:6443")
    assert up_to_date(world)[0] == "True"
    writes = world.writes
    for _ in range(100):
        assert world.plan().steps == ()
    assert world.writes == writes


def test_a_host_name_needs_no_exposure() -> None:
    """A gateway in front of it has the name."""
    world = world_of("ClusterIP", "acme.example.com")
    world.run()
    assert (names(world), server(world)) == ({"acme.example.com"}, "https://acme.example.com:6443")
