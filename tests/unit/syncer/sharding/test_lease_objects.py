# SPDX-License-Identifier: Apache-2.0
import pytest

from syncer.core.objects import Object
from syncer.core.sharding import SHARDS, ReplicaLease
from syncer.sharding.lease_objects import LeaseNames, lease_patch, new_lease, parse_leases

NAMES = LeaseNames("vc-manager", "vc-syncer")
EVERY = frozenset(range(SHARDS))
WALL_S = 1_795_612_799.25


def test_a_lease_is_made_as_client_go_makes_it() -> None:
    lease = ReplicaLease("b7k2p", "b7k2p_0d1f", 0, frozenset({0, 9}), "")
    assert new_lease(NAMES, lease, WALL_S) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "vc-syncer-b7k2p",
            "namespace": "vc-manager",
            "labels": {"vcnode.io/sharding": "vc-syncer"},
            "annotations": {"vcnode.io/shards": "201"},
        },
        "spec": {
            "holderIdentity": "b7k2p_0d1f",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 0,
            "acquireTime": "2026-11-25T13:19:59.250000Z",
            "renewTime": "2026-11-25T13:19:59.250000Z",
        },
    }


def test_a_renewal_is_refused_at_another_version() -> None:
    lease = ReplicaLease("b7k2p", "b7k2p_0d1f", 3, frozenset(), "42", "u")
    assert lease_patch(lease, WALL_S, is_acquired=False) == {
        "metadata": {"uid": "u", "resourceVersion": "42", "annotations": {"vcnode.io/shards": "0"}},
        "spec": {
            "holderIdentity": "b7k2p_0d1f",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 3,
            "renewTime": "2026-11-25T13:19:59.250000Z",
        },
    }


def lease_object(name: str, spec: object, shards: str | None = None) -> Object:
    annotations = {} if shards is None else {"annotations": {"vcnode.io/shards": shards}}
    return {"metadata": {"name": name, "uid": "u", "resourceVersion": "42", **annotations}, "spec": spec}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            lease_object(
                "vc-syncer-a",
                {"holderIdentity": "a_1", "leaseDurationSeconds": 30, "leaseTransitions": 2},
                "3",
            ),
            [ReplicaLease("a", "a_1", 2, frozenset({0, 1}), "42", "u", 30.0)],
        ),
        (lease_object("vc-syncer-a", {}), [ReplicaLease("a", "", 0, frozenset(), "42", "u")]),
        (lease_object("vc-syncer-a", None), [ReplicaLease("a", "", 0, frozenset(), "42", "u")]),
        (
            lease_object("vc-syncer-a", {"leaseDurationSeconds": 0, "leaseTransitions": "x"}, "none"),
            [ReplicaLease("a", "", 0, EVERY, "42", "u", 1.0)],
        ),
        (
            lease_object("vc-syncer-a", {"leaseDurationSeconds": 10**9}),
            [ReplicaLease("a", "", 0, frozenset(), "42", "u", 300.0)],
        ),
        (lease_object("other", {}), []),
        ("text", []),
    ],
)
def test_leases_are_read(value: object, expected: list[ReplicaLease]) -> None:
    assert list(parse_leases(NAMES, [value])) == expected
