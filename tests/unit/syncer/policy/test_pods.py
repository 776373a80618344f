# SPDX-License-Identifier: Apache-2.0
"""Pods by the SyncPolicy: each control as in docs/spec/sync-policy.md#pods."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import patterns, pods
from syncer.policy.sync_policy import DEFAULT, ClaimPolicy, HostUsers, Privileged, SyncPolicy
from tests.unit.syncer.policy.arbitrary_json import are_refusals, changed
from tests.unit.syncer.policy.judged import with_keys
from tests.unit.syncer.policy.pod_examples import (
    DAEMON,
    ORDINARY,
    container,
    context,
    denied,
    never,
    pod,
    volume,
    with_pods,
)

refusals_of = with_keys("Pod", pods.refusals)
C = "spec.containers[0]"
SC = f"{C}.securityContext"

REFUSED: list[tuple[Object, Refusal]] = [
    # Pod Security baseline.
    (
        pod(hostNetwork=True),
        Refusal(
            "spec.hostNetwork",
            "the node's Network namespace: SyncPolicy field spec.pods.hostNamespaces does not allow it",
        ),
    ),
    (pod(hostPID=True), denied("spec.hostPID", "the node's PID namespace", "pods.hostNamespaces")),
    (pod(hostIPC=True), denied("spec.hostIPC", "the node's IPC namespace", "pods.hostNamespaces")),
    (
        context(privileged=True),
        Refusal(
            "spec.containers[0].securityContext.privileged",
            "a privileged container: SyncPolicy field spec.pods.privileged does not allow it",
        ),
    ),
    (
        pod(initContainers=[{}, {"securityContext": {"privileged": True}}]),
        denied(
            "spec.initContainers[1].securityContext.privileged", "a privileged container", "pods.privileged"
        ),
    ),
    (
        pod(ephemeralContainers=[{"securityContext": {"privileged": True}}]),
        denied(
            "spec.ephemeralContainers[0].securityContext.privileged",
            "a privileged container",
            "pods.privileged",
        ),
    ),
    (
        context(capabilities={"add": ["CHOWN", "SYS_ADMIN"]}),
        denied(f"{SC}.capabilities.add[1]", "capability SYS_ADMIN", "pods.capabilities"),
    ),
    (
        context(capabilities={"add": ["NET_RAW"]}),
        denied(f"{SC}.capabilities.add[0]", "capability NET_RAW", "pods.capabilities"),
    ),
    (
        context(capabilities={"add": ["ALL"]}),
        denied(f"{SC}.capabilities.add[0]", "capability ALL", "pods.capabilities"),
    ),
    (
        volume(hostPath={"path": "/"}),
        denied("spec.volumes[0].hostPath", "a volume of type hostPath", "pods.volumeTypes"),
    ),
    (
        container(ports=[{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}]),
        denied(f"{C}.ports[1].hostPort", "a port of the node", "pods.hostPorts"),
    ),
    (
        container(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
        denied(f"{C}.livenessProbe.httpGet.host", "a host for the kubelet to call", "pods.allowHandlerHosts"),
    ),
    (
        container(readinessProbe={"tcpSocket": {"host": "10.0.0.1", "port": 22}}),
        denied(
            f"{C}.readinessProbe.tcpSocket.host", "a host for the kubelet to call", "pods.allowHandlerHosts"
        ),
    ),
    (
        container(startupProbe={"tcpSocket": {"host": "10.0.0.1", "port": 22}}),
        denied(
            f"{C}.startupProbe.tcpSocket.host", "a host for the kubelet to call", "pods.allowHandlerHosts"
        ),
    ),
    (
        container(lifecycle={"postStart": {"httpGet": {"host": "10.0.0.1", "port": 80}}}),
        denied(
            f"{C}.lifecycle.postStart.httpGet.host",
            "a host for the kubelet to call",
            "pods.allowHandlerHosts",
        ),
    ),
    (
        container(lifecycle={"preStop": {"tcpSocket": {"host": "10.0.0.1", "port": 80}}}),
        denied(
            f"{C}.lifecycle.preStop.tcpSocket.host",
            "a host for the kubelet to call",
            "pods.allowHandlerHosts",
        ),
    ),
    (
        context(appArmorProfile={"type": "Unconfined"}),
        denied(f"{SC}.appArmorProfile.type", "appArmorProfile Unconfined", "pods.privileged"),
    ),
    (
        pod({"container.apparmor.security.beta.kubernetes.io/web": "unconfined"}),
        denied(
            "metadata.annotations[container.apparmor.security.beta.kubernetes.io/web]",
            "AppArmor profile unconfined",
            "pods.privileged",
        ),
    ),
    (
        context(seLinuxOptions={"type": "spc_t"}),
        denied(f"{SC}.seLinuxOptions.type", "SELinux type spc_t", "pods.seLinuxTypes"),
    ),
    (
        context(seLinuxOptions={"user": "system_u"}),
        never(f"{SC}.seLinuxOptions.user", "an SELinux user"),
    ),
    (
        pod(securityContext={"seLinuxOptions": {"role": "system_r"}}),
        never("spec.securityContext.seLinuxOptions.role", "an SELinux role"),
    ),
    (
        context(procMount="Unmasked"),
        denied(f"{SC}.procMount", "procMount Unmasked", "pods.privileged"),
    ),
    (
        context(seccompProfile={"type": "Unconfined"}),
        denied(f"{SC}.seccompProfile.type", "seccompProfile Unconfined", "pods.privileged"),
    ),
    (
        pod(securityContext={"seccompProfile": {"type": "Unconfined"}}),
        denied("spec.securityContext.seccompProfile.type", "seccompProfile Unconfined", "pods.privileged"),
    ),
    (
        pod({"container.seccomp.security.alpha.kubernetes.io/web": "unconfined"}),
        denied(
            "metadata.annotations[container.seccomp.security.alpha.kubernetes.io/web]",
            "seccomp unconfined",
            "pods.privileged",
        ),
    ),
    (
        pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_syncookies"}, {"name": "kernel.msgmax"}]}),
        denied("spec.securityContext.sysctls[1]", "sysctl kernel.msgmax", "pods.sysctls"),
    ),
    (
        context(windowsOptions={"hostProcess": True}),
        never(f"{SC}.windowsOptions.hostProcess", "a process of the host"),
    ),
    (
        pod(securityContext={"windowsOptions": {"hostProcess": True}}),
        never("spec.securityContext.windowsOptions.hostProcess", "a process of the host"),
    ),
    # Beyond baseline.
    (
        container(volumeMounts=[{"mountPropagation": "Bidirectional"}]),
        never(f"{C}.volumeMounts[0].mountPropagation", "mounts that reach the node"),
    ),
    (
        volume(nfs={"server": "10.0.0.1"}),
        denied("spec.volumes[0].nfs", "a volume of type nfs", "pods.volumeTypes"),
    ),
    (
        volume(csi={"driver": "hostpath.csi.k8s.io"}),
        denied("spec.volumes[0].csi.driver", "CSI driver hostpath.csi.k8s.io", "pods.csiDrivers"),
    ),
    (
        volume(projected={"sources": [{"secret": {}}, {"clusterTrustBundle": {"name": "ca"}}]}),
        denied(
            "spec.volumes[0].projected.sources[1].clusterTrustBundle",
            "a projected clusterTrustBundle",
            "pods.projectedSources",
        ),
    ),
    (
        volume(projected={"sources": [{"podCertificate": {"signerName": "a/b"}}]}),
        denied(
            "spec.volumes[0].projected.sources[0].podCertificate",
            "a projected podCertificate",
            "pods.projectedSources",
        ),
    ),
    (
        volume(
            ephemeral={"volumeClaimTemplate": {"spec": {"dataSourceRef": {"name": "a", "namespace": "b"}}}}
        ),
        never(
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.dataSourceRef.namespace",
            "a source in another namespace",
        ),
    ),
    (pod(hostUsers=True), denied("spec.hostUsers", "the node's user namespace", "pods.hostUsers")),
    (
        pod(runtimeClassName="runc"),
        denied("spec.runtimeClassName", "runtime class runc", "pods.runtimeClasses"),
    ),
    (pod(overhead={"cpu": "1m"}), never("spec.overhead", "overhead without a runtime class")),
    (
        pod(resourceClaims=[{"name": "gpu"}]),
        denied("spec.resourceClaims", "claims of devices", "pods.allowResourceClaims"),
    ),
    (
        pod(nodeName="node-1"),
        denied("spec.nodeName", "a node that no scheduler chose", "pods.allowNodeName"),
    ),
    (pod(schedulerName="mine"), denied("spec.schedulerName", "scheduler mine", "pods.schedulers")),
    (
        pod(tolerations=[{"key": "dedicated", "operator": "Exists"}]),
        denied("spec.tolerations[0]", "toleration of dedicated", "pods.tolerationKeys"),
    ),
    (
        pod(tolerations=[{"operator": "Exists"}]),
        denied("spec.tolerations[0]", "toleration of every taint", "pods.tolerationKeys"),
    ),
    (
        pod(nodeSelector={"node-role.kubernetes.io/control-plane": ""}),
        denied(
            "spec.nodeSelector[node-role.kubernetes.io/control-plane]",
            "selection of nodes by it",
            "pods.nodeLabels",
        ),
    ),
    (
        pod(
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{}, {"matchExpressions": [{"key": "pool"}]}]
                    }
                }
            }
        ),
        denied(
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[1].matchExpressions[0].key",
            "selection of nodes by pool",
            "pods.nodeLabels",
        ),
    ),
    (
        pod(
            affinity={
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": {"matchFields": [{"key": "spec.unschedulable"}]}}
                    ]
                }
            }
        ),
        never(
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
            ".preference.matchFields[0].key",
            "selection of nodes by field spec.unschedulable",
        ),
    ),
    (
        pod(priorityClassName="system-node-critical"),
        denied("spec.priorityClassName", "priority class system-node-critical", "pods.priorityClasses"),
    ),
    # What is not as Kubernetes has it.
    ({"spec": []}, never("spec", "is not an object")),
    (pod(containers={"a": 1}), never("spec.containers", "is not a list")),
    (pod(volumes=["a"]), never("spec.volumes[0]", "is not an object")),
    ({"metadata": {"annotations": []}, "spec": {}}, never("metadata.annotations", "is not an object")),
    (
        pod(schedulerName="\u202e" + "x" * 200),
        denied("spec.schedulerName", f"scheduler \\u202e{'x' * 124}...", "pods.schedulers"),
    ),
]

ANNOTATIONS = [
    "io.katacontainers.config.hypervisor.kernel_params",
    "io.containerd.cri.runtime-handler",
    "io.kubernetes.cri-o.userns-mode",
    "io.kubernetes.cri.rdt-class",
    "cpu-quota.crio.io",
    "dev.gvisor.spec.mount.a.source",
    "run.oci.hooks",
    "org.systemd.property.DeviceAllow",
    "cdi.k8s.io/vendor",
    "devices.nri.io/container.web",
    "devices.nri.io",
    "ulimits.nri.containerd.io/container.web",
    "required-plugins.noderesource.dev",
    "network-device-injector.noderesource.dev/pod",
    "rdt.resources.beta.kubernetes.io/pod",
    "kubernetes.io/config.mirror",
    "cni.projectcalico.org/ipAddrs",
    "k8s.v1.cni.cncf.io/networks",
    "v1.multus-cni.io/default-network",
    "policy.cilium.io/no-track-port",
    "k8s.ovn.org/pod-networks",
    "mizar.com/subnet",
]


@pytest.mark.parametrize("value", [ORDINARY, DAEMON, {}, {"spec": {}}, {"metadata": None, "spec": None}])
def test_ordinary_pods_pass(value: Object) -> None:
    assert refusals_of(value, DEFAULT) == ()


@pytest.mark.parametrize(("value", "expected"), REFUSED, ids=lambda each: getattr(each, "path", ""))
def test_default_policy_refuses(value: Object, expected: Refusal) -> None:
    assert refusals_of(value, DEFAULT) == (expected,)


@pytest.mark.parametrize("key", ANNOTATIONS)
def test_annotations_of_the_node_are_refused(key: str) -> None:
    path = f"metadata.annotations[{key}]"
    expected = denied(path, "this annotation", "pods.allowedAnnotations")
    assert refusals_of(pod({key: "x"}), DEFAULT) == (expected,)
    assert refusals_of(pod({key: "x"}), with_pods(allowed_annotations=patterns.of(key))) == ()


@pytest.mark.parametrize(
    "value",
    [
        pod({"container.apparmor.security.beta.kubernetes.io/web": "runtime/default"}),
        pod({"container.apparmor.security.beta.kubernetes.io/web": "localhost/web"}),
        pod({"seccomp.security.alpha.kubernetes.io/pod": "runtime/default"}),
        pod({"notnri.io/a": "b", "example.com/nri.io": "b", "xio.katacontainers.a": "b"}),
        pod(hostNetwork=False, hostPID=False, hostIPC=None, hostUsers=False),
        context(seccompProfile={"type": "Localhost", "localhostProfile": "a.json"}),
        context(appArmorProfile={"type": "RuntimeDefault"}, procMount="Default"),
        context(seLinuxOptions={"level": "s0:c1,c2", "type": "container_t"}),
        container(ports=[{"containerPort": 80, "hostPort": 0}]),
        container(livenessProbe={"grpc": {"port": 80}}, startupProbe={"exec": {"command": ["true"]}}),
        container(livenessProbe={"httpGet": {"port": 80, "host": ""}}),
        volume(image={"reference": "a"}),
        volume(emptyDir={}, hostPath=None),
        volume(ephemeral={"volumeClaimTemplate": {"spec": {"storageClassName": "any"}}}),
        pod(aFieldOfTheFuture={"a": 1}),
    ],
)
def test_default_policy_allows(value: Object) -> None:
    assert refusals_of(value, DEFAULT) == ()


VM = {"runtime_class": "kata", "vm_runtime_classes": frozenset({"kata"})}

ALLOWED: list[tuple[Object, SyncPolicy]] = [
    (pod(hostNetwork=True, hostPID=True), with_pods(host_namespaces=frozenset({"Network", "PID"}))),
    (
        pod(hostNetwork=True, containers=[{"ports": [{"containerPort": 80, "hostPort": 80}]}]),
        with_pods(host_namespaces=frozenset({"Network"})),
    ),
    (container(ports=[{"hostPort": 8080}]), with_pods(host_ports=frozenset({8080}))),
    (context(privileged=True, procMount="Unmasked"), with_pods(**VM)),
    (context(capabilities={"add": ["ALL"]}, seccompProfile={"type": "Unconfined"}), with_pods(**VM)),
    (context(appArmorProfile={"type": "Unconfined"}), with_pods(**VM)),
    (pod({"container.apparmor.security.beta.kubernetes.io/web": "unconfined"}), with_pods(**VM)),
    (pod(hostUsers=True), with_pods(**VM, host_users=HostUsers.DENY)),
    (context(privileged=True), with_pods(privileged=Privileged.ALWAYS)),
    (
        pod(
            runtimeClassName="kata",
            overhead={"cpu": "1m"},
            containers=[{"securityContext": {"privileged": 1}}],
        ),
        with_pods(runtime_classes=frozenset({"kata"}), vm_runtime_classes=frozenset({"kata"})),
    ),
    (pod(runtimeClassName="kata"), with_pods(**VM)),
    (pod(hostUsers=True), with_pods(host_users=HostUsers.ALLOW)),
    (context(capabilities={"add": ["SYS_PTRACE"]}), with_pods(capabilities=frozenset({"SYS_PTRACE"}))),
    (context(seLinuxOptions={"type": "spc_t"}), with_pods(se_linux_types=frozenset({"spc_t"}))),
    (
        pod(securityContext={"sysctls": [{"name": "net.core.somaxconn"}]}),
        with_pods(sysctls=patterns.of("net.core.*")),
    ),
    (volume(hostPath={"path": "/"}), with_pods(volume_types=frozenset({"hostPath"}))),
    (volume(csi={"driver": "a.io"}), with_pods(csi_drivers=frozenset({"a.io"}))),
    (
        volume(projected={"sources": [{"clusterTrustBundle": {}}]}),
        with_pods(projected_sources=frozenset({"clusterTrustBundle"})),
    ),
    (
        container(
            lifecycle={"postStart": {"httpGet": {"host": "a"}}}, livenessProbe={"tcpSocket": {"host": "a"}}
        ),
        with_pods(allow_handler_hosts=True),
    ),
    (pod(nodeName="node-1"), with_pods(allow_node_name=True)),
    (pod(resourceClaims=[{"name": "gpu"}]), with_pods(allow_resource_claims=True)),
    (pod(schedulerName="mine"), with_pods(schedulers=frozenset({"mine"}))),
    (pod(tolerations=[{"key": "dedicated"}]), with_pods(toleration_keys=patterns.of("ded*"))),
    (pod(tolerations=[{"operator": "Exists"}]), with_pods(toleration_keys=patterns.of("*"))),
    (pod(nodeSelector={"pool": "a"}), with_pods(node_labels=patterns.of("pool"))),
    (pod(priorityClassName="tenant-high"), with_pods(priority_classes=patterns.of("tenant-*"))),
    (
        pod(priorityClassName="system-node-critical"),
        with_pods(priority_classes=patterns.of("system-node-critical")),
    ),
]


@pytest.mark.parametrize(("value", "policy"), ALLOWED)
def test_policy_allows(value: Object, policy: SyncPolicy) -> None:
    assert refusals_of(value, DEFAULT) != ()
    assert refusals_of(value, policy) == ()


def test_a_pod_that_shares_no_users_passes_where_it_must() -> None:
    assert pods.refusals(pod(hostUsers=False), with_pods(host_users=HostUsers.DENY)) == ()


NARROWED: list[tuple[Object, SyncPolicy, Refusal]] = [
    (
        context(privileged=True),
        with_pods(**VM, privileged=Privileged.NEVER),
        denied(f"{SC}.privileged", "a privileged container", "pods.privileged"),
    ),
    (
        pod(runtimeClassName="runc", containers=[{"securityContext": {"privileged": True}}]),
        with_pods(**VM, runtime_classes=frozenset({"runc"})),
        denied(f"{SC}.privileged", "a privileged container", "pods.privileged"),
    ),
    (
        context(seLinuxOptions={"type": "spc_t"}),
        with_pods(**VM),
        denied(f"{SC}.seLinuxOptions.type", "SELinux type spc_t", "pods.seLinuxTypes"),
    ),
    (
        pod(hostNetwork=True),
        with_pods(**VM),
        denied("spec.hostNetwork", "the node's Network namespace", "pods.hostNamespaces"),
    ),
    (
        pod(),
        with_pods(host_users=HostUsers.DENY),
        denied("spec.hostUsers", "the node's user namespace, as without hostUsers: false", "pods.hostUsers"),
    ),
    (
        pod(priorityClassName="system-node-critical"),
        with_pods(priority_classes=patterns.of("*")),
        denied("spec.priorityClassName", "priority class system-node-critical", "pods.priorityClasses"),
    ),
    (
        pod(
            tolerations=[{"key": "node.kubernetes.io/unschedulable"}, {"key": "node.kubernetes.io/not-ready"}]
        ),
        with_pods(toleration_keys=patterns.of()),
        denied(
            "spec.tolerations[0]", "toleration of node.kubernetes.io/unschedulable", "pods.tolerationKeys"
        ),
    ),
    (
        volume(ephemeral={"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}),
        SyncPolicy(claims=ClaimPolicy(frozenset({"slow"}))),
        denied(
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.storageClassName",
            "storage class fast",
            "claims.storageClasses",
        ),
    ),
    (
        pod({"mesh.example.com/inject": "true"}),
        with_pods(denied_annotations=patterns.of("mesh.example.com/*")),
        denied("metadata.annotations[mesh.example.com/inject]", "this annotation", "pods.allowedAnnotations"),
    ),
]


@pytest.mark.parametrize(("value", "policy", "expected"), NARROWED)
def test_policy_refuses(value: Object, policy: SyncPolicy, expected: Refusal) -> None:
    assert refusals_of(value, policy) == (expected,)


def test_every_fault_is_reported_in_order() -> None:
    value = pod(
        {"io.katacontainers.config.agent.debug": "1"},
        hostPID=True,
        nodeName="node-1",
        volumes=[{"name": "a", "hostPath": {}}],
        containers=[{"securityContext": {"privileged": True}}],
    )
    assert [each.path for each in refusals_of(value, DEFAULT)] == [
        "metadata.annotations[io.katacontainers.config.agent.debug]",
        "spec.hostPID",
        "spec.nodeName",
        "spec.volumes[0].hostPath",
        "spec.containers[0].securityContext.privileged",
    ]


def test_refusals_are_bounded() -> None:
    found = pods.refusals(pod(containers=[{"ports": [{"hostPort": 1}] * 1_000}] * 10), DEFAULT)
    assert (len(found), found[-1].path) == (32, "spec.containers[0].ports[31].hostPort")


def test_a_bound_pod_has_the_node_of_its_super_pod() -> None:
    bound = pod(nodeName="node-1")
    assert pods.refusals(bound, DEFAULT, pod(nodeName="node-1")) == ()
    for other in (pod(nodeName="node-2"), pod(), {}):
        assert [each.path for each in pods.refusals(bound, DEFAULT, other)] == ["spec.nodeName"]


def test_a_policy_that_forces_vms_makes_none_of_running_pods() -> None:
    """A privileged ephemeral container would otherwise come into a pod that has the node's kernel."""
    added = pod(ephemeralContainers=[{"securityContext": {"privileged": True}}])
    path = "spec.ephemeralContainers[0].securityContext.privileged"
    refused = (denied(path, "a privileged container", "pods.privileged"),)
    assert pods.refusals(added, with_pods(**VM), pod(runtimeClassName="kata")) == ()
    assert pods.refusals(added, with_pods(**VM), pod(runtimeClassName="runc")) == refused
    assert pods.refusals(added, with_pods(**VM), pod()) == refused


