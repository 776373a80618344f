# SPDX-License-Identifier: Apache-2.0
"""Daemons stop and return while Services change: nothing is lost, nothing is applied twice."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.k8s.ring import daemons, services
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import NodeDaemon, ProxySettings
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.services import RingService, TenantPod, unused_address
from tests.k8s.ring.serving import AGENT, CHANGED_S, KATA, STOCK, ServingNode, print_figure, serving
from tests.k8s.ring.tenants import RingTenant

ENDS = pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])


@pytest.fixture(scope="module")
def node(ring: Ring) -> Iterator[ServingNode]:
    with serving(ring) as made:
        yield made


class Churn:
    """Changes a Service's endpoints all the time, never twice to the same, while `with` lasts."""

    def __init__(self, service: RingService) -> None:
        self.changes = 0
        self._service = service
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="churn")

    def __enter__(self) -> Churn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def wait(self, more: int) -> None:
        """Wait until there were so many more changes."""
        goal = self.changes + more
        wait_for("changes", lambda: self.changes >= goal, timeout_s=30)

    def _run(self) -> None:
        while not self._is_over.wait(0.1):
            self._service.lead_to(unused_address(), unused_address())
            self.changes += 1


@contextmanager
def running(node: ServingNode, tenant: RingTenant, *handlers: str) -> Iterator[list[TenantPod]]:
    """Pods that run and have their rules."""
    with ExitStack() as stack:
        pods = [stack.enter_context(node.guest(tenant, handler)) for handler in handlers]
        for pod in pods:
            pod.wait("Running")
        node.wait_current(*(node.sandbox_of(pod).id for pod in pods))
        yield pods


def check_nothing_lost(
    node: ServingNode, tenant: RingTenant, service: RingService, pods: list[TenantPod]
) -> None:
    """The last change is in every guest, and no guest was given any ruleset twice."""
    service.lead_to(node.web_address(tenant))
    for pod in pods:
        wait_for("the last change", lambda: pod.fetch(service.ip) == "page of acme\n", timeout_s=30)  # noqa: B023 - used at once
    sandboxes = [node.sandbox_of(pod).id for pod in pods]
    node.wait_current(*sandboxes)
    for sandbox in sandboxes:
        counts = node.applied(sandbox)
        assert counts, "it was given rules"
        assert set(counts.values()) == {1}, counts
        generations = [line["generation"] for line in node.bridge.lines("ruleset applied", guest=sandbox)]
        assert generations == sorted(generations)
    assert node.bridge.metric("vcnode_katabridge_drift_total") == 0


@ENDS
def test_the_bridge_ends_in_the_middle_of_changes(
    node: ServingNode, acme: RingTenant, end: signal.Signals
) -> None:
    with (
        services.service(node.ring, acme, unused_address()) as service,
        running(node, acme, KATA, STOCK, AGENT) as pods,
        node.guest(acme, KATA) as later,
        ExitStack() as stack,
    ):
        with Churn(service) as churn:
            churn.wait(5)
            node.bridge.stop(end)
            by_agent = stack.enter_context(node.guest(acme, AGENT))
            newcomer = stack.enter_context(node.guest(acme, KATA))
            newcomer.wait("Running")
            churn.wait(5)
            node.bridge.start()
            churn.wait(5)
        # One whose sidecar was created without its certificate is started anew with it.
        by_agent.wait("Running")
        check_nothing_lost(node, acme, service, [*pods, later, newcomer, by_agent])
        print_figure(f"{churn.changes} changes")


@ENDS
def test_a_restart_of_the_bridge_touches_no_rule(
    node: ServingNode, acme: RingTenant, end: signal.Signals
) -> None:
    with running(node, acme, KATA, STOCK, AGENT) as pods:
        sandboxes = [node.sandbox_of(pod) for pod in pods]
        before = [node.rules_in(sandbox) for sandbox in sandboxes]
        began_s = time.monotonic()
        node.bridge.stop(end)
        stopped_s = time.monotonic()
        node.bridge.start()
        print_figure(f"bridge: stop {stopped_s - began_s:.2f} s, start {time.monotonic() - stopped_s:.2f} s")
        node.wait_current(*(sandbox.id for sandbox in sandboxes))
        # By now each guest's rules were read, and a drift check has run.
        checked = node.bridge.lines("channel selected")
        assert {line["guest"] for line in checked} >= {sandbox.id for sandbox in sandboxes}
        time.sleep(1.5)
        assert [node.rules_in(sandbox) for sandbox in sandboxes] == before
        assert [pod.fetch(node.of_acme.ip) for pod in pods] == ["page of acme\n"] * 3


@ENDS
def test_kubeproxy_ext_ends_in_the_middle_of_changes(
    node: ServingNode, acme: RingTenant, end: signal.Signals
) -> None:
    with (
        services.service(node.ring, acme, unused_address()) as service,
        running(node, acme, KATA, STOCK, AGENT) as pods,
        ExitStack() as stack,
    ):
        with Churn(service) as churn:
            churn.wait(5)
            node.proxy.stop(end)
            newcomer = stack.enter_context(node.guest(acme, KATA))
            newcomer.wait("Running")
            churn.wait(5)
            assert node.bridge.guest(node.sandbox_of(newcomer).id)["state"] == "noRuleset"
            node.proxy.start()
            churn.wait(5)
        check_nothing_lost(node, acme, service, [*pods, newcomer])


