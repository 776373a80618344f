# SPDX-License-Identifier: Apache-2.0
"""PersistentVolumeClaims by the SyncPolicy, as in docs/spec/sync-policy.md#claims."""

from typing import Any

import pytest
from hypothesis import given

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import claims
from syncer.policy.sync_policy import DEFAULT, ClaimPolicy, SyncPolicy
from tests.unit.syncer.policy.arbitrary_json import are_refusals, changed

SLOW = SyncPolicy(claims=ClaimPolicy(frozenset({"slow"})))
STATIC = SyncPolicy(claims=ClaimPolicy(frozenset({""})))
_OLDER = "volume.beta.kubernetes.io/storage-class"


def claim(annotations: Object | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "data", "annotations": annotations or {}},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}, **spec},
    }


def denied(path: str, what: str) -> Refusal:
    return Refusal(path, f"{what}: SyncPolicy field spec.claims.storageClasses does not allow it")


CASES: list[tuple[Object, SyncPolicy, tuple[Refusal, ...]]] = [
    (claim(storageClassName="fast"), DEFAULT, ()),
    (claim(), DEFAULT, ()),
    (claim(storageClassName="slow"), SLOW, ()),
    (claim(), STATIC, ()),
    (claim(storageClassName=""), STATIC, ()),
    (claim(dataSourceRef={"kind": "VolumeSnapshot", "name": "a"}), DEFAULT, ()),
    (
        claim(storageClassName="fast"),
        SLOW,
        (
            Refusal(
                "spec.storageClassName",
                "storage class fast: SyncPolicy field spec.claims.storageClasses does not allow it",
            ),
        ),
    ),
    (claim(), SLOW, (denied("spec.storageClassName", "a claim without a storage class"),)),
    (
        claim({_OLDER: "fast"}, storageClassName="slow"),
        SLOW,
        (denied(f"metadata.annotations[{_OLDER}]", "storage class fast"),),
    ),
    (
        claim(dataSourceRef={"kind": "PersistentVolumeClaim", "name": "a", "namespace": "other"}),
        DEFAULT,
        (Refusal("spec.dataSourceRef.namespace", "a source in another namespace: no SyncPolicy allows it"),),
    ),
]


@pytest.mark.parametrize(("value", "policy", "expected"), CASES)
def test_claims(value: Object, policy: SyncPolicy, expected: tuple[Refusal, ...]) -> None:
    assert claims.refusals(value, policy) == expected


@given(changed(*(value for value, _, _ in CASES)))
def test_any_json_gives_refusals(value: Object) -> None:
    assert are_refusals(claims.refusals(value, SLOW))
