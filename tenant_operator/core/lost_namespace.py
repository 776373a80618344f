# SPDX-License-Identifier: Apache-2.0
"""The loss of a tenant's whole root namespace: its store, its keys, and all by which their loss would show.

What is missing is made again, so a control plane that has run would be made with an empty store and would be
Ready. A person has to say that the data is given up, and says it of one Namespace by its UID: the annotation
stays, and is no permission for the next loss.
"""

from tenancy import keys
from tenant_operator.core.conditions import ConditionType, Finding, fails
from tenant_operator.core.observed import Observed
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane

ENDING, LOST = "RootNamespaceEnding", "RootNamespaceLost"
REASONS = frozenset({ENDING, LOST})
"""What these say goes before what else a tenant waits for, also one that sleeps."""


def root_namespace_problem(observed: Observed, control_plane: ControlPlane) -> Finding | None:
    """Why nothing is made in the root namespace. None: there is no loss, or the data is given up."""
    live = observed.live("Namespace", "", control_plane.key)
    cluster = observed.virtual_cluster
    if live is None or cluster.spec.import_ is not None or not cluster.status.cluster_version:
        return None
    where, key = f"VirtualCluster {control_plane.namespace}/{control_plane.name}", control_plane.key
    if control_plane.has_own_store:
        lost = f"the store of {where} and its keys"
    else:
        lost = f"the keys of {where}, without which the Secrets in its datastore cannot be read"
    if live.is_ending:
        copied = f"kubectl get secrets,configmaps,persistentvolumeclaims -n {key} -o yaml"
        return _problem(
            ENDING,
            f"Namespace {key} is being deleted, and with it {lost}. That cannot be stopped. "
            f"{_volumes_kept(observed)}Copy what is there still: {copied}",
        )
    if not is_lost(observed, control_plane) or is_empty_allowed(observed, control_plane):
        return None
    give_up = f"{keys.GIVE_UP_DATA}={live.metadata.uid}"
    return _problem(
        LOST,
        f"Namespace {key} was deleted, and with it {lost}. Restore from a backup of the super cluster "
        "first its PersistentVolumeClaims, then Secrets, then ConfigMaps. Or give all data of the tenant up: "
        f"kubectl annotate virtualcluster {control_plane.name} -n {control_plane.namespace} --overwrite "
        f"{give_up}",
    )


def _volumes_kept(observed: Observed) -> str:
    """How the volumes outlive their claims, which stay while a pod uses them; empty if there are none."""
    claims = [
        live.value for ref, live in sorted(observed.objects.items()) if ref.kind == "PersistentVolumeClaim"
    ]
    volumes = " ".join(filter(None, (claim.get("spec", {}).get("volumeName", "") for claim in claims)))
    policy = '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'
    return (
        f"Keep its volumes first: kubectl patch persistentvolume {volumes} -p '{policy}'. " if volumes else ""
    )


def is_lost(observed: Observed, control_plane: ControlPlane) -> bool:
    """Whether a control plane that has run has nothing by which it could go on. Volumes alone are nothing: an
    empty one looks as a full one. Without them a store would be made with new ones."""
    cluster = observed.virtual_cluster
    if cluster.spec.import_ is not None or not cluster.status.cluster_version:
        return False
    parts = [("Deployment", names.API_SERVER), ("StatefulSet", names.ETCD)]
    if any(observed.live(kind, control_plane.key, name) is not None for kind, name in parts):
        return False
    if control_plane.release.datastore.type == "etcd":
        last = observed.live("ConfigMap", control_plane.key, names.ETCD_CONFIG)
    else:
        last = observed.live("Secret", control_plane.key, names.ENCRYPTION_CONFIG)
    has_volumes = any(ref.kind == "PersistentVolumeClaim" for ref in observed.objects)
    return last is None or (control_plane.has_own_store and not has_volumes)


def is_given_up(observed: Observed, control_plane: ControlPlane) -> bool:
    """Whether a person has given up what was there before this root namespace, its keys too."""
    live = observed.live("Namespace", "", control_plane.key)
    asked = observed.virtual_cluster.metadata.annotations.get(keys.GIVE_UP_DATA)
    return live is not None and asked == live.metadata.uid


def is_empty_allowed(observed: Observed, control_plane: ControlPlane) -> bool:
    """Whether what the lost namespace had is given up, and is to be made anew."""
    return is_given_up(observed, control_plane) and is_lost(observed, control_plane)


def _problem(reason: str, message: str) -> Finding:
    return fails(ConditionType.CONTROL_PLANE_AVAILABLE, reason, message)
