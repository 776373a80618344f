# SPDX-License-Identifier: Apache-2.0
"""The CustomResourceDefinition of Networks in a tenant: `packaging/crds/networks-tenant.yaml`. Pure."""

from daemonkit.kube.resources import Resource
from syncer.core.objects import Object, SyncedKind

CRD = SyncedKind(
    Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", is_namespaced=False),
    "CustomResourceDefinition",
)

_CIDR = (
    r"^(([0-9]{1,3}\.){3}[0-9]{1,3}/([0-9]|[12][0-9]|3[0-2])"
    r"|[0-9A-Fa-f]{0,4}(:[0-9A-Fa-f]{0,4}){2,8}/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))$"
)

NETWORKS_CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "networks.arktos.futurewei.com"},
    "spec": {
        "group": "arktos.futurewei.com",
        "names": {
            "kind": "Network",
            "listKind": "NetworkList",
            "plural": "networks",
            "singular": "network",
            "shortNames": ["ne", "net"],
        },
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Type", "type": "string", "jsonPath": ".spec.type"},
                    {"name": "VPC", "type": "string", "jsonPath": ".spec.vpcID"},
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                    {"name": "DNS", "type": "string", "jsonPath": ".status.dnsServiceIP"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "apiVersion": {"type": "string"},
                            "kind": {"type": "string"},
                            "metadata": {
                                "type": "object",
                                "properties": {
                                    "name": {
                                        "type": "string",
                                        "maxLength": 54,
                                        "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                                    }
                                },
                            },
                            "spec": {
                                "type": "object",
                                "required": ["type"],
                                "properties": {
                                    "type": {
                                        "type": "string",
                                        "minLength": 1,
                                        "description": "flat "
                                        "is "
                                        "an "
                                        "ordinary "
                                        "network "
                                        "of "
                                        "the "
                                        "cluster; "
                                        "any "
                                        "other "
                                        "is "
                                        "its "
                                        "provider's.",
                                    },
                                    "vpcID": {"type": "string", "description": "How the provider calls it."},
                                    "service": {
                                        "type": "object",
                                        "properties": {
                                            "ipam": {
                                                "type": "string",
                                                "enum": ["Arktos", "Kubernetes", "External"],
                                                "description": "Who "
                                                "gives "
                                                "Services "
                                                "of "
                                                "this "
                                                "network "
                                                "their "
                                                "addresses.",
                                            },
                                            "cidrs": {
                                                "type": "array",
                                                "maxItems": 8,
                                                "description": "Ranges "
                                                "of "
                                                "those "
                                                "addresses, "
                                                "of "
                                                "IPv4 "
                                                "or "
                                                "IPv6; "
                                                "the "
                                                "first "
                                                "one "
                                                "is "
                                                "used.",
                                                "items": {
                                                    "type": "string",
                                                    "pattern": _CIDR,
                                                },
                                            },
                                        },
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "phase": {
                                        "type": "string",
                                        "enum": ["Pending", "Ready", "Failed", "Unknown", "Terminating"],
                                        "description": "Pods of a network that is not Ready wait.",
                                    },
                                    "message": {"type": "string"},
                                    "dnsServiceIP": {
                                        "type": "string",
                                        "description": "The address of its DNS server.",
                                    },
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}
