# SPDX-License-Identifier: Apache-2.0
"""Endpoints and EndpointSlices by the SyncPolicy, as in docs/spec/sync-policy.md#endpoints."""

import ipaddress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import addresses, endpoints
from syncer.policy.sync_policy import DEFAULT, EndpointPolicy, SyncPolicy
from tests.unit.syncer.policy.arbitrary_json import are_refusals, changed

OWN = frozenset({"10.244.1.5", "10.244.2.7", "2001:db8::5"})


def endpoint_slice(
    *addresses: Any, kind: str = "IPv4", name: str = "web-abc", namespace: str = "shop"
) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "addressType": kind,
        "endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in addresses],
        "ports": [{"port": 80}],
    }


def subsets(
    *addresses: Any, not_ready: tuple[Any, ...] = (), name: str = "web", namespace: str = "shop"
) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "subsets": [
            {
                "addresses": [{"ip": each} for each in addresses],
                "notReadyAddresses": [{"ip": each} for each in not_ready],
                "ports": [{"port": 80}],
            }
        ],
    }


def foreign(path: str, address: str) -> Refusal:
    return Refusal(
        path,
        f"address {address} of no pod of the tenant: "
        "SyncPolicy field spec.endpoints.allowedCIDRs does not allow it",
    )


def never(path: str, what: str) -> Refusal:
    return Refusal(path, f"{what}: no SyncPolicy allows it")


def ranges(denied: tuple[str, ...], allowed: tuple[str, ...] = ()) -> SyncPolicy:
    return SyncPolicy(
        endpoints=EndpointPolicy(
            tuple(map(ipaddress.ip_network, denied)), tuple(map(ipaddress.ip_network, allowed))
        )
    )


@pytest.mark.parametrize(
    "value",
    [
        {},
        endpoint_slice("10.244.1.5", "10.244.2.7"),
        endpoint_slice("2001:db8:0::5", kind="IPv6"),
        endpoint_slice("192.0.2.1"),
        endpoint_slice("db.example.com", kind="FQDN"),
        subsets("10.244.1.5", not_ready=("10.244.2.7",)),
        subsets("198.51.100.9"),
    ],
)
def test_own_pods_and_public_addresses_pass(value: Object) -> None:
    assert endpoints.refusals(value, DEFAULT, OWN) == ()


CASES: list[tuple[Object, tuple[Refusal, ...]]] = [
    (
        endpoint_slice("10.244.1.5", "10.244.9.9"),
        (
            Refusal(
                "endpoints[1].addresses[0]",
                "address 10.244.9.9 of no pod of the tenant: "
                "SyncPolicy field spec.endpoints.allowedCIDRs does not allow it",
            ),
        ),
    ),
    (
        subsets("192.168.1.10", not_ready=("172.16.0.1",)),
        (
            foreign("subsets[0].addresses[0].ip", "192.168.1.10"),
            foreign("subsets[0].notReadyAddresses[0].ip", "172.16.0.1"),
        ),
    ),
    (endpoint_slice("100.64.0.1"), (foreign("endpoints[0].addresses[0]", "100.64.0.1"),)),
    (
        endpoint_slice("169.254.169.254"),
        (never("endpoints[0].addresses[0]", "address 169.254.169.254"),),
    ),
    (
        endpoint_slice("fd00:ec2::254", "fe80::1", "fd12::1", kind="IPv6"),
        (
            never("endpoints[0].addresses[0]", "address fd00:ec2::254"),
            never("endpoints[1].addresses[0]", "address fe80::1"),
            foreign("endpoints[2].addresses[0]", "fd12::1"),
        ),
    ),
    (
        endpoint_slice("::ffff:10.244.9.9", kind="IPv6"),
        (foreign("endpoints[0].addresses[0]", "::ffff:10.244.9.9"),),
    ),
    (subsets("127.0.0.1"), (never("subsets[0].addresses[0].ip", "address 127.0.0.1"),)),
    (
        subsets("10.0.0.01", 7, None),
        (
            never("subsets[0].addresses[0].ip", "10.0.0.01 is not an address"),
            never("subsets[0].addresses[1].ip", "(int) is not an address"),
            never("subsets[0].addresses[2].ip", "(NoneType) is not an address"),
        ),
    ),
    (
        endpoint_slice("kubernetes.default.svc", kind="FQDN"),
        (
            Refusal(
                "endpoints[0].addresses[0]",
                "name kubernetes.default.svc: SyncPolicy field spec.services.externalNames does not allow it",
            ),
        ),
    ),
    (
        subsets("10.0.0.1", name="kubernetes"),
        (foreign("subsets[0].addresses[0].ip", "10.0.0.1"),),
    ),
    (
        endpoint_slice("10.0.0.1", name="kubernetes-2", namespace="default"),
        (foreign("endpoints[0].addresses[0]", "10.0.0.1"),),
    ),
    (
        subsets("169.254.169.254", name="kubernetes", namespace="default"),
        (never("subsets[0].addresses[0].ip", "address 169.254.169.254"),),
    ),
]


