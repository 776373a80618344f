# SPDX-License-Identifier: Apache-2.0
"""The gate on real containerd with its default validator, kubelet and apiserver."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tenancy import keys
from tests.k8s.ring import gating, services
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.serving import AGENT, KATA, OWN_IP, ServingNode, print_figure, serving
from tests.k8s.ring.tenants import RingTenant

_STARTED_S = 40.0


@pytest.fixture(scope="module")
def node(ring: Ring) -> Iterator[ServingNode]:
    server = gating.start_dns_server(ring)
    try:
        settings: JsonObject = {
            "directory": str(ring.directory / "pods"),
            **gating.allow_bridge(ring),
            "namespaces": [
                {"namespaces": ["*-warned"], "policy": "warn"},
                {"namespaces": ["*-open"], "policy": "off"},
            ],
        }
        with serving(ring, settings) as made:
            yield made
    finally:
        server.stop()


@contextmanager
def pod(
    node: ServingNode,
    tenant: RingTenant,
    handler: str = "",
    spec: JsonObject | None = None,
    *,
    namespace: str = "default",
    annotations: dict[str, str] | None = None,
    is_bound: bool = True,
) -> Iterator[services.TenantPod]:
    """A tenant's pod that requires the plugin; it need not start. Without `is_bound` it has no node yet."""
    node.ring.syncer.create_namespace(tenant, namespace)
    value = services.pod_value(
        tenant, f"g-{secrets.token_hex(3)}", node.ring.node.name, handler, spec or services.sleeper()
    )
    value["metadata"]["annotations"] |= {**gating.REQUIRED, **(annotations or {})}
    if not is_bound:
        del value["spec"]["nodeName"]
    made = services.TenantPod(node.ring, tenant.super_namespace(namespace), value["metadata"]["name"])
    node.ring.super_cluster.api.create(made.path.rpartition("/")[0], value)
    try:
        yield made
    finally:
        node.ring.super_cluster.api.delete(made.path)


def bind(pod: services.TenantPod) -> None:
    """Give it its node, as a scheduler does."""
    target = {"apiVersion": "v1", "kind": "Node", "name": pod.ring.node.name}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name}, "target": target}
    pod.ring.super_cluster.api.create(f"{pod.path}/binding", binding)


def uid(pod: services.TenantPod) -> str:
    return str(pod.ring.super_cluster.api.get(pod.path)["metadata"]["uid"])


def wait_blocked(pod: services.TenantPod, message: str) -> str:
    """Wait until the pod is blocked with this message; returns the whole text of its state."""

    def waiting() -> str:
        text = gating.waiting(pod.status())
        return text if message in text else ""

    try:
        return wait_for(f"blocked: {message}", waiting, timeout_s=_STARTED_S)
    except RingError as error:
        raise RingError(f"{error}: {pod.status()}") from None


def wait_running(pod: services.TenantPod) -> float:
    """Wait until it runs; returns how long that took."""
    began_s = time.monotonic()
    pod.wait("Running")
    return time.monotonic() - began_s


NO_RESOLVER = "the resolver of network default is not synced: dnsconfig has not submitted it yet"


def events(pod: services.TenantPod, reason: str) -> list[str]:
    """The messages of this pod's Events with that reason."""
    found = pod.ring.super_cluster.api.get(f"/api/v1/namespaces/{pod.namespace}/events")["items"]
    return [
        each["message"]
        for each in found
        if (each["involvedObject"].get("name"), each["reason"]) == (pod.name, reason)
    ]


def resolv_conf(pod: services.TenantPod) -> str:
    return pod.sh("cat /etc/resolv.conf")[1]


def test_pod_reports_what_it_waits_for_and_starts(node: ServingNode, acme: RingTenant) -> None:
    opened = node.bridge.metric("vcnode_katabridge_needs_met_seconds_count")
    with pod(node, acme, KATA, gating.first_connection(OWN_IP)) as made:
        # The rules are in by the second try.
        text = wait_blocked(made, f"waiting: {NO_RESOLVER}")
        assert text.startswith("CreateContainerError: ")
        assert made.status()["containerStatuses"][0]["restartCount"] == 0
        pods = node.bridge.status()["startGate"]["blocked"]
        (blocked,) = [each for each in pods if each["pod"] == made.full_name]
        assert blocked["containers"] == ["main"]
        wait_for("Event", lambda: events(made, "ContainerStartBlocked"), timeout_s=10)
        assert NO_RESOLVER in events(made, "ContainerStartBlocked")[-1]
        # Past the second try, after which the kubelet by itself waits for 11 to 15 s.
        time.sleep(2)
        assert node.bridge.metric("vcnode_katabridge_needs_met_seconds_count") == opened
        began_s = time.monotonic()
        gating.submit_resolver(node.ring, uid(made), gating.RESOLV_CONF)
        made.wait("Succeeded")
        took_s = time.monotonic() - began_s
        print_figure(f"from the resolver to the end of the pod, by a nudge: {took_s:.2f} s")
        assert took_s < 8
        assert made.status()["containerStatuses"][0]["state"]["terminated"].get("message", "") == ""
        annotations = node.ring.super_cluster.api.get(made.path)["metadata"]["annotations"]
        assert annotations[keys.GATE_OPENED]
        (allowed,) = node.bridge.lines("container start allowed", pod=made.full_name)
        assert allowed["was_blocked"]
        # From the sandbox on: the two seconds above are in it.
        assert node.bridge.metric("vcnode_katabridge_needs_met_seconds_count") == opened + 1
        assert node.bridge.metric("vcnode_katabridge_needs_met_seconds_sum") > 2


