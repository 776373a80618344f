# SPDX-License-Identifier: Apache-2.0
"""What a plan is made from: one VirtualCluster, its objects, and what probes found."""

from collections.abc import Iterable, Mapping

import msgspec

from tenant_operator.core.live import LiveObject
from tenant_operator.defaults.desired import ManifestFile
from tenant_operator.model import names
from tenant_operator.model.cluster_version import ClusterVersion
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import VirtualCluster


class Failed(msgspec.Struct, frozen=True):
    """A step that the API server refused, or that could not be carried out: the next plan says so.

    `tries`: so many in a row have failed, of this step or another.
    """

    ref: Ref
    reason: str
    message: str
    tries: int = 1


class ProbeResult(msgspec.Struct, frozen=True):
    """What a probe found at `at` (seconds since 1970). `detail` is a sentence for people.

    `failures`: so many times in a row it found the same, and that is not well. `repeats`: so many times in a
    row it found the same, whatever that is. `is_slow`: it took long to find it.
    """

    is_ok: bool
    at: float
    detail: str = ""
    facts: Mapping[str, str] = {}
    failures: int = 0
    repeats: int = 0
    is_slow: bool = False


def is_own(virtual_cluster: VirtualCluster, ref: Ref) -> bool:
    """Whether an object with the label of its UID is one that the operator makes: in its root namespace, or
    its administrator's kubeconfig.

    Others can label objects of theirs, too: one that may not be removed would end each plan.
    """
    meta = virtual_cluster.metadata
    if (ref.namespace or ref.name) == virtual_cluster.key:
        return True
    return ref == ("Secret", meta.namespace, names.tenant_kubeconfig(meta.name))


class Observed(msgspec.Struct, frozen=True):
    """`objects` are its own (`is_own`), by kind, namespace and name.

    `source_objects` are those of the VirtualCluster whose backup it begins with.
    `defaults` are the ConfigMaps of the operator's namespace, as manifests, by their names.
    `overlapping_clusters` are those whose cluster keys overlap its own, it too.
    `node_addresses` are those at which node ports are reached.
    `may_roll`: whether it has one of the places of those that get other pods, or one is free; `may_start`:
    the same of control planes that start.
    """

    virtual_cluster: VirtualCluster
    cluster_versions: Mapping[str, ClusterVersion]
    objects: Mapping[Ref, LiveObject]
    now_s: float
    probes: Mapping[str, ProbeResult] = {}
    failures: tuple[Failed, ...] = ()
    defaults: Mapping[str, tuple[ManifestFile, ...]] = {}
    overlapping_clusters: Iterable[VirtualCluster] = ()
    source_objects: Mapping[Ref, LiveObject] = {}
    node_addresses: tuple[str, ...] = ()
    may_roll: bool = True
    may_start: bool = True

    def live(self, kind: str, namespace: str, name: str) -> LiveObject | None:
        """One of its objects."""
        return self.objects.get(Ref(kind, namespace, name))