@ENDS
def test_a_restart_of_kubeproxy_ext_touches_no_rule(
    node: ServingNode, acme: RingTenant, end: signal.Signals
) -> None:
    with running(node, acme, KATA, STOCK, AGENT) as pods:
        sandboxes = [node.sandbox_of(pod) for pod in pods]
        before = [node.rules_in(sandbox) for sandbox in sandboxes]
        node.proxy.stop(end)
        began_s = time.monotonic()
        node.proxy.start()
        print_figure(f"kubeproxy-ext: start {time.monotonic() - began_s:.2f} s")
        node.wait_current(*(sandbox.id for sandbox in sandboxes))
        assert [node.rules_in(sandbox) for sandbox in sandboxes] == before


def test_containerd_is_restarted_while_services_change(node: ServingNode, acme: RingTenant) -> None:
    ring = node.ring
    registered = len(node.bridge.lines("registered as an NRI plugin"))
    with (
        services.service(ring, acme, unused_address()) as service,
        running(node, acme, KATA, STOCK, AGENT) as pods,
    ):
        sandboxes = [node.sandbox_of(pod) for pod in pods]
        with Churn(service) as churn:
            ring.node.stop_containerd()
            try:
                churn.wait(5)
                # Changes reach the guests without the runtime.
                reached = unused_address()
                with services.service(ring, acme, reached):
                    for sandbox in sandboxes:
                        wait_for("the change", lambda: reached in node.rules_in(sandbox), timeout_s=CHANGED_S)  # noqa: B023 - used at once
                assert {node.bridge.guest(each.id)["state"] for each in sandboxes} <= {"current", "behind"}
            finally:
                ring.node.start_containerd()
            wait_for(
                "registered again",
                lambda: len(node.bridge.lines("registered as an NRI plugin")) > registered,
                timeout_s=15,
            )
            churn.wait(5)
        with node.guest(acme, KATA) as after:
            after.wait("Running")
            check_nothing_lost(node, acme, service, [*pods, after])
        assert {line["guest"] for line in node.bridge.lines("guest removed")}.isdisjoint(
            s.id for s in sandboxes
        )


def test_second_kata_bridge_exits_and_changes_nothing(node: ServingNode, acme: RingTenant) -> None:
    with running(node, acme, KATA) as pods:
        before = node.rules_in(node.sandbox_of(pods[0]))
        second = node.bridge.launch()
        wait_for("it ended", lambda: not second.is_running(), timeout_s=10)
        assert second.exit_code == 1
        (line, *_) = node.bridge.lines("cannot start")
        assert "another kata-bridge runs on this node" in line["reason"]
        assert node.rules_in(node.sandbox_of(pods[0])) == before
        # NRI would fail every container if two plugins of one name responded.
        with node.guest(acme, KATA, services.first_connection(node.of_acme.ip)) as pod:
            pod.wait("Succeeded")
            assert pod.log().startswith("page of acme\n")


@pytest.mark.parametrize("policy", ["apply", "wait"])
def test_start_without_the_apiserver(node: ServingNode, acme: RingTenant, policy: str) -> None:
    ring, sources = node.ring, node.proxy
    with running(node, acme, KATA, AGENT) as pods:
        sandboxes = [node.sandbox_of(pod) for pod in pods]
        before = [node.rules_in(sandbox) for sandbox in sandboxes]
        sources.stop()
        with node.guest(acme, KATA) as newcomer:
            # The kubelet still starts it; it gets no rules.
            newcomer.wait("Running")
            new = node.sandbox_of(newcomer)
            ring.super_cluster.daemon.stop()
            try:
                daemons.configure_proxy(ring, sources, ProxySettings(last_known=policy))
                sources.start(is_ready=False)
                check_without_apiserver(node, sources, policy, new.id)
                assert [node.rules_in(sandbox) for sandbox in sandboxes] == before
            finally:
                daemons.restart_super_apiserver(ring)
            wait_for("synced", lambda: sources.page("/readyz")[0] == 200, timeout_s=60)
            node.wait_current(new.id, *(sandbox.id for sandbox in sandboxes))
            assert newcomer.fetch(node.of_acme.ip) == "page of acme\n"
            assert [node.rules_in(sandbox) for sandbox in sandboxes] == before
            assert set(node.applied(new.id).values()) == {1}


def check_without_apiserver(node: ServingNode, proxy: NodeDaemon, policy: str, new: str) -> None:
    sync_state = {"apply": "lastKnown", "wait": "notSynced"}[policy]
    (tenant,) = [
        each for each in node.ring.tenants if each.super_namespace("default") == node.of_acme.namespace
    ]

    def guest_status() -> dict[str, object]:
        found: dict[str, object] = proxy.status().get("tenants", {}).get(tenant.key, {})
        return found

    wait_for(
        f"its Services are {sync_state}", lambda: guest_status().get("syncState") == sync_state, timeout_s=15
    )
    if policy == "apply":
        node.wait_current(new)
        age = guest_status()["lastKnownAgeSeconds"]
        assert isinstance(age, float)
        assert 0 <= age < 120
        return
    log = "tenant not synced, its new guests wait"
    wait_for(log, lambda: proxy.lines(log, tenant=tenant.key), timeout_s=15)
    assert node.bridge.guest(new)["state"] == "noRuleset"
