# SPDX-License-Identifier: Apache-2.0
"""Affinity and spread: scoped to the tenant, by the keys that its pods have in the super cluster."""

import pytest

from syncer.core.objects import Object
from tests.unit.syncer.kinds.pod.pods import KEY, SUPER_NAMESPACE, created, pod

CLUSTER = {"tenancy.x-k8s.io/cluster": KEY}
NAME = "app.kubernetes.io/name"
SUPER_NAME = "tenant-label.vcnode.io/app.kubernetes.io__name"


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        pytest.param(
            {"labelSelector": {"matchLabels": {"a": "1"}}},
            {"labelSelector": {"matchLabels": {"a": "1", **CLUSTER}}},
            id="a label",
        ),
        pytest.param({"labelSelector": {}}, {"labelSelector": {"matchLabels": CLUSTER}}, id="all pods"),
        pytest.param({"labelSelector": None}, {"labelSelector": None}, id="no pod"),
        pytest.param(
            {"labelSelector": {"matchExpressions": [{"key": NAME, "operator": "Exists"}]}},
            {
                "labelSelector": {
                    "matchExpressions": [{"key": SUPER_NAME, "operator": "Exists"}],
                    "matchLabels": CLUSTER,
                }
            },
            id="a label under another key",
        ),
        pytest.param(
            {"labelSelector": {"matchLabels": {"tenancy.x-k8s.io/cluster": "forged"}}},
            {
                "labelSelector": {
                    "matchLabels": {"tenant-label.vcnode.io/tenancy.x-k8s.io__cluster": "forged", **CLUSTER}
                }
            },
            id="a forged cluster",
        ),
        pytest.param(
            {"namespaces": ["plain", "UPPER"], "namespaceSelector": {}},
            {"namespaces": [SUPER_NAMESPACE, "UPPER"], "namespaceSelector": {}},
            id="namespaces",
        ),
        pytest.param(
            {
                "namespaceSelector": {
                    "matchLabels": {"team": "blue", "kubernetes.io/metadata.name": "plain"},
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["plain"]},
                        {"key": "x.k8s.io/y", "operator": "Exists"},
                    ],
                }
            },
            {
                "namespaceSelector": {
                    "matchLabels": {
                        "tenant-label.vcnode.io/team": "blue",
                        "kubernetes.io/metadata.name": SUPER_NAMESPACE,
                    },
                    "matchExpressions": [
                        {
                            "key": "kubernetes.io/metadata.name",
                            "operator": "NotIn",
                            "values": [SUPER_NAMESPACE],
                        },
                        {"key": "tenant-label.vcnode.io/x.k8s.io__y", "operator": "Exists"},
                    ],
                }
            },
            id="namespaces by labels",
        ),
        pytest.param(
            {
                "labelSelector": {
                    "matchExpressions": [
                        {"key": NAME, "operator": "In", "values": ["n"]},
                        {"key": "hash", "operator": "NotIn", "values": ["h"]},
                        {"key": "other", "operator": "Exists"},
                    ]
                },
                "matchLabelKeys": [NAME],
                "mismatchLabelKeys": ["hash"],
            },
            {
                "labelSelector": {
                    "matchExpressions": [{"key": "other", "operator": "Exists"}],
                    "matchLabels": CLUSTER,
                },
                "matchLabelKeys": [SUPER_NAME],
                "mismatchLabelKeys": ["hash"],
            },
            id="keys that the API server has merged",
        ),
    ],
)
@pytest.mark.parametrize("field", ["podAffinity", "podAntiAffinity"])
def test_terms_of_pod_affinity(field: str, term: Object, expected: Object) -> None:
    affinity = {
        field: {
            "requiredDuringSchedulingIgnoredDuringExecution": [{**term, "topologyKey": "zone"}],
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {**term, "topologyKey": "zone"}}
            ],
        }
    }
    found = created(pod({"affinity": affinity}, labels={NAME: "n", "hash": "h"}))["spec"]["affinity"][field]
    want = {**expected, "topologyKey": "zone"}
    assert found["requiredDuringSchedulingIgnoredDuringExecution"] == [want]
    assert found["preferredDuringSchedulingIgnoredDuringExecution"] == [
        {"weight": 1, "podAffinityTerm": want}
    ]


def test_node_affinity_stays() -> None:
    """A DaemonSet's pods name their node so; vNodes have the names of nodes."""
    node = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
            ]
        }
    }
    assert created(pod({"affinity": {"nodeAffinity": node}}))["spec"]["affinity"] == {"nodeAffinity": node}


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        pytest.param(
            {"labelSelector": {"matchLabels": {NAME: "n"}}, "minDomains": 2, "nodeAffinityPolicy": "Ignore"},
            {
                "labelSelector": {"matchLabels": {SUPER_NAME: "n"}},
                "minDomains": 2,
                "nodeAffinityPolicy": "Ignore",
            },
            id="keys",
        ),
        pytest.param({"labelSelector": None}, {"labelSelector": None}, id="no selector"),
        pytest.param(
            {
                "labelSelector": {"matchExpressions": [{"key": "hash", "operator": "In", "values": ["h"]}]},
                "matchLabelKeys": ["hash"],
            },
            {"labelSelector": {"matchExpressions": []}, "matchLabelKeys": ["hash"]},
            id="a merged key",
        ),
    ],
)
def test_topology_spread(constraint: Object, expected: Object) -> None:
    found = created(pod({"topologySpreadConstraints": [constraint]}, labels={"hash": "h"}))
    assert found["spec"]["topologySpreadConstraints"] == [expected]
