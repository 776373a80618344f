# SPDX-License-Identifier: Apache-2.0
"""The NRI plugin and the CRI client on the real containerd, with pods of the real kubelet."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import pytest

from kata_bridge.cri import messages as cri_messages
from kata_bridge.cri.client import CriClient, CriError
from kata_bridge.cri.messages import PodSandboxState
from kata_bridge.nri.dispatch import Deny
from kata_bridge.nri.events import GATE, SANDBOXES
from kata_bridge.nri.messages import ContainerAdjustment, Mount
from tests.cri_contract import check_ready_sandbox
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.nri import WatchingPlugin
from tests.k8s.ring.pods import container
from tests.k8s.ring.processes import wait_for
from tests.nri_contract import check_life, check_registered, check_validated

T = TypeVar("T")

_PODS = "/api/v1/namespaces/default/pods"
_STARTED_S = 30.0
# The kubelet removes the sandbox of a pod that is gone with its next garbage collection.
_REMOVED_S = 150.0


@contextmanager
def pod(ring: Ring, spec: JsonObject | None = None) -> Iterator[str]:
    """A pod of the super cluster's own; yields its name. It need not start."""
    name = f"nri-{secrets.token_hex(3)}"
    ring.super_cluster.api.create(
        _PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"colour": "red"}, "annotations": {"note": "ä"}},
            "spec": {
                "nodeName": ring.node.name,
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    container("main", ["sh", "-c", "cat /etc/resolv.conf; exec sleep 100000"], env=_SECRET)
                ],
                **(spec or {}),
            },
        },
    )
    try:
        yield name
    finally:
        ring.super_cluster.api.delete(f"{_PODS}/{name}")


_SECRET = [{"name": "PASSWORD", "value": "do not read"}]


def status(ring: Ring, name: str) -> JsonObject:
    found: JsonObject = ring.super_cluster.api.get(f"{_PODS}/{name}")["status"]
    return found


def is_running(ring: Ring, name: str) -> bool:
    return bool(status(ring, name).get("phase") == "Running")


def waiting_message(ring: Ring, name: str) -> str:
    statuses = status(ring, name).get("containerStatuses", [])
    return str(statuses[0]["state"].get("waiting", {}).get("message", "")) if statuses else ""


def call_cri(ring: Ring, method: Callable[[CriClient], Awaitable[T]]) -> T:
    async def call() -> T:
        async with CriClient(ring.node.cri_socket) as cri:
            return await method(cri)

    return asyncio.run(call())


def test_nri_reports_the_life_of_a_pod(ring: Ring) -> None:
    with WatchingPlugin(ring.node.nri_socket, SANDBOXES) as watcher:
        wait_for("registered", lambda: watcher.plugin.is_connected, timeout_s=10)
        # Running pods, those of the ring, come with the registration.
        snapshot = check_registered(watcher.plugin, watcher)
        assert "node-agent" in {each.name for each in snapshot.pods}

        with pod(ring) as name:
            wait_for("running", lambda: is_running(ring, name), timeout_s=_STARTED_S)
            seen = watcher.pod("run", name)
            assert seen is not None
            metadata = ring.super_cluster.api.get(f"{_PODS}/{name}")["metadata"]
            assert (seen.namespace, seen.uid, seen.runtime_handler) == ("default", metadata["uid"], "")
            assert (seen.labels["colour"], seen.annotations["note"]) == ("red", "ä")
            assert seen.ips == (status(ring, name)["podIP"],)
            assert seen.network_namespace.startswith("/")
            assert seen.pid > 0
            # CRI reports the same.
            found, netns = call_cri(ring, lambda cri: check_ready_sandbox(cri, seen.id))
            assert found.metadata == cri_messages.PodSandboxMetadata(name, seen.uid, "default", 0)
            assert (found.ips, found.is_host_network) == (seen.ips, False)
            assert netns == seen.network_namespace
        wait_for("stopped", lambda: name in watcher.names("stop"), timeout_s=_STARTED_S)
        wait_for("removed", lambda: name in watcher.names("remove"), timeout_s=_REMOVED_S)
        check_life(watcher, name)
        assert call_cri(ring, lambda cri: cri.sandbox(seen.id)) is None


def test_nri_reports_handler_and_host_network(ring: Ring) -> None:
    ring.super_cluster.api.create(
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "kata"},
            "handler": "kata",
        },
        may_exist=True,
    )
    with WatchingPlugin(ring.node.nri_socket, SANDBOXES) as watcher:
        wait_for("registered", lambda: watcher.plugin.is_connected, timeout_s=10)
        _try_classes(ring, watcher)


