# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant's pod may go down: Pod Security *baseline*, and what reaches the super cluster. Pure.

The controls and their reasons are in docs/spec/sync-policy.md#pods. `fields` has refused what is not known.
"""

from collections.abc import Mapping
from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import claims
from syncer.policy.refusal_list import RefusalList, shown, text_of
from syncer.policy.sync_policy import HostUsers, PodPolicy, Privileged, SyncPolicy

_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
_HOST_NAMESPACES = (("hostNetwork", "Network"), ("hostPID", "PID"), ("hostIPC", "IPC"))
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
# Kubernetes gives them to every pod (admission plugin DefaultTolerationSeconds).
_ALWAYS_TOLERATED = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP = ("seccomp.security.alpha.kubernetes.io/", "container.seccomp.security.alpha.kubernetes.io/")
_SYSTEM_CLASSES = "system-"
# Kubernetes' own, which the kubelet divides by itself.
_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})


def forced_runtime_class(pod: Object, policy: SyncPolicy) -> str | None:
    """The runtime class of the super pod; None for the default runtime.

    It is the pod's own if the policy lists that, else the one that the policy forces.
    """
    spec = pod.get("spec")
    own = spec.get("runtimeClassName") if type(spec) is dict else None
    if type(own) is str and own in policy.pods.runtime_classes:
        return own
    return policy.pods.runtime_class or None


def refusals(pod: Object, policy: SyncPolicy, super_pod: Object | None = None) -> tuple[Refusal, ...]:
    """What of a pod may not go down.

    Of a pod that is there already, its super pod says where it runs: a policy that forces VMs by now makes
    none of it. And the tenant's pod may name the super pod's node, to which it is bound. Its runtime class is
    not judged again, nor its node selectors without scheduling gates: both are immutable then.
    """
    found = RefusalList()
    allowed = policy.pods
    spec = found.fields("spec", pod.get("spec"))
    running = {} if super_pod is None else super_pod.get("spec") or {}
    own_class = forced_runtime_class(pod, policy) if super_pod is None else running.get("runtimeClassName")
    in_vm = own_class in allowed.vm_runtime_classes
    # A privileged container has all capabilities, an unmasked /proc and no profiles. Where it may be
    # privileged, these may be had one by one as well.
    may_be_privileged = allowed.privileged is Privileged.ALWAYS or (
        in_vm and allowed.privileged is Privileged.VM
    )
    _check_annotations(found, pod, allowed, may_be_privileged)
    _check_pod(found, spec, allowed, in_vm)
    if super_pod is None:
        _check_runtime_class(found, spec, allowed)
    _check_placement(found, spec, allowed, running.get("nodeName"))
    if super_pod is None or running.get("schedulingGates"):
        _check_node_selectors(found, spec, allowed)
    _check_volumes(found, spec, policy)
    if spec.get("resources") is not None:
        _check_resources(found, "spec.resources", spec["resources"], allowed)
    if (context := spec.get("securityContext")) is not None:
        _check_context(
            found,
            "spec.securityContext",
            found.fields("spec.securityContext", context),
            allowed,
            may_be_privileged,
        )
    check_ports = "Network" not in allowed.host_namespaces or not spec.get("hostNetwork")
    for name in _CONTAINER_LISTS:
        if (containers := spec.get(name)) is None:
            continue
        for index, each in enumerate(found.items(f"spec.{name}", containers)):
            path = f"spec.{name}[{index}]"
            container = found.fields(path, each)
            if "$patch" in container:
                # Ephemeral containers go down in a strategic merge patch.
                found.add(f"{path}.$patch", "a directive of a patch")
            if (context := container.get("securityContext")) is not None:
                path_below = f"{path}.securityContext"
                _check_context(
                    found, path_below, found.fields(path_below, context), allowed, may_be_privileged
                )
            if "resources" in container:
                _check_resources(found, f"{path}.resources", container["resources"], allowed)
            if check_ports and "ports" in container:
                _check_ports(found, f"{path}.ports", container["ports"], allowed)
            if not allowed.allow_handler_hosts:
                _check_handlers(found, path, container)
            if "volumeMounts" in container:
                _check_mounts(found, f"{path}.volumeMounts", container["volumeMounts"])
    return found.done()


def _check_annotations(found: RefusalList, pod: Object, allowed: PodPolicy, may_be_privileged: bool) -> None:
    metadata = pod.get("metadata")
    annotations = metadata.get("annotations") if type(metadata) is dict else None
    if type(annotations) is not dict or may_be_privileged:
        return
    for key, value in annotations.items():
        if key.startswith(_APP_ARMOR):
            # Kubernetes reads them until 1.30, as securityContext.appArmorProfile.
            if not (value == "runtime/default" or text_of(value).startswith("localhost/")):
                found.add(
                    f"metadata.annotations[{shown(key)}]",
                    f"AppArmor profile {shown(value)}",
                    "pods.privileged",
                )
        elif key.startswith(_SECCOMP) and value == "unconfined":
            found.add(f"metadata.annotations[{shown(key)}]", "seccomp unconfined", "pods.privileged")


def _check_pod(found: RefusalList, spec: Mapping[str, Any], allowed: PodPolicy, in_vm: bool) -> None:
    for name, namespace in _HOST_NAMESPACES:
        if spec.get(name) and namespace not in allowed.host_namespaces:
            found.add(f"spec.{name}", f"the node's {namespace} namespace", "pods.hostNamespaces")
    users = spec.get("hostUsers")
    if not in_vm and users is not False and allowed.host_users is not HostUsers.ALLOW:
        if users is not None:
            found.add("spec.hostUsers", "the node's user namespace", "pods.hostUsers")
        elif allowed.host_users is HostUsers.DENY:
            found.add(
                "spec.hostUsers", "the node's user namespace, as without hostUsers: false", "pods.hostUsers"
            )
    if spec.get("overhead") and not spec.get("runtimeClassName"):
        found.add("spec.overhead", "overhead without a runtime class")
    if spec.get("resourceClaims") and not allowed.allow_resource_claims:
        found.add("spec.resourceClaims", "claims of devices", "pods.allowResourceClaims")
    priority = text_of(spec.get("priorityClassName"))
    if priority and not (
        priority in allowed.priority_classes.exact
        or (not priority.startswith(_SYSTEM_CLASSES) and allowed.priority_classes.match(priority))
    ):
        found.add("spec.priorityClassName", f"priority class {shown(priority)}", "pods.priorityClasses")


def _check_runtime_class(found: RefusalList, spec: Mapping[str, Any], allowed: PodPolicy) -> None:
    named = text_of(spec.get("runtimeClassName"))
    if named and named != allowed.runtime_class and named not in allowed.runtime_classes:
        found.add("spec.runtimeClassName", f"runtime class {shown(named)}", "pods.runtimeClasses")


def _check_placement(
    found: RefusalList, spec: Mapping[str, Any], allowed: PodPolicy, bound_node: str | None
) -> None:
    node = text_of(spec.get("nodeName"))
    if node and node != bound_node and not allowed.allow_node_name:
        found.add("spec.nodeName", "a node that no scheduler chose", "pods.allowNodeName")
    if (scheduler := text_of(spec.get("schedulerName"))) not in allowed.schedulers:
        found.add("spec.schedulerName", f"scheduler {shown(scheduler)}", "pods.schedulers")
    for index, each in enumerate(found.items("spec.tolerations", spec.get("tolerations"))):
        path = f"spec.tolerations[{index}]"
        key = text_of(found.fields(path, each).get("key"))
        if key not in _ALWAYS_TOLERATED and not allowed.toleration_keys.match(key):
            what = f"toleration of {shown(key)}" if key else "toleration of every taint"
            found.add(path, what, "pods.tolerationKeys")


def _check_node_selectors(found: RefusalList, spec: Mapping[str, Any], allowed: PodPolicy) -> None:
    for key in found.fields("spec.nodeSelector", spec.get("nodeSelector")):
        if not allowed.node_labels.match(key):
            found.add(f"spec.nodeSelector[{shown(key)}]", "selection of nodes by it", "pods.nodeLabels")
    if (affinity := spec.get("affinity")) is not None:
        fields = found.fields("spec.affinity", affinity)
        _check_node_affinity(found, fields, allowed)
        for name in ("podAffinity", "podAntiAffinity"):
            _check_pod_affinity(found, f"spec.affinity.{name}", fields.get(name), allowed)
    name = "spec.topologySpreadConstraints"
    for index, each in enumerate(found.items(name, spec.get("topologySpreadConstraints"))):
        _check_topology(found, f"{name}[{index}]", each, allowed)


def _check_pod_affinity(found: RefusalList, path: str, value: Any, allowed: PodPolicy) -> None:
    if value is None:
        return
    fields = found.fields(path, value)
    name = f"{path}.requiredDuringSchedulingIgnoredDuringExecution"
    required = fields.get("requiredDuringSchedulingIgnoredDuringExecution")
    for index, each in enumerate(found.items(name, required)):
        _check_topology(found, f"{name}[{index}]", each, allowed)
    name = f"{path}.preferredDuringSchedulingIgnoredDuringExecution"
    preferred = fields.get("preferredDuringSchedulingIgnoredDuringExecution")
    for index, each in enumerate(found.items(name, preferred)):
        term = found.fields(f"{name}[{index}]", each).get("podAffinityTerm")
        _check_topology(found, f"{name}[{index}].podAffinityTerm", term, allowed)


def _check_topology(found: RefusalList, path: str, value: Any, allowed: PodPolicy) -> None:
    """Nodes without the label of that key are left out, so the key selects nodes."""
    key = text_of(found.fields(path, value).get("topologyKey"))
    if key and not allowed.node_labels.match(key):
        found.add(f"{path}.topologyKey", f"selection of nodes by {shown(key)}", "pods.nodeLabels")


def _check_node_affinity(found: RefusalList, affinity: Mapping[str, Any], allowed: PodPolicy) -> None:
    path = "spec.affinity.nodeAffinity"
    node = found.fields(path, affinity.get("nodeAffinity"))
    name = f"{path}.requiredDuringSchedulingIgnoredDuringExecution"
    required = found.fields(name, node.get("requiredDuringSchedulingIgnoredDuringExecution"))
    for index, term in enumerate(found.items(f"{name}.nodeSelectorTerms", required.get("nodeSelectorTerms"))):
        _check_node_term(found, f"{name}.nodeSelectorTerms[{index}]", term, allowed)
    name = f"{path}.preferredDuringSchedulingIgnoredDuringExecution"
    preferred = found.items(name, node.get("preferredDuringSchedulingIgnoredDuringExecution"))
    for index, each in enumerate(preferred):
        term = found.fields(f"{name}[{index}]", each).get("preference")
        _check_node_term(found, f"{name}[{index}].preference", term, allowed)


def _check_node_term(found: RefusalList, path: str, term: Any, allowed: PodPolicy) -> None:
    fields = found.fields(path, term)
    name = f"{path}.matchExpressions"
    for index, each in enumerate(found.items(name, fields.get("matchExpressions"))):
        key = text_of(found.fields(f"{name}[{index}]", each).get("key"))
        if not allowed.node_labels.match(key):
            found.add(f"{name}[{index}].key", f"selection of nodes by {shown(key)}", "pods.nodeLabels")
    # The only field is metadata.name, by which the DaemonSet controller binds its pods to nodes.
    name = f"{path}.matchFields"
    for index, each in enumerate(found.items(name, fields.get("matchFields"))):
        key = text_of(found.fields(f"{name}[{index}]", each).get("key"))
        if key != "metadata.name":
            found.add(f"{name}[{index}].key", f"selection of nodes by field {shown(key)}")


def _check_resources(found: RefusalList, path: str, value: Any, allowed: PodPolicy) -> None:
    """Devices are on the node as other pods left them, however they are asked for."""
    fields = found.fields(path, value)
    for name in ("requests", "limits"):
        for resource in found.fields(f"{path}.{name}", fields.get(name)):
            if resource in _RESOURCES or resource.startswith("hugepages-"):
                continue
            if not allowed.extended_resources.match(resource):
                found.add(
                    f"{path}.{name}[{shown(resource)}]",
                    f"resource {shown(resource)}",
                    "pods.extendedResources",
                )
    if fields.get("claims") and not allowed.allow_resource_claims:
        found.add(f"{path}.claims", "claims of devices", "pods.allowResourceClaims")


def _check_volumes(found: RefusalList, spec: Mapping[str, Any], policy: SyncPolicy) -> None:
    allowed = policy.pods
    for index, each in enumerate(found.items("spec.volumes", spec.get("volumes"))):
        path = f"spec.volumes[{index}]"
        for kind, source in found.fields(path, each).items():
            if kind == "name" or source is None:
                continue
            if kind not in allowed.volume_types:
                found.add(f"{path}.{shown(kind)}", f"a volume of type {shown(kind)}", "pods.volumeTypes")
            elif kind == "projected":
                _check_projected(found, f"{path}.projected", source, allowed)
            elif kind == "csi":
                driver = text_of(found.fields(f"{path}.csi", source).get("driver"))
                if driver not in allowed.csi_drivers:
                    found.add(f"{path}.csi.driver", f"CSI driver {shown(driver)}", "pods.csiDrivers")
            elif kind == "ephemeral":
                path_below = f"{path}.ephemeral.volumeClaimTemplate"
                template = found.fields(f"{path}.ephemeral", source).get("volumeClaimTemplate")
                claim = found.fields(path_below, template)
                claims.check_spec(found, f"{path_below}.spec", claim.get("spec"), policy)


def _check_projected(found: RefusalList, path: str, source: Any, allowed: PodPolicy) -> None:
    sources = found.fields(path, source).get("sources")
    for index, each in enumerate(found.items(f"{path}.sources", sources)):
        name = f"{path}.sources[{index}]"
        for kind, value in found.fields(name, each).items():
            if value is not None and kind not in allowed.projected_sources:
                found.add(f"{name}.{shown(kind)}", f"a projected {shown(kind)}", "pods.projectedSources")


def _check_context(
    found: RefusalList,
    path: str,
    context: Mapping[str, Any],
    allowed: PodPolicy,
    may_be_privileged: bool,
) -> None:
    """A securityContext, of a pod or of a container: no field has two meanings."""
    if not may_be_privileged:
        if context.get("privileged"):
            found.add(f"{path}.privileged", "a privileged container", "pods.privileged")
        if (capabilities := context.get("capabilities")) is not None:
            added = found.fields(f"{path}.capabilities", capabilities).get("add")
            for index, each in enumerate(found.items(f"{path}.capabilities.add", added)):
                if text_of(each) not in allowed.capabilities:
                    found.add(
                        f"{path}.capabilities.add[{index}]",
                        f"capability {shown(each)}",
                        "pods.capabilities",
                    )
        if (mount := context.get("procMount")) is not None and mount not in ("Default", ""):
            found.add(f"{path}.procMount", f"procMount {shown(mount)}", "pods.privileged")
        for name in ("seccompProfile", "appArmorProfile"):
            if (profile := context.get(name)) is not None:
                kind = found.fields(f"{path}.{name}", profile).get("type")
                if kind not in (None, "RuntimeDefault", "Localhost"):
                    found.add(f"{path}.{name}.type", f"{name} {shown(kind)}", "pods.privileged")
    if (options := context.get("seLinuxOptions")) is not None:
        fields = found.fields(f"{path}.seLinuxOptions", options)
        if (kind := text_of(fields.get("type"))) not in allowed.se_linux_types:
            found.add(f"{path}.seLinuxOptions.type", f"SELinux type {shown(kind)}", "pods.seLinuxTypes")
        for name in ("user", "role"):
            if fields.get(name):
                found.add(f"{path}.seLinuxOptions.{name}", f"an SELinux {name}")
    if (windows := context.get("windowsOptions")) is not None and found.fields(
        f"{path}.windowsOptions", windows
    ).get("hostProcess"):
        found.add(f"{path}.windowsOptions.hostProcess", "a process of the host")
    if (sysctls := context.get("sysctls")) is None:
        return
    for index, each in enumerate(found.items(f"{path}.sysctls", sysctls)):
        name = text_of(found.fields(f"{path}.sysctls[{index}]", each).get("name"))
        if not allowed.sysctls.match(name):
            found.add(f"{path}.sysctls[{index}]", f"sysctl {shown(name)}", "pods.sysctls")


def _check_ports(found: RefusalList, path: str, ports: Any, allowed: PodPolicy) -> None:
    for index, each in enumerate(found.items(path, ports)):
        port = found.fields(f"{path}[{index}]", each).get("hostPort")
        if port and not (type(port) is int and port in allowed.host_ports):
            found.add(f"{path}[{index}].hostPort", "a port of the node", "pods.hostPorts")


def _check_handlers(found: RefusalList, path: str, container: Mapping[str, Any]) -> None:
    """The kubelet calls from the node: with a host it would reach what the node reaches."""
    for name in _PROBES:
        if (probe := container.get(name)) is not None:
            _check_handler(found, f"{path}.{name}", probe)
    if (lifecycle := container.get("lifecycle")) is not None:
        hooks = found.fields(f"{path}.lifecycle", lifecycle)
        for name in _HOOKS:
            if (hook := hooks.get(name)) is not None:
                _check_handler(found, f"{path}.lifecycle.{name}", hook)


def _check_handler(found: RefusalList, path: str, handler: Any) -> None:
    fields = found.fields(path, handler)
    for name in ("httpGet", "tcpSocket"):
        if (action := fields.get(name)) is not None and found.fields(f"{path}.{name}", action).get("host"):
            found.add(f"{path}.{name}.host", "a host for the kubelet to call", "pods.allowHandlerHosts")


def _check_mounts(found: RefusalList, path: str, mounts: Any) -> None:
    for index, each in enumerate(found.items(path, mounts)):
        if found.fields(f"{path}[{index}]", each).get("mountPropagation") == "Bidirectional":
            found.add(f"{path}[{index}].mountPropagation", "mounts that reach the node")
