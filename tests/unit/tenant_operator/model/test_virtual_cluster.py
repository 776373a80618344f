# SPDX-License-Identifier: Apache-2.0
"""What is kept of a VirtualCluster in the cache of all."""

import msgspec

from tenant_operator.model.virtual_cluster import Meta, VirtualCluster


def test_annotations_of_others_are_not_kept() -> None:
    requests = {"vcnode.io/rotate-cluster-ca": "one", "vcnode.io/sleep-requested-at": "2026-11-01T00:00:00Z"}
    others = {
        "note": "x" * 200_000,
        "tenancy.x-k8s.io/vcuid": "u",
        "vcnode.iox/a": "",
    }
    whole = VirtualCluster(Meta(name="a", uid="u", generation=3, annotations=requests | others))
    found = whole.without_foreign_annotations
    assert found.metadata.annotations == requests
    assert found == msgspec.structs.replace(
        whole, metadata=msgspec.structs.replace(whole.metadata, annotations=requests)
    )


def test_many_annotations_are_not_all_kept() -> None:
    every = {f"vcnode.io/{number}": "x" * 1024 for number in range(250)}
    found = VirtualCluster(Meta(annotations=every)).without_foreign_annotations
    assert len(found.metadata.annotations) == 64


def test_a_long_value_is_kept_as_one_that_is_too_long() -> None:
    found = VirtualCluster(Meta(annotations={"vcnode.io/note": "x" * 200_000})).without_foreign_annotations
    assert found.metadata.annotations == {"vcnode.io/note": "x" * 1024}
