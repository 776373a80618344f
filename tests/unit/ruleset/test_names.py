# SPDX-License-Identifier: Apache-2.0
import pytest

from ruleset.model import Endpoint, EndpointSet, Protocol
from ruleset.names import (
    chain_hash,
    endpoint_chain,
    endpoint_set_chain,
    is_marker,
    is_our_chain,
    marker_chain,
)

# The vectors of ../shared/cases/service-proxy.yaml, which kube-proxy's own tests print.
VECTORS = {
    "ns1/svc1:p80tcp": "XPGD46QRK7WJZT7O",
    "ns2/svc2:p80tcp": "GNZBNJ2PO5MGZ6GT",
    "ns3/svc3:p80tcp": "X27LE4BHSL4DOUIK",
    "ns4/svc4:p80tcp": "4SW47YFZTEDKD3PK",
    "ns5/svc5:p80tcp": "NUKIZ6OKUXPJNT4C",
    "ns2/svc2:p8080tcp": "2VJB64SDSIJUP5T6",
    "ns4/svc4:p8082tcp": "EBDQOQU5SJFXRIL3",
    "ns1/svc1:p80tcp10.180.0.1:80": "SXIVWICOYRO3J4NJ",
    "ns2/svc2:p80tcp10.180.0.2:80": "RS4RBKLTHTF2IUXJ",
    "ns4/svc4:p80tcp10.180.0.4:80": "UKSFD7AGPMPPLUHC",
    "ns4/svc4:p80tcp10.180.0.5:80": "C6EBXVWJJZMIWKLZ",
    "ns1/svc1:p80tcp10.0.0.0:80": "DKGQUZGBKLTPAR56",
    "ns3/svc3:p8081tcp203.0.113.4:8081": "RUVVH7YV3PHQBDOS",
    "ns4/svc4:p8082tcp10.4.0.1:8082": "SU5STNODRYEWJAUF",
    "default/kubernetes:httpstcp": "NPX46M4PTMTKRN6Y",
    "kube-system/kube-dns:dnsudp": "TCOU7JCQXEZGVUNU",
    "ns1/svc1tcp": "AQI2S6QIMU7PVVRP",
    "ns1/svc1:p80tcp[fd00:10:180::1]:80": "OGYCNMB4EMRUSJ6N",
}


@pytest.mark.parametrize(("text", "expected"), VECTORS.items(), ids=VECTORS)
def test_chain_hash_equals_kube_proxys(text: str, expected: str) -> None:
    assert chain_hash(text) == expected


def _target(service_port: str, *endpoints: Endpoint, is_local: bool = False) -> EndpointSet:
    return EndpointSet(service_port, Protocol.TCP, is_local, endpoints)


def test_chains_of_a_service_port_share_its_hash() -> None:
    endpoint = Endpoint("10.180.0.1", 80)
    assert endpoint_set_chain(_target("ns1/svc1:p80", endpoint)) == "VCN-SVC-XPGD46QRK7WJZT7O"
    assert endpoint_set_chain(_target("ns1/svc1:p80", endpoint, is_local=True)) == "VCN-SVL-XPGD46QRK7WJZT7O"
    assert endpoint_set_chain(_target("ns1/svc1", endpoint)) == "VCN-SVC-AQI2S6QIMU7PVVRP"
    assert endpoint_chain(_target("ns1/svc1:p80", endpoint), endpoint) == "VCN-SEP-SXIVWICOYRO3J4NJ"


def test_ipv6_endpoint_is_hashed_in_brackets() -> None:
    endpoint = Endpoint("fd00:10:180::1", 80)
    assert endpoint_chain(_target("ns1/svc1:p80", endpoint), endpoint) == "VCN-SEP-OGYCNMB4EMRUSJ6N"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("VCN-SERVICES", True),
        ("VCN-SVC-XPGD46QRK7WJZT7O", True),
        ("VCN-MARK-0123456789abcdef", True),
        ("VCN-" + "A" * 24, True),
        ("VCN-" + "A" * 25, False),
        ("VCN-", False),
        ("KUBE-SERVICES", False),
        ("OUTPUT", False),
        ("VCN-A B", False),
        ("VCN-A\n", False),
    ],
)
def test_our_chains_have_our_prefix(name: str, expected: bool) -> None:
    assert is_our_chain(name) is expected


def test_marker_is_a_chain_of_ours() -> None:
    assert marker_chain("0123456789abcdef" * 4) == "VCN-MARK-0123456789abcdef"
    assert is_our_chain(marker_chain("f" * 64))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nat/VCN-MARK-0123456789abcdef", True),
        ("chain VCN-MARK-0123456789abcdef", True),
        ("nat/VCN-SERVICES", False),
        ("chain nat-output", False),
        ("VCN-MARK-0123456789abcdef", False),
    ],
)
def test_only_marker_objects_are_markers(name: str, expected: bool) -> None:
    assert is_marker(name) is expected