def test_a_pod_keeps_the_runtime_class_that_it_was_given() -> None:
    assert pods.refusals(pod(runtimeClassName="old"), with_pods(**VM), pod(runtimeClassName="old")) == ()
    # The tenant's own class of the same handler.
    assert pods.refusals(pod(runtimeClassName="own"), with_pods(**VM), pod(runtimeClassName="kata")) == ()


def test_selectors_are_judged_while_they_can_change() -> None:
    """That is until the super pod's scheduling gates are gone."""
    chosen = pod(nodeSelector={"pool": "a"})
    assert pods.refusals(chosen, DEFAULT, pod()) == ()
    for there in (None, pod(schedulingGates=[{"name": "example.com/g"}])):
        assert [each.path for each in pods.refusals(chosen, DEFAULT, there)] == ["spec.nodeSelector[pool]"]


@pytest.mark.parametrize(
    ("own", "forced", "others", "expected"),
    [
        (None, "", (), None),
        (None, "kata", (), "kata"),
        ("kata", "kata", (), "kata"),
        ("gvisor", "kata", ("gvisor",), "gvisor"),
        ("gvisor", "kata", (), "kata"),
        ("gvisor", "", ("gvisor",), "gvisor"),
        ("gvisor", "", (), None),
        (["gvisor"], "kata", (), "kata"),
    ],
)
def test_forced_runtime_class(own: Any, forced: str, others: tuple[str, ...], expected: str | None) -> None:
    policy = with_pods(runtime_class=forced, runtime_classes=frozenset(others))
    assert pods.forced_runtime_class(pod(runtimeClassName=own), policy) == expected


