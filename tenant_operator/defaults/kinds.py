# SPDX-License-Identifier: Apache-2.0
"""Under which path each kind is found, without asking the tenant: its discovery is the tenant's to break.

An APIService without a server makes discovery slow or incomplete for every client. Kinds of Kubernetes are in
a table; a custom kind is known by its CustomResourceDefinition, which is in the same list of manifests.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard

from daemonkit.kube.resources import Resource
from tenancy import names
from tenant_operator.model.objects import Object, object_text

CRD_KIND = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")

_CLUSTER_SCOPED = """
v1 Namespace namespaces
rbac.authorization.k8s.io/v1 ClusterRole clusterroles
rbac.authorization.k8s.io/v1 ClusterRoleBinding clusterrolebindings
apiextensions.k8s.io/v1 CustomResourceDefinition customresourcedefinitions
apiregistration.k8s.io/v1 APIService apiservices
scheduling.k8s.io/v1 PriorityClass priorityclasses
storage.k8s.io/v1 StorageClass storageclasses
node.k8s.io/v1 RuntimeClass runtimeclasses
networking.k8s.io/v1 IngressClass ingressclasses
flowcontrol.apiserver.k8s.io/v1 FlowSchema flowschemas
flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration prioritylevelconfigurations
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy validatingadmissionpolicies
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings
admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration validatingwebhookconfigurations
admissionregistration.k8s.io/v1 MutatingWebhookConfiguration mutatingwebhookconfigurations
"""
_NAMESPACED = """
v1 ConfigMap configmaps
v1 Secret secrets
v1 Service services
v1 ServiceAccount serviceaccounts
v1 LimitRange limitranges
v1 ResourceQuota resourcequotas
v1 PersistentVolumeClaim persistentvolumeclaims
apps/v1 Deployment deployments
apps/v1 StatefulSet statefulsets
apps/v1 DaemonSet daemonsets
batch/v1 Job jobs
batch/v1 CronJob cronjobs
autoscaling/v2 HorizontalPodAutoscaler horizontalpodautoscalers
policy/v1 PodDisruptionBudget poddisruptionbudgets
networking.k8s.io/v1 NetworkPolicy networkpolicies
networking.k8s.io/v1 Ingress ingresses
rbac.authorization.k8s.io/v1 Role roles
rbac.authorization.k8s.io/v1 RoleBinding rolebindings
"""
# RBAC's names have colons. No name has a slash or a percent sign (apimachinery, IsValidPathSegmentName).
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]{0,252}")


class TenantRef(NamedTuple):
    """One object of a tenant's control plane."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return object_text(self.kind, self.namespace, self.name)


def _table(text: str, *, is_namespaced: bool) -> dict[tuple[str, str], Resource]:
    found = {}
    for line in text.split("\n"):
        if line:
            api_version, kind, plural = line.split()
            found[api_version, kind] = _resource(api_version, plural, is_namespaced=is_namespaced)
    return found


def _resource(api_version: str, plural: str, *, is_namespaced: bool) -> Resource:
    group, _, version = api_version.rpartition("/")
    return Resource(group, version, plural, is_namespaced=is_namespaced)


KINDS: Mapping[tuple[str, str], Resource] = {
    **_table(_CLUSTER_SCOPED, is_namespaced=False),
    **_table(_NAMESPACED, is_namespaced=True),
}
"""Kinds of Kubernetes itself, by apiVersion and kind."""


def kinds_of(manifests: Iterable[Object]) -> dict[tuple[str, str], Resource]:
    """All kinds that a list of manifests may have: Kubernetes' own, and those that it defines."""
    found = dict(KINDS)
    for manifest in manifests:
        if (manifest.get("apiVersion"), manifest.get("kind")) == CRD_KIND:
            found.update(_defined(manifest))
    return found


def ref_in(manifest: Object, kinds: Mapping[tuple[str, str], Resource]) -> TenantRef | str:
    """Which object of the tenant a manifest describes; a text says why it describes none."""
    api_version, kind, meta = manifest.get("apiVersion"), manifest.get("kind"), manifest.get("metadata")
    if not (isinstance(api_version, str) and isinstance(kind, str) and isinstance(meta, dict)):
        return "it lacks apiVersion, kind or metadata"
    name, namespace = meta.get("name"), meta.get("namespace", "")
    if not (_is_name(name)):
        return f"metadata.name of a {kind} is not a name"
    resource = kinds.get((api_version, kind))
    if resource is None:
        return f"kind {kind} of {api_version} is unknown: put its CustomResourceDefinition into the same list"
    if not resource.is_namespaced:
        return TenantRef(api_version, kind, "", name)
    namespace = namespace or "default"
    if not (isinstance(namespace, str) and names.is_dns_label(namespace)):
        return f"metadata.namespace of {kind} {name} is not a name"
    return TenantRef(api_version, kind, namespace, name)


def _defined(definition: Object) -> dict[tuple[str, str], Resource]:
    spec = definition.get("spec")
    fields: Object = spec if isinstance(spec, dict) else {}
    of_names = fields.get("names")
    kind_names: Object = of_names if isinstance(of_names, dict) else {}
    group, kind, plural = fields.get("group"), kind_names.get("kind"), kind_names.get("plural")
    if not (_is_name(group) and _is_name(kind) and _is_name(plural)):
        return {}
    versions = fields.get("versions")
    is_namespaced = fields.get("scope") == "Namespaced"
    return {
        (f"{group}/{version['name']}", kind): Resource(group, version["name"], plural, is_namespaced)
        for version in (versions if isinstance(versions, list) else ())
        if isinstance(version, dict) and _is_name(version.get("name"))
    }


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and _SEGMENT.fullmatch(value) is not None
