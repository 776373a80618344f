# SPDX-License-Identifier: Apache-2.0
"""NetworkPolicies by the SyncPolicy: their size."""

from typing import Any

import pytest
from hypothesis import given

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import network_policies
from syncer.policy.sync_policy import DEFAULT, NetworkPolicyLimits, SyncPolicy
from tests.unit.syncer.policy.arbitrary_json import are_refusals, changed

BLOCK = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8", "172.16.0.0/12"]}}


def network_policy(**spec: Any) -> Object:
    return {"metadata": {"name": "a"}, "spec": {"podSelector": {}, **spec}}


# 1 rule, 1 block with 2 exceptions, 1 port: 5. 1 rule, 2 peers: 3.
EIGHT = network_policy(
    egress=[{"to": [BLOCK], "ports": [{"port": 53}]}], ingress=[{"from": [{"podSelector": {}}] * 2}]
)

CASES = [
    ({}, 0, ()),
    (network_policy(policyTypes=["Ingress"]), 0, ()),
    (EIGHT, 8, ()),
    (
        EIGHT,
        7,
        (
            Refusal(
                "spec",
                "8 rules, peers and ports: SyncPolicy field spec.networkPolicies.maxPeers does not allow it",
            ),
        ),
    ),
]


@pytest.mark.parametrize(("value", "most", "expected"), CASES)
def test_network_policies(value: Object, most: int, expected: tuple[Refusal, ...]) -> None:
    policy = SyncPolicy(network_policies=NetworkPolicyLimits(most))
    assert network_policies.refusals(value, policy) == expected


@given(changed(EIGHT))
def test_any_json_gives_refusals(value: Object) -> None:
    assert are_refusals(network_policies.refusals(value, DEFAULT))
