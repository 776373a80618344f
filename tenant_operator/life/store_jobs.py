# SPDX-License-Identifier: Apache-2.0
"""Jobs in a tenant's root namespace that save its etcd, and write a saved one into new volumes. Pure.

No image of etcd has a shell: each container runs one command, in the order of the pod's init containers. What
the image must have: `etcdctl` and `etcdutl`. `spec.images.backup` of a ClusterVersion, if it is named, keeps
snapshots elsewhere: it is run as `put KEY FILE` and `get KEY FILE`, with the values of the Secret
names.BACKUP_CREDENTIALS as its environment.
"""

import hashlib
import math

import msgspec

from tenancy import keys
from tenant_operator.model import names, network_rules, pods
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object, Ref

BACKUPS = "backups"
"""The claim of the volume with snapshots, where no program keeps them elsewhere."""
SLOTS = 4
"""So many snapshots are kept on the volume: the next one replaces the oldest."""
BACKUP_PREFIX = "backup-"
"""With it begin the names of the Jobs that make backups."""
RESTORE_PREFIX = "restore-"
"""With it begin the names of the Jobs that write backups into volumes."""
VERIFY = "verify"
"""The container whose log has the report on a snapshot."""
BUMP = 1_000_000_000
"""etcd's own advice (etcdutl snapshot restore): a thousand revisions a second for eleven days."""

_DIRECTORY = "/backup"
_CHECKED = "/scratch"
_CHECKED_MOUNT: Object = {"name": "scratch", "mountPath": _CHECKED}
_DATA = "/var/lib/etcd"
_PAIR = pods.key_pair(names.API_SERVER_ETCD_CLIENT)
_AUTHORITY = pods.authorities(names.ETCD_BUNDLE)
# A snapshot of 8 GiB, at 30 MB a second, three times.
_DEADLINE_S = 900
_GRACE_S = 10
_TRIES = 2
_KEPT_S = 3600
# A trial's database, its log, and a snapshot on its way.
_FILES_TO_QUOTA = 3


class JobState(msgspec.Struct, frozen=True):
    """What is observed of a Job. `location` is its annotation, `report` the log of the container VERIFY once
    it was read."""

    uid: str
    is_complete: bool = False
    is_failed: bool = False
    ended_s: float = 0.0
    location: str = ""
    report: str | None = None


class SnapshotReport(msgspec.Struct, frozen=True, rename="camel"):
    """What `etcdutl snapshot status -w json` prints."""

    revision: int
    total_size: int
    hash: int = 0


def report_of(text: str) -> SnapshotReport | None:
    """The report; None if it is none, or of an empty snapshot."""
    try:
        found = msgspec.json.decode(text.encode(), type=SnapshotReport)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return found if found.revision > 0 and found.total_size > 0 else None


def backup_job_ref(control_plane: ControlPlane, backup: str) -> Ref:
    """The Job that makes this backup."""
    return Ref("Job", control_plane.key, f"{BACKUP_PREFIX}{_digest(backup)}")


def restore_job_ref(control_plane: ControlPlane, member: str) -> Ref:
    """The Job that writes a backup into the volume of a member."""
    return Ref("Job", control_plane.key, f"{RESTORE_PREFIX}{member}")


def check_job_ref(control_plane: ControlPlane, restores: int) -> Ref:
    """The Job that reads a snapshot before anything is stopped for it."""
    return Ref("Job", control_plane.key, f"{RESTORE_PREFIX}check-{restores}")


def members(control_plane: ControlPlane) -> tuple[str, ...]:
    """The names of the members of the tenant's etcd."""
    return tuple(f"{names.ETCD}-{index}" for index in range(control_plane.size.etcd.replicas))


def claim_of(member: str) -> str:
    """The name of a member's claim, as its StatefulSet calls it."""
    return f"data-{member}"


def object_key(control_plane: ControlPlane, backup: str, uid: str = "") -> str:
    """Where a program keeps a snapshot of the VirtualCluster with this UID, without one of this tenant.

    One of the same name that is made later has other keys, and no pod of another namespace can name them.
    """
    return f"{control_plane.namespace}/{uid or control_plane.uid}/{backup}"


def slots() -> tuple[str, ...]:
    """Where snapshots are on the volume."""
    return tuple(f"slot-{number}" for number in range(SLOTS))


