# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from syncer.vnodes.lease import RenewTimes, new_lease, renewal

AT = 1_764_075_600.25


def test_renewal() -> None:
    assert renewal("node-7", AT) == {
        "spec": {
            "holderIdentity": "node-7",
            "leaseDurationSeconds": 40,
            "renewTime": "2025-11-25T13:00:00.250000Z",
        }
    }


def test_first_lease_belongs_to_the_node() -> None:
    assert new_lease("node-7", "uid-v", AT) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "node-7",
            "namespace": "kube-node-lease",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-7", "uid": "uid-v"}],
        },
        "spec": {
            "holderIdentity": "node-7",
            "leaseDurationSeconds": 40,
            "renewTime": "2025-11-25T13:00:00.250000Z",
        },
    }


@given(st.lists(st.floats(1e9, 2e9), max_size=20))
def test_times_only_rise(clock: list[float]) -> None:
    """A clock that was set back must not make nodes look dead."""
    times = RenewTimes()
    written = [renewal("n", times.next(at_s))["spec"]["renewTime"] for at_s in clock]
    assert written == sorted(set(written))
