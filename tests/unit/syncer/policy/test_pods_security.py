# SPDX-License-Identifier: Apache-2.0
"""What a pod may do on the node, by the SyncPolicy: docs/spec/sync-policy.md#pods."""

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import patterns, pods
from syncer.policy.sync_policy import HostUsers, Privileged, SyncPolicy
from tests.unit.syncer.policy.judged import with_keys
from tests.unit.syncer.policy.pod_examples import (
    VM,
    container,
    context,
    denied,
    never,
    pod,
    with_pods,
)

refusals_of = with_keys("Pod", pods.refusals)
C = "spec.containers[0]"
SC = f"{C}.securityContext"

REFUSED: list[tuple[Object, Refusal]] = [
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
    (pod(hostUsers=True), denied("spec.hostUsers", "the node's user namespace", "pods.hostUsers")),
]

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
    (pod(hostUsers=True), with_pods(host_users=HostUsers.ALLOW)),
    (context(capabilities={"add": ["SYS_PTRACE"]}), with_pods(capabilities=frozenset({"SYS_PTRACE"}))),
    (context(seLinuxOptions={"type": "spc_t"}), with_pods(se_linux_types=frozenset({"spc_t"}))),
    (
        pod(securityContext={"sysctls": [{"name": "net.core.somaxconn"}]}),
        with_pods(sysctls=patterns.of("net.core.*")),
    ),
    (
        container(
            lifecycle={"postStart": {"httpGet": {"host": "a"}}}, livenessProbe={"tcpSocket": {"host": "a"}}
        ),
        with_pods(allow_handler_hosts=True),
    ),
]

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
]


def test_a_pod_that_shares_no_users_passes_where_it_must() -> None:
    assert pods.refusals(pod(hostUsers=False), with_pods(host_users=HostUsers.DENY)) == ()


def test_a_policy_that_forces_vms_makes_none_of_running_pods() -> None:
    """A privileged ephemeral container would otherwise come into a pod that has the node's kernel."""
    added = pod(ephemeralContainers=[{"securityContext": {"privileged": True}}])
    path = "spec.ephemeralContainers[0].securityContext.privileged"
    refused = (denied(path, "a privileged container", "pods.privileged"),)
    assert pods.refusals(added, with_pods(**VM), pod(runtimeClassName="kata")) == ()
    assert pods.refusals(added, with_pods(**VM), pod(runtimeClassName="runc")) == refused
    assert pods.refusals(added, with_pods(**VM), pod()) == refused
