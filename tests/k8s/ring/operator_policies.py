# SPDX-License-Identifier: Apache-2.0
"""packaging/operator/policy.yaml on a real API server: users who may do all by RBAC, and objects to try."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import yaml

from tests.k8s.ring import virtual_clusters
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.virtual_clusters import manifest

_POLICIES = "/apis/admissionregistration.k8s.io/v1"
_FILE = virtual_clusters.SHIPPED.parent / "operator" / "policy.yaml"
SYSTEM, HOME, ROOT, OTHER_ROOT = "vcnode-system", "policy-home", "policy-root", "policy-other-root"
UID, OTHER_UID = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
OPERATOR = {"Impersonate-User": "system:serviceaccount:vcnode-system:vc-operator"}
# As a program on a machine, by its certificate.
OPERATOR_OF_MACHINE = {"Impersonate-User": "vcnode:vc-operator", "Impersonate-Group": "vcnode:vc-operators"}
OWN = {"vcnode.io/managed-by": "vc-operator", "tenancy.x-k8s.io/vcuid": UID}
IDENTITY = {
    "tenancy.x-k8s.io/vcuid": UID,
    "tenancy.x-k8s.io/vcname": "acme",
    "tenancy.x-k8s.io/vcnamespace": HOME,
    "tenancy.x-k8s.io/vcrootns": "true",
}
_RANGES = {"serviceCidrs": "10.96.0.0/16,fd00:10:96::/112", "podCidrs": "10.244.0.0/16", "nodeCidrs": "junk"}


@contextmanager
def installed(api: KubernetesApi) -> Iterator[None]:
    """Definitions, policies, users, and namespaces of all sorts."""
    virtual_clusters.install(api)
    virtual_clusters.install(api, "clusterversions.yaml")
    policies = list(yaml.safe_load_all(_FILE.read_text()))
    namespaces: list[JsonObject] = [
        new_namespace(SYSTEM, {}, {}),
        new_namespace(HOME, {}, {}),
        new_namespace(ROOT, OWN, IDENTITY),
        new_namespace(OTHER_ROOT, {}, {**IDENTITY, "tenancy.x-k8s.io/vcuid": OTHER_UID}),
        new_namespace("policy-tenants", {}, {"tenancy.x-k8s.io/cluster": "policy-root"}),
    ]
    for each in namespaces:
        api.create("/api/v1/namespaces", each, may_exist=True)
    _bind(api)
    for each in policies:
        api.create(_path_of(each), each)
    try:
        wait_for("policies hold", lambda: _holds(api), timeout_s=60)
        yield
    finally:
        for each in reversed(policies):
            api.delete(f"{_path_of(each)}/{each['metadata']['name']}")
        api.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/policy-test")
        for each in namespaces:
            api.delete(f"/api/v1/namespaces/{each['metadata']['name']}")
        virtual_clusters.uninstall(api)
        virtual_clusters.uninstall(api, "clusterversions.yaml")


def _path_of(value: JsonObject) -> str:
    plural = {
        "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    }[value["kind"]]
    return f"{_POLICIES}/{plural}"


def _bind(api: KubernetesApi) -> None:
    users = [each["Impersonate-User"] for each in (OPERATOR, OPERATOR_OF_MACHINE)]
    api.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "policy-test"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": each} for each in users
            ],
        },
        may_exist=True,
    )


def _holds(api: KubernetesApi) -> bool:
    """Whether the apiserver's policies have reached its admission, with their parameters' kind."""
    operator = replace(api, headers=OPERATOR)
    refused = (
        (operator, "/api/v1/namespaces/default/configmaps", new_config_map("a", {})),
        (operator, "/api/v1/namespaces", new_namespace("policy-made", {}, {})),
        (operator, virtual_clusters.path(HOME), manifest("a")),
        (api, virtual_clusters.path(HOME), manifest("n" * 47)),
        (api, virtual_clusters.path(HOME), manifest("a", ranged("10.96.0.0/24"))),
    )
    api.create(f"/api/v1/namespaces/{SYSTEM}/configmaps", ranges(), may_exist=True)
    return all(refusal_of(each, f"{path}?dryRun=All", value) for each, path, value in refused)


def refusal_of(api: KubernetesApi, path: str, value: JsonObject) -> str:
    """Why the API server refuses to create it; empty if it does not."""
    try:
        api.create(path, value)
    except RingError as error:
        return str(error)
    return ""


def new_namespace(name: str, labels: JsonObject, annotations: JsonObject) -> JsonObject:
    """A Namespace with these."""
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def new_config_map(name: str, labels: JsonObject) -> JsonObject:
    """A ConfigMap with these labels."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def new_secret(name: str, labels: JsonObject) -> JsonObject:
    """A Secret with these labels."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}}


def ranges() -> JsonObject:
    """The ConfigMap of the super cluster's ranges."""
    return {**new_config_map("vc-operator-ranges", {}), "data": _RANGES}


def ranged(cidr: str) -> JsonObject:
    """A spec of a VirtualCluster with these addresses for its Services."""
    return {"clusterVersionName": "cv", "serviceCidr": cidr}
