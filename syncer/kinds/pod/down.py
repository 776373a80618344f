# SPDX-License-Identifier: Apache-2.0
"""A new super pod. Pure.

What is not named here passes as it is. `syncer.policy.fields` has all fields; all others are refused.
"""

import msgspec

from syncer.core.objects import Object, copied, labels_of, namespace_of
from syncer.core.plan import Refusal, Wait
from syncer.core.unknown import Unknown
from syncer.core.view import View
from syncer.kinds import judgement
from syncer.kinds.pod.affinity import translate_affinity
from syncer.kinds.pod.dns import set_resolver
from syncer.kinds.pod.env import (
    API_HOSTNAMES,
    API_SERVICE,
    MAX_VALUE_CHARS,
    EnvTranslator,
    cluster_ip,
    pod_variables,
)
from syncer.kinds.pod.hostname import set_hostname
from syncer.kinds.pod.images import pull_always
from syncer.kinds.pod.metadata import (
    KIND,
    MAX_ANNOTATION_BYTES,
    MetadataRules,
    annotation_bytes,
    own_containers,
    super_metadata,
)
from syncer.kinds.pod.node_selector import translate_node_selector
from syncer.kinds.pod.runtime_class import translate_runtime_class
from syncer.kinds.pod.volumes import credential_refusals, missing_secret, translate_volumes
from syncer.policy import pods as policy

WAITS_FOR_API_SERVICE = "ServiceNotReady"

# Of the tenant's admission, which the super cluster's computes again from its own classes, and refuses
# where they differ. Ephemeral containers are added through their subresource, and a pod is bound through its.
# `subdomain`: the super namespace has other names. The tenant's own DNS resolves `<hostname>.<subdomain>`.
_CLEARED = ("nodeName", "priority", "preemptionPolicy", "overhead", "ephemeralContainers", "subdomain")

# For all containers of a pod: about half a megabyte, a third of the largest object that etcd takes. Beyond it
# only the API server's go into the pod. The kubelet adds the others from the same Services, as links are on.
_MAX_VARIABLES = 5_000


class SuperPod(msgspec.Struct, frozen=True):
    """The body to create.

    `has_more`: parts of the tenant's pod go to subresources of the super pod, once that is there.
    """

    body: Object
    has_more: bool


def super_pod(tenant: Object, super_namespace: str, view: View) -> SuperPod | Wait | tuple[Refusal, ...]:
    """The super pod of a tenant's pod."""
    # What follows changes the specification, step by step; metadata is made anew, and no status goes down.
    tenant = {**tenant, "spec": copied(tenant["spec"])}
    unknown_class = translate_runtime_class(tenant, view)
    if unknown_class is not None:
        return unknown_class
    mismatch = translate_node_selector(tenant, view)
    refused = judgement.refusals(KIND.kind, tenant, view) + policy.refusals(tenant, view.policy)
    refused_paths = {each.path for each in refused}
    refused += tuple(each for each in credential_refusals(tenant) if each.path not in refused_paths)
    if refused:
        return refused
    if mismatch is not None:
        return mismatch
    variables = pod_environment(tenant, view)
    if isinstance(variables, Wait):
        return variables
    waiting = missing_secret(tenant, view)
    if waiting is not None:
        return waiting
    meta = super_metadata(tenant, super_namespace, view)
    if annotation_bytes(meta) > MAX_ANNOTATION_BYTES:
        return (annotations_refusal(),)
    spec: Object = tenant["spec"]
    waiting = set_resolver(spec, tenant, view)
    if waiting is not None:
        return waiting
    set_hostname(spec, tenant, view)
    has_more = bool(spec.get("ephemeralContainers") or spec.get("readinessGates"))
    node = spec.get("nodeName")
    for field in _CLEARED:
        spec.pop(field, None)
    if node:
        spec["nodeName"] = node  # the policy lets it
    rules = MetadataRules(view)
    translator = EnvTranslator(tenant, variables.entries, rules, view)
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            translator.translate(container)
    if translator.has_too_large:
        return (_values_refusal("containers"),)
    translate_volumes(spec, tenant, rules)
    pull_always(spec, view)
    translate_affinity(spec, labels_of(tenant), view)
    spec["hostAliases"] = [
        *(spec.get("hostAliases") or ()),
        {"ip": variables.api_address, "hostnames": list(API_HOSTNAMES)},
    ]
    # Its tokens are the tenant's (`missing_tokens`): the kubelet's would be the super cluster's.
    spec["automountServiceAccountToken"] = False
    forced = policy.forced_runtime_class(tenant, view.policy)
    if forced is not None:
        spec["runtimeClassName"] = forced
    body = {name: value for name, value in tenant.items() if name != "status"}
    body["metadata"] = meta
    return SuperPod(body, has_more)


def annotations_refusal() -> Refusal:
    return Refusal(
        "metadata.annotations",
        f"with those that the pod has in the super cluster, larger than {MAX_ANNOTATION_BYTES} bytes",
    )


def _values_refusal(containers: str) -> Refusal:
    return Refusal(
        f"spec.{containers}",
        f"variables with more than {MAX_VALUE_CHARS} characters of the pod's labels and annotations",
    )


class PodEnvironment(msgspec.Struct, frozen=True):
    """The address of the tenant's API server in the super cluster, and the variables for containers."""

    api_address: str
    entries: dict[str, Object]


def pod_environment(tenant: Object, view: View) -> PodEnvironment | Wait:
    """The variables of Services for containers of this pod."""
    api_service = view.in_super("Service", *API_SERVICE)
    if isinstance(api_service, Unknown):
        return api_service.wait()
    address = cluster_ip(api_service)
    if api_service is None or not address:
        return Wait(WAITS_FOR_API_SERVICE, "Service default/kubernetes has no super cluster IP yet")
    has_links = tenant["spec"].get("enableServiceLinks") is not False
    own = view.super_services(namespace_of(tenant)) if has_links else ()
    containers = sum(1 for _ in own_containers(tenant))
    return PodEnvironment(address, pod_variables(api_service, own, _MAX_VARIABLES // max(1, containers)))


def ephemeral_containers(
    tenant: Object, names: frozenset[str], view: View
) -> list[Object] | Wait | tuple[Refusal, ...]:
    """The tenant's ephemeral containers of these names, as they are in the super pod."""
    variables = pod_environment(tenant, view)
    if isinstance(variables, Wait):
        return variables
    translator = EnvTranslator(tenant, variables.entries, MetadataRules(view), view)
    found = [copied(each) for each in tenant["spec"]["ephemeralContainers"] if each.get("name") in names]
    for container in found:
        translator.translate(container)
    pull_always({"ephemeralContainers": found}, view)
    return (_values_refusal("ephemeralContainers"),) if translator.has_too_large else found
