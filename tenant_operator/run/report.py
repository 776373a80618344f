# SPDX-License-Identifier: Apache-2.0
"""What the daemon reports: readiness, and `/status` with what each VirtualCluster waits for."""

from collections.abc import Callable

from daemonkit.kube.freshness import Freshness, freshness_of
from daemonkit.remedies import Hop, HopKind
from daemonkit.status.server import Readiness
from tenant_operator.edge.caches import SuperClusterCaches
from tenant_operator.run.reconciler import Reconciler

# VirtualClusters in `/status`.
MAX_SHOWN = 200
SUPER_CLUSTER = Hop(
    HopKind.API_SERVER, "super cluster", "superCluster.kubeconfigFile", "packaging/operator/rbac.yaml"
)


class OperatorReport:
    """Reads the state of the parts. `leadership` is a line about who leads, empty without replicas."""

    def __init__(
        self,
        caches: SuperClusterCaches,
        reconciler: Reconciler,
        leadership: Callable[[], str],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._caches = caches
        self._reconciler = reconciler
        self._leadership = leadership
        self._clock = clock

    def readiness(self) -> Readiness:
        """Ready when all kinds are known. A VirtualCluster that waits or fails holds up no other."""
        unsynced = [each.name for each in self._caches.reflectors if not each.synced.is_set()]
        found = Freshness(None)
        if unsynced or self._caches.failure is not None:
            found = freshness_of(self._caches.reflectors, self._clock(), SUPER_CLUSTER)
        if unsynced:
            kinds = ", ".join(unsynced[:5])
            reason = f"{kinds} not synced{'' if found.fault is None else f': {found.fault.text}'}"
            return Readiness(
                is_ready=False,
                lines=(f"super cluster: not synced: {kinds}{found.because}",),
                reason=reason,
            )
        line = "super cluster: ok" if found.fault is None else found.line("super cluster")
        leadership = self._leadership()
        return Readiness(is_ready=True, lines=(line, *([f"leader: {leadership}"] if leadership else [])))

    def _rolling(self) -> dict[str, object]:
        """Who gets other pods now, with the time of its place, and how many wait."""
        rolling, states = self._reconciler.rolling, self._reconciler.states
        shown = sorted(rolling.shown().items(), key=lambda each: (each[1], each[0]))[:MAX_SHOWN]
        named = {"/".join(states[uid].key): since for uid, since in shown if uid in states}
        return {"since": named, "waiting": rolling.waiting}

    def status(self) -> dict[str, object]:
        """The document of `/status`."""
        clusters = self._caches.clusters.objects
        waiting: dict[str, object] = {}
        for state in list(self._reconciler.states.values())[:MAX_SHOWN]:
            name = "/".join(state.key)
            waiting[name] = {
                "waitsFor": state.waits_for,
                "failures": [f"{each.ref}: {each.message}" for each in state.failures],
                "probes": {key: each.detail for key, each in state.probes.items()},
            }
        return {
            "virtualClusters": {"known": len(clusters), "shown": waiting},
            "rolling": self._rolling(),
            "leader": self._leadership(),
            "clusterVersions": sorted(name for _, name in self._caches.versions.objects),
        }
