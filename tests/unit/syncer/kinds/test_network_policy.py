# SPDX-License-Identifier: Apache-2.0
"""NetworkPolicies."""

from syncer.kinds.network_policy import SYNC
from tests.unit.syncer.kinds.objects import KEY, brief, created, plan, tenant_object

SCOPE = {"tenancy.x-k8s.io/cluster": KEY}


def test_selectors_select_the_tenants_own_pods_alone() -> None:
    spec = {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "web"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "from": [
                    {"podSelector": {"matchLabels": {"app": "a"}}},
                    {"namespaceSelector": {}},
                    {
                        "namespaceSelector": {"matchLabels": {"team": "blue"}},
                        "podSelector": {"matchExpressions": [{"key": "x.k8s.io/y", "operator": "Exists"}]},
                    },
                    {"ipBlock": {"cidr": "192.0.2.0/24"}},
                ],
                "ports": [{"port": 80}],
            },
            {},
        ],
        "egress": [
            {
                "to": [
                    {
                        "namespaceSelector": {
                            "matchExpressions": [
                                {
                                    "key": "kubernetes.io/metadata.name",
                                    "operator": "In",
                                    "values": ["ns", "kube-system"],
                                }
                            ]
                        }
                    }
                ]
            }
        ],
    }
    body = created(plan(SYNC, tenant_object("NetworkPolicy", spec=spec), None))
    assert body["spec"] == {
        "podSelector": {"matchLabels": {"tenant-label.vcnode.io/app.kubernetes.io__name": "web"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "from": [
                    {"podSelector": {"matchLabels": {"app": "a"}}},
                    {"namespaceSelector": {}, "podSelector": {"matchLabels": SCOPE}},
                    {
                        "namespaceSelector": {"matchLabels": {"tenant-label.vcnode.io/team": "blue"}},
                        "podSelector": {
                            "matchLabels": SCOPE,
                            "matchExpressions": [
                                {"key": "tenant-label.vcnode.io/x.k8s.io__y", "operator": "Exists"}
                            ],
                        },
                    },
                    {"ipBlock": {"cidr": "192.0.2.0/24"}},
                ],
                "ports": [{"port": 80}],
            },
            {},
        ],
        "egress": [
            {
                "to": [
                    {
                        "namespaceSelector": {
                            "matchExpressions": [
                                {
                                    "key": "kubernetes.io/metadata.name",
                                    "operator": "In",
                                    "values": [f"{KEY}-ns", f"{KEY}-kube-system"],
                                }
                            ]
                        },
                        "podSelector": {"matchLabels": SCOPE},
                    }
                ]
            }
        ],
    }


def test_a_label_of_another_tenant_in_a_peer_is_overwritten() -> None:
    peer = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"tenancy.x-k8s.io/cluster": "other"}}}
    spec = {"podSelector": {}, "ingress": [{"from": [peer]}]}
    body = created(plan(SYNC, tenant_object("NetworkPolicy", spec=spec), None))
    found = body["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert found == {"tenant-label.vcnode.io/tenancy.x-k8s.io__cluster": "other", **SCOPE}


def test_what_is_in_sync_is_left_alone() -> None:
    own = tenant_object(
        "NetworkPolicy", spec={"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}]}
    )
    there = created(plan(SYNC, own, None))
    there["metadata"]["uid"] = "s-1"
    assert brief(plan(SYNC, own, there)) == []
