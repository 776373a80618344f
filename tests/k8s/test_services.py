# SPDX-License-Identifier: Apache-2.0
"""Services inside guests: real containerd with NRI, kubelet and apiserver, our two daemons between."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kata_bridge.core.sandboxes import Seen
from kata_bridge.cri.client import CriClient
from kata_bridge.cri.messages import PodSandboxMetadata
from kata_bridge.discovery_cri import CriLister
from tenancy import keys
from tests.k8s.ring import cri, daemons, guests, services
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import NodeDaemon
from tests.k8s.ring.images import BUSYBOX
from tests.k8s.ring.node import KATA_HANDLERS
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.services import Service
from tests.k8s.ring.tenants import Tenant

KATA, AGENT, STOCK = KATA_HANDLERS
_WAYS = {KATA: "netns", AGENT: "agent", STOCK: "shim"}
# Both tenants' own control planes gave it to a Service.
_OWN_IP = "10.32.0.7"
_CHANGED_S = 10.0


@dataclass(frozen=True, slots=True)
class Node:
    """The ring with both daemons on its node, and a Service of each tenant with the same own IP."""

    ring: Ring
    bridge: NodeDaemon
    proxy: NodeDaemon
    of_acme: Service
    of_acme_x: Service


@pytest.fixture(scope="module")
def node(ring: Ring, acme: Tenant, acme_x: Tenant) -> Iterator[Node]:
    services.create_runtime_classes(ring, *KATA_HANDLERS)
    bridge = daemons.kata_bridge(ring, sys.executable)
    proxy = daemons.kubeproxy_ext(ring, sys.executable)
    with ExitStack() as stack:
        stack.callback(bridge.stop)
        stack.callback(proxy.stop)
        bridge.start()
        proxy.start()
        stack.enter_context(guests.StockKata(ring, STOCK))
        of_acme, of_acme_x = (
            stack.enter_context(services.service(ring, tenant, web_address(ring, tenant), own_ip=_OWN_IP))
            for tenant in (acme, acme_x)
        )
        yield Node(ring, bridge, proxy, of_acme, of_acme_x)


def web_address(ring: Ring, tenant: Tenant) -> str:
    """Where the tenant's pod `web` says whose it is."""
    return str(ring.syncer.super_pod(tenant, "default", "web")["status"]["podIP"])


@contextmanager
def guest(node: Node, tenant: Tenant, handler: str, spec: dict[str, Any]) -> Iterator[services.Pod]:
    if handler == AGENT:
        spec = guests.with_agent(node.ring, spec)
    with services.pod(node.ring, tenant, handler, spec) as made:
        yield made


@pytest.mark.parametrize("handler", [KATA, STOCK, AGENT])
def test_the_first_connection_of_a_pod(node: Node, acme: Tenant, handler: str) -> None:
    with guest(node, acme, handler, services.first_act(node.of_acme.ip, _OWN_IP)) as pod:
        pod.wait("Succeeded")
        log = pod.log()
    assert log.startswith("page of acme\npage of acme\n")
    (appeared,) = node.bridge.lines("guest appeared", pod=pod.full_name)
    (chosen,) = node.bridge.lines("channel chosen", guest=appeared["guest"])
    assert chosen["channel"] == _WAYS[handler]
    repeated = services.retransmitted(log)
    say(
        f"{handler}: sandbox to rules {way_ms(node, appeared['guest']):.0f} ms, {repeated} packets sent twice"
    )
    # A sidecar's startup probe holds the others back. Without one the first container may be faster
    # than the rules, and is answered when TCP asks again.
    assert handler != AGENT or repeated == 0
    sandbox = appeared["guest"]
    wait_for("guest gone", lambda: not node.bridge.guest(sandbox), timeout_s=_CHANGED_S)


def test_the_first_connection_of_a_pod_without_a_kubelet(node: Node, acme: Tenant) -> None:
    """Straight through the CRI: the container is made as soon as there is a sandbox."""
    runtime = cri.Cri(node.ring.node.cri_socket)
    node.ring.node.stop_kubelet()
    try:
        for number in range(5):
            run_by_cri(node, acme, runtime, f"by-cri-{number}")
    finally:
        node.ring.node.start_kubelet()
        runtime.close()


def run_by_cri(node: Node, tenant: Tenant, runtime: cri.Cri, name: str) -> None:
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
        ended = runtime.run_container(sandbox, config, BUSYBOX, *services.first_command(node.of_acme.ip))
        assert (ended.exit_code, ended.text.splitlines()[0]) == (0, "page of acme")
        ahead_ms = 1000 * (ended.started_at_s - moments(node.bridge, sandbox)[1])
        repeated = services.retransmitted(ended.text)
        say(
            f"by CRI: sandbox to rules {way_ms(node, sandbox):.0f} ms, "
            f"{ahead_ms:.0f} ms before the container's start, {repeated} packets sent twice"
        )
    finally:
        runtime.remove_pod(sandbox)