@pytest.mark.parametrize(("value", "expected"), CASES)
def test_default_policy_refuses(value: Object, expected: tuple[Refusal, ...]) -> None:
    assert endpoints.refusals(value, DEFAULT, OWN) == expected


@pytest.mark.parametrize("make", [endpoint_slice, subsets])
@pytest.mark.parametrize("name", ["kubernetes", "kubernetes-blue"])
@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.1.10", "172.16.0.1", "100.64.0.1", "10.244.9.9"])
def test_a_tenants_word_about_its_api_server_is_no_proof(make: Any, name: str, address: str) -> None:
    """It would name a node's kubelet, or another tenant's pod."""
    value = make(address, name=name, namespace="default")
    assert len(endpoints.refusals(value, DEFAULT, OWN)) == 1
    assert len(endpoints.refusals(value, DEFAULT, OWN, {"10.0.0.2"})) == 1
    assert endpoints.refusals(value, DEFAULT, OWN, {address}) == ()


@pytest.mark.parametrize(
    ("name", "address", "own", "is_allowed"),
    [
        ("kubernetes", "10.0.0.1", {"10.0.0.1"}, True),
        ("kubernetes-vpc-a", "10.0.0.1", {"10.0.0.1"}, True),
        ("kubernetes", "10.0.0.2", {"10.0.0.1"}, False),
        ("kubernetes", "10.0.0.1", frozenset(), False),
        ("web", "10.0.0.1", {"10.0.0.1"}, False),
        ("kubernetes", "169.254.169.254", {"169.254.169.254"}, False),
        ("kubernetes", [], {"10.0.0.1"}, False),
    ],
)
def test_known_api_server_has_its_addresses(name: str, address: Any, own: set[str], is_allowed: bool) -> None:
    value = subsets(address, name=name, namespace="default")
    assert (endpoints.refusals(value, DEFAULT, OWN, own) == ()) == is_allowed


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        ("10.244.9.9", False),
        ("203.0.113.4", False),
        ("10.244.100.1", True),
        ("10.244.1.5", True),
        ("192.168.1.1", True),
        ("169.254.169.254", False),
    ],
)
def test_ranges_of_the_operator(address: str, is_allowed: bool) -> None:
    policy = ranges(("10.244.0.0/16", "203.0.113.0/24"), allowed=("10.244.100.0/24", "169.254.0.0/16"))
    assert (endpoints.refusals(endpoint_slice(address), policy, OWN) == ()) == is_allowed


CLUSTER = addresses.CountedNetworks(
    addresses.networks(
        (
            "203.0.113.0/28",
            "198.51.100.7",
            "10.244.3.0/24",
            "2001:db8:1::/64",
            "198.51.100.7",
            "not a network",
        )
    )
)