@given(changed(ORDINARY, DAEMON, *(value for value, _ in REFUSED)))
def test_any_json_gives_refusals(value: Object) -> None:
    for policy in (DEFAULT, with_pods(**VM, host_users=HostUsers.DENY)):
        assert are_refusals(pods.refusals(value, policy))


@given(st.lists(st.sampled_from(REFUSED), max_size=4))
def test_what_passes_has_no_privileged_feature(features: list[tuple[Object, Refusal]]) -> None:
    """An ordinary pod with the features of any others is refused for each, wherever they stand."""
    value = copy.deepcopy(ORDINARY)
    for feature, _ in features:
        spec = feature["spec"]
        if not isinstance(spec, dict):
            continue
        value["metadata"]["annotations"].update(feature.get("metadata", {}).get("annotations") or {})
        for name, field in spec.items():
            known = value["spec"].get(name)
            value["spec"][name] = (
                known + field if isinstance(known, list) and isinstance(field, list) else field
            )
    is_changed = any(isinstance(feature["spec"], dict) for feature, _ in features)
    is_empty = all(
        not (feature["spec"] or feature.get("metadata", {}).get("annotations")) for feature, _ in features
    )
    assert bool(refusals_of(value, DEFAULT)) == (is_changed and not is_empty)


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "rdma/hca", "devices.kubevirt.io/kvm", "smarter-devices/fuse", "cpu2"]
)
def test_devices_are_asked_for_by_allow_list(resource: str) -> None:
    """What a device plugin gives is on the node as others left it, as with claims of devices."""
    value = pod(containers=[{"resources": {"limits": {resource: "1", "cpu": "1", "hugepages-2Mi": "2Mi"}}}])
    path = f"spec.containers[0].resources.limits[{resource}]"
    assert refusals_of(value, DEFAULT) == (denied(path, f"resource {resource}", "pods.extendedResources"),)
    assert refusals_of(value, with_pods(extended_resources=patterns.of(resource))) == ()
    whole = pod(resources={"requests": {resource: "1"}}, containers=[{}])
    assert [each.path for each in refusals_of(whole, DEFAULT)] == [f"spec.resources.requests[{resource}]"]