def is_on_volume(location: str) -> bool:
    """Whether a backup is on the volume, and not where a program keeps it."""
    return location in slots()


def backup_volume(control_plane: ControlPlane) -> Object:
    """The claim for all snapshots, and the one on its way."""
    size = pods.memory_quantity((SLOTS + 1) * control_plane.size.etcd.quota_bytes)
    return _claim(control_plane, BACKUPS, size, {})


def data_volume(control_plane: ControlPlane, member: str, token: str) -> Object:
    """A new claim of a member, which its StatefulSet takes over. `token` is of the restore."""
    size = control_plane.release.datastore.size
    return _claim(control_plane, claim_of(member), size, {keys.RESTORE_TOKEN: token})


def network_policy(control_plane: ControlPlane, inputs: ManifestInputs) -> Object:
    """These pods reach the tenant's etcd; with a program for backups also what is outside of the cluster."""
    rules = [
        network_rules.to_peers([network_rules.component(names.ETCD)], names.ETCD_PORT),
        network_rules.dns(inputs),
    ]
    if control_plane.release.images.backup:
        rules.append({"ports": [{"protocol": "TCP", "port": 443}]})
    return network_rules.policy(control_plane, names.BACKUP, pods.selector(names.BACKUP), egress=rules)


def backup_job(control_plane: ControlPlane, backup: str, location: str) -> Object:
    """Saves a snapshot, restores it on trial, and prints what is in it.

    `etcdctl` writes a part first and renames it: the slot has the former snapshot or the whole new one.
    """
    file = _file(control_plane, location)
    steps = [
        _container(control_plane, "save", ["etcdctl", *_connection(control_plane), "snapshot", "save", file]),
        _check_container(control_plane, file, [pods.FILES_MOUNT, _CHECKED_MOUNT]),
    ]
    verify = ["etcdutl", "snapshot", "status", file, "--write-out=json"]
    if control_plane.release.images.backup:
        steps.append(_container(control_plane, VERIFY, verify))
        last = _program(control_plane, "put", location)
    else:
        last = _container(control_plane, VERIFY, verify)
    ref = backup_job_ref(control_plane, backup)
    volumes = [_snapshots(control_plane), _check_volume(control_plane)]
    volumes.append(pods.files_volume((_PAIR, _AUTHORITY)))
    job = _job(control_plane, ref, location, [*steps, last], volumes)
    # If another backup is asked for meanwhile, no plan removes this one.
    job["spec"]["ttlSecondsAfterFinished"] = _KEPT_S
    return job


def check_job(control_plane: ControlPlane, location: str, restores: int) -> Object:
    """Restores a snapshot on trial, into no volume of a member. `restores` counts those of this tenant."""
    steps = [_program(control_plane, "get", location)] if control_plane.release.images.backup else []
    steps.append(_check_container(control_plane, _file(control_plane, location), [_CHECKED_MOUNT]))
    volumes = [_snapshots(control_plane), _check_volume(control_plane)]
    job = _job(control_plane, check_job_ref(control_plane, restores), location, steps, volumes)
    job["spec"]["ttlSecondsAfterFinished"] = _KEPT_S
    return job


def restore_job(control_plane: ControlPlane, member: str, location: str, restores: int) -> Object:
    """Writes a snapshot into the empty volume of a member.

    `restores` counts those of this tenant: each must end beyond the revisions that a client has seen, and the
    same snapshot may be restored twice.
    """
    file = _file(control_plane, location)
    where = f"{names.ETCD}.{control_plane.key}.svc"
    peers = {each: f"https://{each}.{where}:{names.ETCD_PEER_PORT}" for each in members(control_plane)}
    command = [
        *("etcdutl", "snapshot", "restore", file, f"--data-dir={_DATA}/data", f"--name={member}"),
        f"--initial-cluster={','.join(f'{name}={url}' for name, url in peers.items())}",
        f"--initial-cluster-token={control_plane.uid}",
        f"--initial-advertise-peer-urls={peers[member]}",
        f"--bump-revision={restores * BUMP}",
        "--mark-compacted",
    ]
    steps = [_program(control_plane, "get", location)] if control_plane.release.images.backup else []
    volumes = [
        _snapshots(control_plane),
        {"name": "data", "persistentVolumeClaim": {"claimName": claim_of(member)}},
    ]
    mounts = [{"name": "data", "mountPath": _DATA}]
    steps.append(_container(control_plane, "restore", command, mounts))
    ref = restore_job_ref(control_plane, member)
    # A second try would find a directory that is not empty: the volume is made anew instead.
    return _job(control_plane, ref, location, steps, volumes, tries=0)


