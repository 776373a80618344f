# SPDX-License-Identifier: Apache-2.0
"""Starts pods and measures how long each took, from its creation to its container's start."""

import random
import secrets
import time
from dataclasses import dataclass

from tenancy import keys
from tests.bench import usage
from tests.k8s.ring import cri, gating, guests, services
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.serving import AGENT, KATA
from tests.k8s.ring.tenants import RingTenant

_STARTED_S = 120.0
# The kubelet syncs its containers once a second.
_KUBELET_PERIOD_S = 1.0


@dataclass(frozen=True, slots=True)
class Starter:
    """Makes a tenant's pods, whose guests are reached by their network namespaces or by an agent."""

    ring: Ring
    tenant: RingTenant

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far of the programs that start pods; CNI's plugins count as containerd's."""
        kubelet = self.ring.node.kubelet
        assert kubelet is not None
        pids = {
            "kubelet": kubelet.pid,
            "containerd": self.ring.node.containerd_pid,
            "kube-apiserver": self.ring.super_cluster.daemon.pid,
        }
        return {name: usage.cpu_s([pid]) for name, pid in pids.items()}

    def one_by_one(
        self, namespace: str, count: int, rng: random.Random, *, requires_plugin: bool, has_agent: bool
    ) -> list[float]:
        """Milliseconds of each."""
        took_ms = []
        for _ in range(count):
            # A pod is created when the kubelet has observed the end of the one before: always in the same
            # phase of the kubelet's period.
            time.sleep(rng.uniform(0, _KUBELET_PERIOD_S))  # otherwise all samples would share that phase
            took_ms += self.at_once(namespace, 1, requires_plugin=requires_plugin, has_agent=has_agent)
        return took_ms

    def at_once(
        self, namespace: str, count: int, *, requires_plugin: bool = False, has_agent: bool = False
    ) -> list[float]:
        """Milliseconds of each; all are deleted afterwards. `has_agent`: our agent is their native sidecar,
        which must be up before their own container starts.

        From just before the request, by this machine's clock, until the container was started, as the
        runtime reports by the same clock.
        """
        api = self.ring.super_cluster.api
        path = f"/api/v1/namespaces/{self.tenant.super_namespace(namespace)}/pods"
        handler, spec = KATA, services.sleeper()
        if has_agent:
            handler, spec = AGENT, guests.with_agent(self.ring, spec)
        began_s: dict[str, float] = {}
        for _ in range(count):
            name = f"p-{secrets.token_hex(4)}"
            value = services.pod_value(self.tenant, name, self.ring.node.name, handler, spec)
            value["metadata"]["annotations"][keys.NAMESPACE] = namespace
            if requires_plugin:
                value["metadata"]["annotations"] |= gating.REQUIRED
            began_s[name] = time.time()
            api.create(path, value)

        def running() -> list[JsonObject] | None:
            items: list[JsonObject] = api.get(path)["items"]
            return items if all(each["status"].get("phase") == "Running" for each in items) else None

        items = wait_for("pods run", running, timeout_s=_STARTED_S)
        runtime = cri.CriClient(self.ring.node.cri_socket)
        took_ms = []
        for item in items:
            (container,) = item["status"]["containerStatuses"]
            started_s = runtime.started_at_s(container["containerID"].partition("://")[2])
            took_ms.append(1e3 * (started_s - began_s[item["metadata"]["name"]]))
        runtime.close()
        for name in began_s:
            api.delete(f"{path}/{name}")
        wait_for("pods are gone", lambda: not api.get(path)["items"], timeout_s=_STARTED_S)
        return took_ms
