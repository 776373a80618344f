# SPDX-License-Identifier: Apache-2.0
"""The rules probe for nodes whose runtime has no NRI, as it is shipped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.k8s.ring import daemons, services
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import NodeDaemon, ProxySettings
from tests.k8s.ring.images import BUSYBOX
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.serving import AGENT, KATA, OWN_IP, web_address
from tests.k8s.ring.tenants import RingTenant

_SHIPPED = Path(__file__).resolve().parents[2] / "packaging" / "canary" / "init-container.yaml"
_WAITS_S = 20.0


@pytest.fixture(scope="module")
def bridge(ring: Ring, acme: RingTenant) -> Iterator[NodeDaemon]:
    """kata-bridge that finds sandboxes by lists alone; it is not started yet."""
    services.create_runtime_classes(ring, KATA, AGENT)
    made = daemons.kata_bridge(ring, sys.executable, has_nri=False)
    proxy = daemons.kubeproxy_ext(ring, sys.executable)
    daemons.configure_proxy(ring, proxy, ProxySettings(canary="192.0.2.61"))
    with ExitStack() as stack:
        stack.enter_context(ring.node.containerd_without_nri())
        stack.callback(made.stop)
        stack.callback(proxy.stop)
        proxy.start(is_ready=False)
        stack.enter_context(services.service(ring, acme, web_address(ring, acme), own_ip=OWN_IP))
        yield made


def with_rules_probe(spec: JsonObject) -> JsonObject:
    """The pod with what is shipped as its first init container, from an image that the ring has."""
    (container,) = yaml.safe_load(_SHIPPED.read_text())["initContainers"]
    return {**spec, "initContainers": [{**container, "image": BUSYBOX, "imagePullPolicy": "Never"}]}


def printed_by(pod: services.TenantPod) -> str:
    """The rules probe's log."""
    return pod.ring.super_kubectl("logs", pod.name, "--namespace", pod.namespace, "-c", "vcnode-canary").text


def test_pod_without_the_rules_probe_starts_too_early(
    ring: Ring, acme: RingTenant, bridge: NodeDaemon
) -> None:
    """While kata-bridge is away the pod is not blocked; the next test relies on that."""
    with services.pod(ring, acme, KATA, services.first_connection(OWN_IP)) as pod:
        pod.wait("Succeeded")
        assert "page of acme" not in pod.log()


def test_pod_waits_for_rules_and_its_first_connection_works(
    ring: Ring, acme: RingTenant, bridge: NodeDaemon
) -> None:
    with services.pod(ring, acme, KATA, with_rules_probe(services.first_connection(OWN_IP))) as pod:
        wait_for(
            "the reason in its log", lambda: "waiting: the Services" in printed_by(pod), timeout_s=_WAITS_S
        )
        (init,) = pod.status()["initContainerStatuses"]
        assert "running" in init["state"]
        (main,) = pod.status()["containerStatuses"]
        assert main["state"]["waiting"]["reason"] == "PodInitializing"
        bridge.start()
        pod.wait("Succeeded")
        assert printed_by(pod).splitlines()[-1] == "the Services of this pod are applied in its guest"
        log = pod.log()
        assert log.startswith("page of acme\n")
        assert services.retransmitted(log) == 0


def test_unreachable_guest_waits_while_others_start(ring: Ring, acme: RingTenant, bridge: NodeDaemon) -> None:
    """Its agent is to come from its image, and this image has none. A neighbour's rules are no help."""
    if bridge.process is None:
        bridge.start()
    with (
        services.pod(ring, acme, AGENT, with_rules_probe(services.first_connection(OWN_IP))) as shut,
        services.pod(ring, acme, KATA, with_rules_probe(services.first_connection(OWN_IP))) as other,
    ):
        wait_for(
            "the reason in its log", lambda: "waiting: the Services" in printed_by(shut), timeout_s=_WAITS_S
        )
        other.wait("Succeeded")
        wait_for("the guest is known", lambda: is_unreachable(bridge, shut), timeout_s=_WAITS_S)
        (init,) = shut.status()["initContainerStatuses"]
        assert "running" in init["state"]
        assert printed_by(shut).splitlines() == [
            "waiting: the Services of this pod are not applied in its guest"
        ]


def is_unreachable(bridge: NodeDaemon, pod: services.TenantPod) -> bool:
    guests = bridge.status().get("guests", [])
    return any((each["pod"], each["state"]) == (pod.full_name, "unreachable") for each in guests)