def _file(control_plane: ControlPlane, location: str) -> str:
    return (
        f"{_DIRECTORY}/snapshot.db" if control_plane.release.images.backup else f"{_DIRECTORY}/{location}.db"
    )


def _connection(control_plane: ControlPlane) -> list[str]:
    # A snapshot is of one member: with several endpoints etcdctl refuses.
    host = f"{members(control_plane)[0]}.{names.ETCD}.{control_plane.key}.svc"
    return [
        f"--endpoints=https://{host}:{names.ETCD_PORT}",
        f"--cacert={_AUTHORITY.path(names.ETCD_BUNDLE)}",
        f"--cert={_PAIR.path('tls.crt')}",
        f"--key={_PAIR.path('tls.key')}",
    ]


def _container(
    control_plane: ControlPlane, name: str, command: list[str], mounts: list[Object] | None = None
) -> Object:
    release = control_plane.etcd_release or control_plane.release
    own = mounts or [pods.FILES_MOUNT, _CHECKED_MOUNT]
    every = [{"name": "backup", "mountPath": _DIRECTORY}, *own]
    return pods.container(name, release.images.etcd, control_plane.size.etcd, command=command, mounts=every)


def _check_container(control_plane: ControlPlane, file: str, mounts: list[Object]) -> Object:
    """Only a restore compares the snapshot with the digest at its end."""
    command = ["etcdutl", "snapshot", "restore", file, f"--data-dir={_CHECKED}/trial"]
    return _container(control_plane, "trial", command, mounts)


def _program(control_plane: ControlPlane, verb: str, location: str) -> Object:
    found = pods.container(
        verb,
        control_plane.release.images.backup,
        control_plane.size.etcd,
        args=[verb, location, _file(control_plane, location)],
        mounts=[{"name": "backup", "mountPath": _DIRECTORY}],
    )
    # A site whose storage knows its nodes needs none.
    return found | {"envFrom": [{"secretRef": {"name": names.BACKUP_CREDENTIALS, "optional": True}}]}


def _snapshots(control_plane: ControlPlane) -> Object:
    if control_plane.release.images.backup:
        return {"name": "backup", "emptyDir": {"sizeLimit": _limit(control_plane, 1)}}
    return {"name": "backup", "persistentVolumeClaim": {"claimName": BACKUPS}}


def _check_volume(control_plane: ControlPlane) -> Object:
    return {"name": "scratch", "emptyDir": {"sizeLimit": _limit(control_plane, _FILES_TO_QUOTA)}}


def _limit(control_plane: ControlPlane, factor: int) -> str:
    return pods.memory_quantity(math.ceil(factor * control_plane.size.etcd.quota_bytes))


def _claim(control_plane: ControlPlane, name: str, size: str, annotations: dict[str, str]) -> Object:
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if control_plane.release.datastore.storage_class_name is not None:
        spec["storageClassName"] = control_plane.release.datastore.storage_class_name
    metadata = pods.metadata(control_plane, name)
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _job(
    control_plane: ControlPlane,
    ref: Ref,
    location: str,
    steps: list[Object],
    volumes: list[Object],
    *,
    tries: int = _TRIES,
) -> Object:
    template = pods.pod_template(
        names.BACKUP,
        control_plane,
        containers=steps[-1:],
        volumes=volumes,
        grace_seconds=_GRACE_S,
        digest="",
    )
    template["spec"]["restartPolicy"] = "Never"
    if steps[:-1]:
        template["spec"]["initContainers"] = steps[:-1]
    metadata = pods.metadata(control_plane, ref.name, names.BACKUP)
    metadata["annotations"] = {keys.BACKUP_LOCATION: location}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"backoffLimit": tries, "activeDeadlineSeconds": _DEADLINE_S, "template": template},
    }


def _digest(name: str) -> str:
    """A backup's name may be longer than a Job's, and have dots."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]
