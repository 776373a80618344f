# SPDX-License-Identifier: Apache-2.0
"""Networks by the SyncPolicy, as in docs/spec/sync-policy.md#networks."""

from typing import Any

import pytest
from hypothesis import given

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import networks, patterns
from syncer.policy.sync_policy import DEFAULT, NetworkLimits, SyncPolicy
from tests.unit.syncer.policy.arbitrary_json import are_refusals, changed

OTHERS: Object = {"spec": {"type": "vpc", "vpcID": "vpc-of-another-tenant"}}


@pytest.mark.parametrize("spec", [None, {}, {"type": "flat"}, {"type": "vpc", "vpcID": ""}])
def test_a_network_without_a_vpc_goes_down(spec: Any) -> None:
    assert networks.refusals({"spec": spec}, DEFAULT) == ()


def test_a_vpc_is_allowed_by_name() -> None:
    assert networks.refusals(OTHERS, DEFAULT) == (
        Refusal(
            "spec.vpcID",
            "VPC vpc-of-another-tenant: SyncPolicy field spec.networks.vpcIDs does not allow it",
        ),
    )
    allowed = SyncPolicy(networks=NetworkLimits(vpc_ids=patterns.of("vpc-of-*")))
    assert networks.refusals(OTHERS, allowed) == ()


@given(changed(OTHERS))
def test_any_json_gives_refusals(value: Object) -> None:
    assert are_refusals(networks.refusals(value, DEFAULT))
