# SPDX-License-Identifier: Apache-2.0
"""The table of kinds."""

from syncer.kinds import table


def test_the_kinds_are_upstreams_and_four_more() -> None:
    assert [each.kind.kind for each in table.DEFAULT] == [
        "Namespace",
        "StorageClass",
        "ServiceAccount",
        "ConfigMap",
        "Secret",
        "Service",
        "Endpoints",
        "EndpointSlice",
        "PersistentVolumeClaim",
        "PersistentVolume",
        "Pod",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Event",
    ]
    assert {name: each.kind.kind for name, each in table.OPTIONAL.items()} == {
        "ingress": "Ingress",
        "priorityclass": "PriorityClass",
        "crd": "CustomResourceDefinition",
        "runtimeclass": "RuntimeClass",
        "ingressclass": "IngressClass",
    }


def test_no_kind_is_there_twice() -> None:
    found = [str(each.kind.resource) for each in (*table.DEFAULT, *table.OPTIONAL.values())]
    assert len(set(found)) == len(found)