def test_dnsconfigs_wait_message_reaches_the_pods_author(node: ServingNode, acme: RingTenant) -> None:
    with pod(node, acme) as made:
        gating.submit_resolver(node.ring, uid(made), "", "network blue is not Ready: it is still being made")
        wait_blocked(made, "network blue is not Ready: it is still being made")
        gating.submit_resolver(node.ring, uid(made), gating.RESOLV_CONF)
        wait_running(made)
        assert resolv_conf(made) == gating.RESOLV_CONF
        other = "nameserver 10.88.0.53\n"
        gating.submit_resolver(node.ring, uid(made), other)
        assert resolv_conf(made) == other
        assert "Read-only" in made.sh("echo > /etc/resolv.conf")[1]


def test_an_unreachable_guest_starts_no_container(node: ServingNode, acme: RingTenant) -> None:
    """Its agent is to come from its image, and this image has none."""
    with pod(node, acme, AGENT) as made:
        gating.submit_resolver(node.ring, uid(made), gating.RESOLV_CONF)
        words = "the pod's guest cannot be reached, so the Services of network default are not applied"
        wait_blocked(made, words)
        (message,) = wait_for("Event", lambda: events(made, "ContainerStartBlocked"), timeout_s=10)[:1]
        assert "Services of network default" in message


def test_the_node_condition_counts_pods_blocked_for_long(node: ServingNode, acme: RingTenant) -> None:
    def condition() -> dict[str, Any]:
        conditions = node.ring.super_cluster.api.get(f"/api/v1/nodes/{node.ring.node.name}")["status"][
            "conditions"
        ]
        return next((each for each in conditions if each["type"] == "VcnodePodStartBlocked"), {})

    wait_for("the condition", lambda: condition().get("status") == "False", timeout_s=60)
    with pod(node, acme):
        wait_for("it is true", lambda: condition().get("status") == "True", timeout_s=60)
        assert condition()["reason"] == "ResolverNotSynced"
        message = "pods blocked by the start gate for 10 s or longer: 1 (1 wait for their resolver)"
        assert condition()["message"] == message
    wait_for("it is false", lambda: condition().get("status") == "False", timeout_s=60)


def test_a_changed_network_readiness_unblocks(node: ServingNode, acme: RingTenant) -> None:
    with pod(node, acme, annotations={keys.NETWORK_READINESS: "false"}) as made:
        gating.submit_resolver(node.ring, uid(made), gating.RESOLV_CONF)
        wait_blocked(made, "network default is not ready for this pod")
        annotations = {"metadata": {"annotations": {keys.NETWORK_READINESS: "true"}}}
        node.ring.super_cluster.api.patch(made.path, annotations)
        took_s = wait_running(made)
        print_figure(f"from the annotation to running: {took_s:.2f} s")
        assert took_s < 8


def missing_by_pod(node: ServingNode) -> dict[str, str]:
    """The pods that started with unmet needs, and which."""
    lines = node.bridge.lines("container start allowed by policy warn although needs are missing")
    return {line["pod"]: line["missing"] for line in lines}


def test_warn_starts_and_logs_what_is_missing_off_starts(node: ServingNode, acme: RingTenant) -> None:
    warned = node.bridge.metric("vcnode_katabridge_warned_starts_total")
    with pod(node, acme, namespace="warned") as made, pod(node, acme, namespace="open") as unreported:
        for each in (made, unreported):
            wait_running(each)
            assert resolv_conf(each) != gating.RESOLV_CONF
        missing = missing_by_pod(node)
        assert NO_RESOLVER in missing[made.full_name]
        assert unreported.full_name not in missing
        assert node.bridge.metric("vcnode_katabridge_warned_starts_total") > warned


