# SPDX-License-Identifier: Apache-2.0
"""Starts pods and says how long each took, from its creation to its container's start."""

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
# The kubelet looks at its containers once a second: not always at the same point of that.
_KUBELET_LOOKS_S = 1.0


@dataclass(frozen=True, slots=True)
class Starter:
    """Makes a tenant's pods, whose guests are reached by their network namespaces or by an agent."""

    ring: Ring
    tenant: RingTenant

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far of what starts pods without us, CNI's plugins in containerd's."""
        kubelet = self.ring.node.kubelet
        assert kubelet is not None
        pids = {
            "kubelet": kubelet.pid,
            "containerd": self.ring.node.containerd_pid,
            "kube-apiserver": self.ring.super_cluster.daemon.pid,
        }
        return {name: usage.cpu_s([pid]) for name, pid in pids.items()}

    def one_by_one(
        self, place: str, count: int, rng: random.Random, *, demands: bool, has_agent: bool
    ) -> list[float]:
        """Milliseconds of each."""
        took_ms = []
        for _ in range(count):
            # A pod is created when the kubelet has observed the end of the one before: always in the same
            # phase of the kubelet's period.
            time.sleep(rng.uniform(0, _KUBELET_LOOKS_S))  # else all samples would share that phase
            took_ms += self.at_once(place, 1, demands=demands, has_agent=has_agent)
        return took_ms

    def at_once(
        self, place: str, count: int, *, demands: bool = False, has_agent: bool = False
    ) -> list[float]:
        """Milliseconds of each; all are gone afterwards. `demands`: they demand the plugin. `has_agent`:
        our agent is their native sidecar, which has to be up before their own container starts.

        From when the first byte of the request is about to be sent, by this machine's clock, until
        the container was started, by the runtime's word and the same clock.
        """
        api = self.ring.super_cluster.api
        path = f"/api/v1/namespaces/{self.tenant.super_namespace(place)}/pods"
        handler, spec = KATA, services.sleeper()
        if has_agent:
            handler, spec = AGENT, guests.with_agent(self.ring, spec)
        began_s: dict[str, float] = {}
        for _ in range(count):
            name = f"p-{secrets.token_hex(4)}"
            value = services.pod_value(self.tenant, name, self.ring.node.name, handler, spec)
            value["metadata"]["annotations"][keys.NAMESPACE] = place
            if demands:
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