_TERM = {"topologyKey": "pool", "labelSelector": {}}
_TOPOLOGIES = {
    f"spec.affinity.{kind}.{path}": {
        "affinity": {kind: {f"{when}DuringSchedulingIgnoredDuringExecution": [term]}}
    }
    for kind in ("podAffinity", "podAntiAffinity")
    for when, path, term in (
        ("required", "requiredDuringSchedulingIgnoredDuringExecution[0]", _TERM),
        (
            "preferred",
            "preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm",
            {"weight": 1, "podAffinityTerm": _TERM},
        ),
    )
} | {"spec.topologySpreadConstraints[0]": {"topologySpreadConstraints": [{"maxSkew": 1, **_TERM}]}}


@pytest.mark.parametrize("path", _TOPOLOGIES)
def test_a_topology_selects_nodes_by_allow_list(path: str) -> None:
    """A scheduler leaves out the nodes without the label."""
    value = pod(**_TOPOLOGIES[path])
    assert refusals_of(value, DEFAULT) == (
        denied(f"{path}.topologyKey", "selection of nodes by pool", "pods.nodeLabels"),
    )
    assert refusals_of(value, with_pods(node_labels=patterns.of("pool", "kubernetes.io/os"))) == ()
    usual = json.loads(json.dumps(value).replace('"pool"', '"topology.kubernetes.io/zone"'))
    assert refusals_of(usual, DEFAULT) == ()