def _try_classes(ring: Ring, watcher: WatchingPlugin) -> None:
    with (
        pod(ring, {"runtimeClassName": "kata"}) as kata,
        pod(ring, {"hostNetwork": True}) as host,
    ):
        for name in (kata, host):
            wait_for(f"{name} running", partial(is_running, ring, name), timeout_s=_STARTED_S)
        listed = call_cri(ring, lambda cri: cri.sandboxes())
        ready = [each for each in listed if each.state is PodSandboxState.SANDBOX_READY]
        handlers = {each.metadata.name: (each.id, each.runtime_handler) for each in ready if each.metadata}
        assert (handlers[kata][1], handlers[host][1]) == ("kata", "")
        of_class, of_host = watcher.pod("run", kata), watcher.pod("run", host)
        assert of_class is not None
        assert of_host is not None
        assert (of_class.runtime_handler, of_host.runtime_handler) == ("kata", "")
        assert (of_host.network_namespace, of_host.ips) == ("", ())
        found = call_cri(ring, lambda cri: cri.sandbox(handlers[host][0]))
        assert found is not None
        assert found.status is not None
        assert found.status.is_host_network


def test_the_plugin_survives_a_containerd_restart(ring: Ring) -> None:
    with WatchingPlugin(ring.node.nri_socket, SANDBOXES) as watcher, pod(ring) as before:
        wait_for("running", lambda: is_running(ring, before), timeout_s=_STARTED_S)
        known = len(watcher.snapshots)
        ring.node.stop_containerd()
        try:
            wait_for("connection lost", lambda: not watcher.plugin.is_connected, timeout_s=5)
            with pytest.raises(CriError) as away:
                call_cri(ring, lambda cri: cri.sandboxes())
            assert away.value.is_away
        finally:
            ring.node.start_containerd()
        # The runtime sends its pods after the registration.
        wait_for("synchronized again", lambda: len(watcher.snapshots) > known, timeout_s=15)
        assert watcher.plugin.is_connected
        assert before in {each.name for each in watcher.snapshots[-1].pods}
        with pod(ring) as after:
            wait_for("running after it", lambda: is_running(ring, after), timeout_s=60)
            assert watcher.names("run").count(after) == 1


def test_containers_can_be_denied_adjusted_and_validated(ring: Ring) -> None:
    resolv_conf = ring.directory / "nri-resolv.conf"
    resolv_conf.write_text("nameserver 192.0.2.53\n")
    options = ("rbind", "ro", "rprivate")
    dns = ContainerAdjustment(mounts=(Mount("/etc/resolv.conf", "bind", str(resolv_conf), options),))
    with WatchingPlugin(ring.node.nri_socket, SANDBOXES | GATE) as watcher:
        wait_for("registered", lambda: watcher.plugin.is_connected, timeout_s=10)
        assert watcher.plugin.missing == frozenset()
        watcher.creation = Deny("Services are not ready: from a test")
        with pod(ring) as name:
            message = wait_for("blocked", lambda: waiting_message(ring, name), timeout_s=_STARTED_S)
            assert "Services are not ready: from a test" in message
            # Ready now; but another plugin's change is refused.
            watcher.creation, watcher.validation = dns, Deny("its resolv.conf is not ours: from a test")
            nudge(ring, name)
            wait_for(
                "refused in the end",
                lambda: "its resolv.conf is not ours: from a test" in waiting_message(ring, name),
                timeout_s=_STARTED_S,
            )
            watcher.validation = None
            nudge(ring, name)
            wait_for("running", lambda: is_running(ring, name), timeout_s=_STARTED_S)
            assert status(ring, name)["containerStatuses"][0]["restartCount"] == 0
            log = ring.super_kubectl("logs", name, "--namespace", "default").check()
            assert log.text == "nameserver 192.0.2.53\n"
            check_validated(watcher, dns)
            # One sandbox through all of it, and its containers' environment was never read.
            assert watcher.names("run").count(name) == 1
            assert "do not read" not in repr(watcher.created)


def nudge(ring: Ring, name: str) -> None:
    """Have the kubelet try again at once."""
    value = {"metadata": {"annotations": {"nudge": secrets.token_hex(4)}}}
    ring.super_cluster.api.patch(f"{_PODS}/{name}", value)
