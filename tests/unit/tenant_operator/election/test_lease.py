# SPDX-License-Identifier: Apache-2.0
"""A leader's Lease, as client-go writes and reads it."""

import pytest

from tenant_operator.election.lease import LeaseRecord, lease_body, parse_lease
from tenant_operator.model.objects import Object

WALL_S = 1_795_612_799.25


def test_a_lease_is_made_as_client_go_makes_it() -> None:
    assert lease_body("vcnode-system", "vc-operator", LeaseRecord("pod_1"), WALL_S, is_acquired=True) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "vc-operator", "namespace": "vcnode-system"},
        "spec": {
            "holderIdentity": "pod_1",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 0,
            "acquireTime": "2026-11-25T13:19:59.250000Z",
            "renewTime": "2026-11-25T13:19:59.250000Z",
        },
    }


def test_a_renewal_is_of_one_version_and_keeps_the_acquire_time() -> None:
    record = LeaseRecord("pod_1", 3, 15.0, "", "77", "uid")
    assert lease_body("vcnode-system", "vc-operator", record, WALL_S, is_acquired=False) == {
        "metadata": {"uid": "uid", "resourceVersion": "77"},
        "spec": {
            "holderIdentity": "pod_1",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 3,
            "renewTime": "2026-11-25T13:19:59.250000Z",
        },
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, LeaseRecord("", renewed=" ")),
        ({"spec": None, "metadata": []}, LeaseRecord("", renewed=" ")),
        ({"spec": {"holderIdentity": 7, "leaseTransitions": "x"}}, LeaseRecord("", renewed=" ")),
        ({"spec": {"leaseDurationSeconds": 0}}, LeaseRecord("", 0, 1.0, " ")),
        ({"spec": {"leaseDurationSeconds": 10**9}}, LeaseRecord("", 0, 300.0, " ")),
        (
            {
                "metadata": {"resourceVersion": "8", "uid": "u"},
                "spec": {
                    "holderIdentity": "a",
                    "leaseDurationSeconds": 15,
                    "leaseTransitions": 2,
                    "acquireTime": "t0",
                    "renewTime": "t1",
                },
            },
            LeaseRecord("a", 2, 15.0, "t0 t1", "8", "u"),
        ),
    ],
)
def test_a_lease_is_read_whatever_it_has(value: Object, expected: LeaseRecord) -> None:
    assert parse_lease(value) == expected