@pytest.mark.parametrize(
    ("address", "allowed", "is_allowed"),
    [
        ("203.0.113.4", (), False),  # a pod of kube-system's, on a node with public addresses
        ("203.0.113.16", (), True),
        ("198.51.100.7", (), False),  # a node
        ("198.51.100.8", (), True),
        ("2001:db8:1::9", (), False),
        ("2001:db8:2::9", (), True),
        ("::ffff:198.51.100.7", (), False),
        ("10.244.3.9", ("10.0.0.0/8",), False),  # what is allowed for outside has the cluster in it
        ("10.244.4.9", ("10.0.0.0/8",), True),
        ("10.244.3.9", ("10.244.3.0/24",), True),
        ("10.244.3.9", ("10.0.0.0/8", "10.244.3.9/32"), True),
        ("198.51.100.7", ("198.51.100.0/24",), False),
        ("198.51.100.7", ("198.51.100.7/32",), True),
    ],
)
@pytest.mark.parametrize("make", [endpoint_slice, subsets])
def test_what_is_the_super_clusters_own_is_no_address_outside(
    make: Any, address: str, allowed: tuple[str, ...], is_allowed: bool
) -> None:
    policy = ranges(("10.0.0.0/8",), allowed)
    value = make(address)
    found = endpoints.refusals(value, policy, OWN, (), lambda: CLUSTER)
    assert (found == ()) == is_allowed
    own = str(addresses.parse(address))
    assert endpoints.refusals(value, policy, {own}, (), lambda: CLUSTER) == ()
    value["metadata"] = {"name": "kubernetes", "namespace": "default"}
    assert endpoints.refusals(value, policy, OWN, {own}, lambda: CLUSTER) == ()


def test_foreign_addresses_are_bounded() -> None:
    value = endpoint_slice(*(f"192.0.{index >> 8}.{index & 255}" for index in range(512, 1512)))
    assert endpoints.refusals(value, DEFAULT, OWN) == ()
    value["endpoints"].append({"addresses": ["198.51.100.1"]})
    assert endpoints.refusals(value, DEFAULT, OWN) == (
        never("endpoints[1000].addresses[0]", "more than 1000 addresses that are not of the tenant's pods"),
    )


@given(changed(*(value for value, _ in CASES)))
def test_any_json_gives_refusals(value: Object) -> None:
    assert are_refusals(endpoints.refusals(value, DEFAULT, OWN))
    assert are_refusals(endpoints.refusals(value, DEFAULT, OWN, {"10.0.0.1"}))


@pytest.mark.parametrize(
    ("found", "patch", "expected"),
    [
        (["10.0.0.1", "10.0.0.2"], ["10.0.0.1"], True),
        (["10.0.0.1"], ["10.0.0.2"], True),
        (["10.0.0.1"], ["10.0.0.1", "10.0.0.2"], False),
        ([], ["10.0.0.1"], False),
        (["10.0.0.1"], None, True),
        (["10.0.0.1"], "metadata", False),
    ],
)
def test_a_patch_takes_addresses_away(
    found: list[str], patch: list[str] | str | None, *, expected: bool
) -> None:
    for name, make in (
        ("endpoints", lambda each: [{"addresses": each}]),
        (
            "subsets",
            lambda each: [
                {"addresses": [{"ip": ip} for ip in each[:1]]},
                {"notReadyAddresses": [{"ip": ip} for ip in each[1:]]},
            ],
        ),
    ):
        body: Object = (
            {"metadata": {}} if patch == "metadata" else {name: None if patch is None else make(patch)}
        )
        assert endpoints.takes_away({name: make(found)}, body) is expected


@pytest.mark.parametrize("denied", ["2002::/16", "64:ff9b::/96", "::ffff:0:0/96", "2002:808:808::/48"])
def test_a_policy_denies_addresses_as_they_are_written(denied: str) -> None:
    """And no others that they carry."""
    limits = EndpointPolicy(denied_cidrs=(ipaddress.ip_network(denied),))
    policy = replace(DEFAULT, endpoints=limits)
    inside = ipaddress.ip_network(denied)
    address = {
        "2002::/16": "2002:808:808::1",
        "64:ff9b::/96": "64:ff9b::8.8.8.8",
        "::ffff:0:0/96": "::ffff:8.8.8.8",
        "2002:808:808::/48": "2002:808:808::1",
    }[denied]
    assert ipaddress.ip_address(address) in inside
    for text, is_refused in ((address, True), ("8.8.8.8", False)):
        value = {"metadata": {"name": "s"}, "subsets": [{"addresses": [{"ip": text}]}]}
        assert bool(endpoints.refusals(value, policy, ())) == is_refused


@pytest.mark.parametrize("held", ["2002:cb00:7105::5", "203.0.113.5"])
def test_a_pod_of_another_tenant_has_its_address_in_each_form(held: str) -> None:
    value = subsets("2002:cb00:7105::5")
    assert not endpoints.refusals(value, DEFAULT, (), ())
    assert endpoints.refusals(value, DEFAULT, (), (), is_held_by_others=held.__eq__)