@pytest.mark.parametrize("namespace", ["warned", "open"])
def test_warn_and_off_mount_an_existing_resolver(node: ServingNode, acme: RingTenant, namespace: str) -> None:
    with pod(node, acme, namespace=namespace, is_bound=False) as made:
        gating.submit_resolver(node.ring, uid(made), gating.RESOLV_CONF)
        bind(made)
        wait_running(made)
        assert resolv_conf(made) == gating.RESOLV_CONF


def test_pods_without_tenant_and_host_pods_start(node: ServingNode, acme: RingTenant) -> None:
    value = services.pod_value(
        acme, f"g-{secrets.token_hex(3)}", node.ring.node.name, KATA, services.sleeper()
    )
    del value["metadata"]["annotations"]
    untenanted = services.TenantPod(node.ring, "default", value["metadata"]["name"])
    node.ring.super_cluster.api.create(untenanted.path.rpartition("/")[0], value)
    try:
        wait_running(untenanted)
    finally:
        node.ring.super_cluster.api.delete(untenanted.path)
    with pod(node, acme, spec={**services.sleeper(), "hostNetwork": True}) as made:
        wait_running(made)


def test_containers_with_their_own_resolv_conf_keep_it(node: ServingNode, acme: RingTenant) -> None:
    spec = services.sleeper()
    spec["containers"][0]["volumeMounts"] = [
        {"name": "own", "mountPath": "/etc/resolv.conf", "subPath": "resolv.conf"}
    ]
    spec["initContainers"] = [
        {**services.sleeper()["containers"][0], "name": "setup", "command": ["cat", "/etc/resolv.conf"]}
    ]
    spec["volumes"] = [{"name": "own", "configMap": {"name": "own-resolv-conf"}}]
    node.ring.super_cluster.api.create(
        f"/api/v1/namespaces/{acme.super_namespace('default')}/configmaps",
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "own-resolv-conf"},
            "data": {"resolv.conf": "nameserver 192.0.2.1\n"},
        },
        may_exist=True,
    )
    with pod(node, acme, spec=spec) as made:
        gating.submit_resolver(node.ring, uid(made), gating.RESOLV_CONF)
        wait_running(made)
        assert resolv_conf(made) == "nameserver 192.0.2.1\n"
        setup = node.ring.super_kubectl(
            "logs", made.name, "--namespace", made.namespace, "-c", "setup"
        ).check()
        assert setup.text == gating.RESOLV_CONF


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
def test_required_plugin_blocks_while_the_bridge_is_away(
    node: ServingNode, acme: RingTenant, end: signal.Signals
) -> None:
    """Under `enforce` the validator blocks pods that require the plugin; others start, and are reported."""
    before = len(ungated(node))
    with pod(node, acme) as waiting, pod(node, acme) as running:
        gating.submit_resolver(node.ring, uid(running), gating.RESOLV_CONF)
        wait_running(running)
        wait_blocked(waiting, NO_RESOLVER)
        node.bridge.stop(end)
        with pod(node, acme) as newcomer, pod(node, acme, annotations=NO_REQUIREMENT) as unguarded:
            wait_running(unguarded)
            wait_blocked(newcomer, gating.LACKS_PLUGIN)
            # It had blocked this pod before it went away.
            wait_blocked(waiting, gating.LACKS_PLUGIN)
            node.bridge.start()
            gating.submit_resolver(node.ring, uid(newcomer), gating.RESOLV_CONF)
            took_s = wait_running(newcomer)
            print_figure(f"{end.name}: from the bridge's return to running: {took_s:.2f} s")
            assert took_s < 8
            assert ungated(node)[before:] == [unguarded.full_name]
            wait_for("Event", lambda: events(unguarded, "ContainerStartedUngated"), timeout_s=10)
            assert waiting.status()["phase"] == "Pending"
            gating.submit_resolver(node.ring, uid(running), "nameserver 10.88.0.54\n")
            assert resolv_conf(running) == "nameserver 10.88.0.54\n"


@pytest.mark.parametrize(("namespace", "is_reported"), [("warned", True), ("open", False)])
def test_away_under_warn_or_off_ungated_starts_are_reported(
    node: ServingNode, acme: RingTenant, namespace: str, *, is_reported: bool
) -> None:
    """containerd blocks pods that require the plugin under any policy; others start."""
    before = len(ungated(node))
    node.bridge.stop(signal.SIGKILL)
    try:
        with (
            pod(node, acme, namespace=namespace) as requiring,
            pod(node, acme, namespace=namespace, annotations=NO_REQUIREMENT) as unguarded,
        ):
            wait_running(unguarded)
            wait_blocked(requiring, gating.LACKS_PLUGIN)
            node.bridge.start()
            took_s = wait_running(requiring)
            print_figure(f"{namespace}: from the bridge's return to running: {took_s:.2f} s")
            assert ungated(node)[before:] == ([unguarded.full_name] if is_reported else [])
            if is_reported:
                wait_for("Event", lambda: events(unguarded, "ContainerStartedUngated"), timeout_s=10)
    finally:
        if not node.bridge.status():
            node.bridge.start()


