# SPDX-License-Identifier: Apache-2.0
"""Names and URL of an exposure, from the Service and the nodes as they are."""

from typing import Any

import msgspec
import pytest

from tenant_operator.model.exposure import (
    MAX_NODES,
    NodeAddresses,
    OutsideEndpoint,
    node_addresses,
    outside_endpoint,
)
from tenant_operator.model.virtual_cluster import Exposure

NODES = ("192.0.2.10", "10.0.0.10")
PORT = {"spec": {"ports": [{"name": "https", "port": 6443, "nodePort": 31443}]}}


def balanced(*ingress: dict[str, str]) -> dict[str, Any]:
    return {"status": {"loadBalancer": {"ingress": list(ingress)}}}


@pytest.mark.parametrize(
    ("type_", "host", "service", "expected"),
    [
        ("ClusterIP", "", PORT, OutsideEndpoint()),
        (
            "ClusterIP",
            "acme.example.com",
            None,
            OutsideEndpoint(("acme.example.com",), "https://acme.example.com:6443"),
        ),
        ("NodePort", "", PORT, OutsideEndpoint(NODES, "https://192.0.2.10:31443")),
        (
            "NodePort",
            "acme.example.com",
            PORT,
            OutsideEndpoint(("acme.example.com",), "https://acme.example.com:31443"),
        ),
        ("NodePort", "", None, OutsideEndpoint(NODES, "", "a node port")),
        ("NodePort", "", {"spec": {"ports": [{"name": "https"}]}}, OutsideEndpoint(NODES, "", "a node port")),
        ("LoadBalancer", "", {}, OutsideEndpoint((), "", "an address of a load balancer")),
        (
            "LoadBalancer",
            "acme.example.com",
            {"status": {"loadBalancer": {}}},
            OutsideEndpoint(
                ("acme.example.com",), "https://acme.example.com:6443", "an address of a load balancer"
            ),
        ),
        (
            "LoadBalancer",
            "",
            balanced({"ip": "203.0.113.7"}, {"ip": "2001:db8::7"}),
            OutsideEndpoint(("203.0.113.7", "2001:db8::7"), "https://203.0.113.7:6443"),
        ),
        (
            "LoadBalancer",
            "",
            balanced({"ip": "2001:db8::7"}),
            OutsideEndpoint(("2001:db8::7",), "https://[2001:db8::7]:6443"),
        ),
        (
            "LoadBalancer",
            "acme.example.com",
            balanced({"hostname": "lb.example.net"}),
            OutsideEndpoint(("acme.example.com", "lb.example.net"), "https://acme.example.com:6443"),
        ),
    ],
)
def test_where_it_is_reached(
    type_: str, host: str, service: dict[str, Any] | None, expected: OutsideEndpoint
) -> None:
    assert outside_endpoint(Exposure(type_, host), service, NODES) == expected


def test_without_nodes_a_node_port_leads_nowhere() -> None:
    assert outside_endpoint(Exposure("NodePort"), PORT, ()) == OutsideEndpoint(
        (), "", "a node with an address"
    )


def node(name: str, created: int, **addresses: str) -> NodeAddresses:
    value = {
        "metadata": {"name": name, "creationTimestamp": f"2026-11-{created:02}T00:00:00Z"},
        "status": {"addresses": [{"type": type_, "address": each} for type_, each in addresses.items()]},
    }
    return msgspec.convert(value, NodeAddresses)


def test_external_addresses_of_nodes_come_first() -> None:
    nodes = [
        node("b", 2, Hostname="b", InternalIP="10.0.0.2", ExternalIP="192.0.2.2"),
        node("a", 3, InternalIP="10.0.0.3"),
        node("c", 1, Hostname="c", InternalIP="10.0.0.1"),
    ]
    assert node_addresses(nodes) == ("192.0.2.2", "10.0.0.1", "10.0.0.2", "10.0.0.3")


def test_a_node_that_joins_changes_no_certificate() -> None:
    """Beyond a few, those count that have been there longest."""
    nodes = [node(f"n{day}", day, InternalIP=f"10.0.0.{day}") for day in range(1, MAX_NODES + 1)]
    before = node_addresses(nodes)
    assert node_addresses([node("a", 20, InternalIP="10.0.0.99"), *reversed(nodes)]) == before
    assert len(before) == MAX_NODES
