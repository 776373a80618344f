# SPDX-License-Identifier: Apache-2.0
"""Services inside guests: real containerd with NRI, kubelet and apiserver, our two daemons between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kata_bridge.cri.messages import PodSandboxMetadata
from tenancy import keys
from tests.k8s.ring import cri, services
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.images import BUSYBOX
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.serving import (
    AGENT,
    CHANGED_S,
    CHANNELS,
    KATA,
    OWN_IP,
    STOCK,
    ServingNode,
    print_figure,
    serving,
)
from tests.k8s.ring.tenants import RingTenant


@pytest.fixture(scope="module")
def node(ring: Ring) -> Iterator[ServingNode]:
    with serving(ring) as made:
        yield made


@pytest.mark.parametrize("handler", [KATA, STOCK, AGENT])
def test_the_first_connection_of_a_pod(node: ServingNode, acme: RingTenant, handler: str) -> None:
    with node.guest(acme, handler, services.first_connection(node.of_acme.ip, OWN_IP)) as pod:
        pod.wait("Succeeded")
        log = pod.log()
    assert log.startswith("page of acme\npage of acme\n")
    (appeared,) = node.bridge.lines("guest added", pod=pod.full_name)
    (chosen,) = node.bridge.lines("channel selected", guest=appeared["guest"])
    assert chosen["channel"] == CHANNELS[handler]
    repeated = services.retransmitted(log)
    print_figure(
        f"{handler}: sandbox to rules {node.delivery_ms(appeared['guest']):.0f} ms, "
        f"{repeated} retransmissions"
    )
    # A sidecar's startup probe holds the others back. Without one the first container may be faster
    # than the rules, and is answered after a retransmission.
    assert handler != AGENT or repeated == 0
    sandbox = appeared["guest"]
    wait_for("guest gone", lambda: not node.bridge.guest(sandbox), timeout_s=CHANGED_S)


def test_the_first_connection_of_a_pod_without_a_kubelet(node: ServingNode, acme: RingTenant) -> None:
    """Straight through the CRI: the container is made as soon as there is a sandbox."""
    runtime = cri.CriClient(node.ring.node.cri_socket)
    node.ring.node.stop_kubelet()
    try:
        for number in range(5):
            run_by_cri(node, acme, runtime, f"by-cri-{number}")
    finally:
        node.ring.node.start_kubelet()
        runtime.close()


def run_by_cri(node: ServingNode, tenant: RingTenant, runtime: cri.CriClient, name: str) -> None:
    namespace = tenant.super_namespace("default")
    config = cri.PodSandboxConfig(
        PodSandboxMetadata(name, f"uid-{name}", namespace, 0),
        hostname=name,
        log_directory=str(node.ring.directory),
        annotations={keys.CLUSTER: tenant.key, keys.NAMESPACE: "default", keys.UID: name},
        linux=cri.LinuxPodSandboxConfig(cgroup_parent=f"/{node.ring.directory.name}"),
    )
    sandbox = runtime.run_pod(config, KATA)
    try:
        ended = runtime.run_container(
            sandbox, config, BUSYBOX, *services.first_connection_command(node.of_acme.ip)
        )
        assert (ended.exit_code, ended.text.splitlines()[0]) == (0, "page of acme")
        ahead_ms = 1000 * (ended.started_at_s - node.applied_at_s(sandbox))
        repeated = services.retransmitted(ended.text)
        print_figure(
            f"by CRI: sandbox to rules {node.delivery_ms(sandbox):.0f} ms, "
            f"{ahead_ms:.0f} ms before the container's start, {repeated} retransmissions"
        )
    finally:
        runtime.remove_pod(sandbox)


@pytest.mark.parametrize("handler", [KATA, STOCK, AGENT])
def test_running_pod_follows_service_changes(node: ServingNode, acme: RingTenant, handler: str) -> None:
    with node.guest(acme, handler) as pod:
        pod.wait("Running")
        node.wait_current(node.sandbox_of(pod).id)
        # Another tenant's Service is unknown here; the same address leads to another Service.
        assert "refused" in pod.fetch(node.of_acme_x.ip)
        assert pod.fetch(OWN_IP) == "page of acme\n"
        with services.service(node.ring, acme) as later:
            wait_for(
                "refused without endpoints", lambda: "refused" in pod.fetch(later.ip), timeout_s=CHANGED_S
            )
            later.lead_to(node.web_address(acme))
            wait_for("reached", lambda: pod.fetch(later.ip) == "page of acme\n", timeout_s=CHANGED_S)
            later.lead_to(node.web_address(acme, "only-acme"))
            wait_for(
                "the other endpoint", lambda: pod.fetch(later.ip) == "page of only\n", timeout_s=CHANGED_S
            )
        wait_for("deleted", lambda: "refused" in pod.fetch(later.ip), timeout_s=CHANGED_S)


def test_tenants_do_not_reach_each_others_services(
    node: ServingNode, acme: RingTenant, acme_x: RingTenant
) -> None:
    with (
        node.guest(acme_x, KATA, services.first_connection(OWN_IP)) as own,
        node.guest(acme_x, KATA) as sleeper,
    ):
        own.wait("Succeeded")
        assert own.log().startswith("page of acme-x\n")
        sleeper.wait("Running")
        assert sleeper.fetch(node.of_acme_x.ip) == "page of acme-x\n"
        assert "refused" in sleeper.fetch(node.of_acme.ip)
        rules = node.rules_in(node.sandbox_of(sleeper))
        assert node.web_address(acme_x) in rules
        assert node.of_acme.ip not in rules
        assert node.web_address(acme) not in rules


def test_pods_that_are_not_guests_are_left_alone(node: ServingNode, acme: RingTenant) -> None:
    """Pods of the default runtime, in the host's network, of the super cluster itself."""
    names = {guest["pod"] for guest in node.bridge.status()["guests"]}
    assert f"{acme.super_namespace('default')}/web" not in names
    assert "kube-system/node-agent" not in names
    assert node.bridge.status()["unmanaged"] >= 2
    assert "vcnode" not in services.rules_in(node.ring.node.namespace.path)
    with node.guest(acme, KATA, {**services.sleeper(), "hostNetwork": True}) as pod:
        pod.wait("Running")
        assert pod.full_name not in {each["pod"] for each in node.bridge.status()["guests"]}
        assert "vcnode" not in services.rules_in(node.ring.node.namespace.path)