def test_pods_stay_blocked_while_the_bridge_hangs(node: ServingNode, acme: RingTenant) -> None:
    """After 2 s without a response the runtime blocks pods that require the plugin."""
    before = len(ungated(node))
    with pod(node, acme) as waiting:
        wait_blocked(waiting, NO_RESOLVER)
        assert node.bridge.process is not None
        node.bridge.process.send(signal.SIGSTOP)
        try:
            # CreateContainer of the one, then RunPodSandbox and CreateContainer of the other.
            node.ring.super_cluster.api.patch(waiting.path, {"metadata": {"annotations": {"try": "again"}}})
            wait_blocked(waiting, gating.LACKS_PLUGIN)
            with pod(node, acme, annotations=NO_REQUIREMENT) as unguarded:
                wait_running(unguarded)
                node.bridge.process.send(signal.SIGCONT)
                wait_for("it is found", lambda: unguarded.full_name in ungated(node)[before:], timeout_s=30)
                assert waiting.status()["phase"] == "Pending"
                gating.submit_resolver(node.ring, uid(waiting), gating.RESOLV_CONF)
                wait_running(waiting)
                assert ungated(node)[before:] == [unguarded.full_name]
        finally:
            node.bridge.process.send(signal.SIGCONT)


NO_REQUIREMENT = {next(iter(gating.REQUIRED)): "[]"}


def ungated(node: ServingNode) -> list[str]:
    """The pods with a container that started ungated."""
    return [line["pod"] for line in node.bridge.lines("container started ungated")]


def test_its_credentials_allow_nothing_else(node: ServingNode, acme: RingTenant) -> None:
    ours, others = gating.as_bridge(node.ring), gating.as_bridge(node.ring, "worker-2")
    with pod(node, acme, namespace="open", annotations={"a": "b"}) as made:
        wait_running(made)
        nudge = {"metadata": {"annotations": {keys.GATE_OPENED: "2026-01-01T00:00:00Z"}}}
        ours.patch(made.path, nudge)
        ours.patch(made.path, {"metadata": {"uid": uid(made)}})
        for api, patch, why in (
            (others, nudge, "may only patch pods of its own node"),
            (ours, {"metadata": {"annotations": {"a": "c"}}}, "may only change the annotation"),
            (ours, {"metadata": {"annotations": {"a": None}}}, "may only change the annotation"),
            (ours, {"metadata": {"annotations": {"c": "d"}}}, "may only change the annotation"),
            (ours, {"metadata": {"annotations": {keys.GATE_OPENED: "x" * 65}}}, "must be a time"),
            (ours, {"metadata": {"labels": {"app": "web"}}}, "may not change labels of pods"),
            (ours, {"metadata": {"finalizers": ["a.b/c"]}}, "may not change finalizers or owners"),
            (ours, {"spec": {"activeDeadlineSeconds": 1}}, "may not change the spec or status of pods"),
        ):
            with pytest.raises(RingError, match=why):
                api.patch(made.path, patch)
        refused = "forbidden"
        for path in (made.path, made.path.rpartition("/")[0], f"/api/v1/nodes/{node.ring.node.name}"):
            with pytest.raises(RingError, match=refused):
                ours.get(path)
        with pytest.raises(RingError, match=refused):
            ours.delete(made.path)
        for path in (f"{made.path}/status", f"/api/v1/nodes/{node.ring.node.name}"):
            with pytest.raises(RingError, match=refused):
                ours.patch(path, {"metadata": {"labels": {"a": "b"}}})
    status = f"/api/v1/nodes/{node.ring.node.name}/status"
    conditions = "application/strategic-merge-patch+json"
    ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    with pytest.raises(RingError, match="may only set the condition"):
        ours.patch(status, ready, kind=conditions)
    with pytest.raises(RingError, match="may only change the status of its own node"):
        others.patch(status, {"status": {}}, kind=conditions)
    moved = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}
    with pytest.raises(RingError, match="may not change addresses or ports"):
        ours.patch(status, moved)
    with pytest.raises(RingError, match="may not change labels or annotations of its node"):
        ours.patch(status, {"metadata": {"labels": {"a": "b"}}})
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"e-{secrets.token_hex(3)}", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "R",
        "source": {"component": "kubelet", "host": node.ring.node.name},
    }
    with pytest.raises(RingError, match="in its own name"):
        ours.create("/api/v1/namespaces/default/events", event)