@pytest.mark.parametrize("handler", [KATA, STOCK, AGENT])
def test_what_changes_while_a_pod_runs(node: Node, acme: Tenant, acme_x: Tenant, handler: str) -> None:
    ring = node.ring
    with guest(node, acme, handler, services.sleeper()) as pod:
        pod.wait("Running")
        # Another tenant's Service is nobody's here, and the same own address leads elsewhere.
        assert "refused" in pod.fetch(node.of_acme_x.ip)
        assert pod.fetch(_OWN_IP) == "page of acme\n"
        with services.service(ring, acme) as later:
            wait_for(
                "refused without endpoints", lambda: "refused" in pod.fetch(later.ip), timeout_s=_CHANGED_S
            )
            later.lead_to(web_address(ring, acme))
            wait_for("reached", lambda: pod.fetch(later.ip) == "page of acme\n", timeout_s=_CHANGED_S)
            later.lead_to(str(ring.syncer.super_pod(acme, "default", "only-acme")["status"]["podIP"]))
            wait_for(
                "the other endpoint", lambda: pod.fetch(later.ip) == "page of only\n", timeout_s=_CHANGED_S
            )
        wait_for("deleted", lambda: "refused" in pod.fetch(later.ip), timeout_s=_CHANGED_S)


def test_tenants_do_not_reach_each_others_services(node: Node, acme: Tenant, acme_x: Tenant) -> None:
    with (
        guest(node, acme_x, KATA, services.first_act(_OWN_IP)) as own,
        guest(node, acme_x, KATA, services.sleeper()) as sleeper,
    ):
        own.wait("Succeeded")
        assert own.log().startswith("page of acme-x\n")
        sleeper.wait("Running")
        assert sleeper.fetch(node.of_acme_x.ip) == "page of acme-x\n"
        assert "refused" in sleeper.fetch(node.of_acme.ip)
        known = daemons.guest_of(node.bridge, sleeper.full_name)
        rules = rules_of(node, known["id"])
        assert web_address(node.ring, acme_x) in rules
        assert node.of_acme.ip not in rules
        assert web_address(node.ring, acme) not in rules


def test_who_is_no_guest_is_left_alone(node: Node, acme: Tenant) -> None:
    """Pods of the default runtime, in the host's network, of the super cluster itself."""
    names = {guest["pod"] for guest in node.bridge.status()["guests"]}
    assert f"{acme.super_namespace('default')}/web" not in names
    assert "kube-system/node-agent" not in names
    assert node.bridge.status()["leftAlone"] >= 2
    assert "vcnode" not in services.rules_in(node.ring.node.namespace.path)
    with guest(node, acme, KATA, {**services.sleeper(), "hostNetwork": True}) as pod:
        pod.wait("Running")
        assert pod.full_name not in {each["pod"] for each in node.bridge.status()["guests"]}
        assert "vcnode" not in services.rules_in(node.ring.node.namespace.path)


def rules_of(node: Node, sandbox: str) -> str:
    """What a guest's own packet filter prints."""
    found = next(each for each in sandboxes(node.ring) if each.id == sandbox)
    return services.rules_in(node.ring.node.outside(found.netns))


def sandboxes(ring: Ring) -> list[Seen]:
    """The sandboxes that the runtime tells of."""

    async def ask() -> list[Seen]:
        async with CriClient(ring.node.cri_socket) as client:
            return list(await CriLister(client).sandboxes(lambda _: False))

    return asyncio.run(ask())


def moments(bridge: NodeDaemon, sandbox: str) -> tuple[float, float]:
    """When a guest was heard of, and when it had its first ruleset; since 1970."""
    (appeared,) = bridge.lines("guest appeared", guest=sandbox)
    applied = bridge.lines("ruleset applied", guest=sandbox)
    return seconds(appeared), seconds(applied[0])


def way_ms(node: Node, sandbox: str) -> float:
    """From the runtime's word of a sandbox to its rules."""
    appeared_s, applied_s = moments(node.bridge, sandbox)
    return 1000 * (applied_s - appeared_s)


def seconds(line: dict[str, Any]) -> float:
    return dt.datetime.fromisoformat(line["time"]).timestamp()


def say(figure: str) -> None:
    """A figure for a person: pytest shows it with `-rP` or `-s`."""
    sys.stdout.write(f"{figure}\n")
