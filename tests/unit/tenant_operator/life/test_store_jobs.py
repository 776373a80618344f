# SPDX-License-Identifier: Apache-2.0
"""Jobs that save and restore etcd. Their commands were run by hand with etcd 3.7.3."""

from typing import Any

import msgspec
import pytest

from tenant_operator.life import store_jobs
from tenant_operator.life.store_jobs import SnapshotReport
from tenant_operator.model.cluster_version import DatastoreSpec
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Object
from tests.unit.tenant_operator import control_planes

KEY = control_planes.CONTROL_PLANE.key
UID = control_planes.CONTROL_PLANE.uid
FILES = "/etc/kubernetes/files"


def on_volume(**changes: Any) -> ControlPlane:
    images = msgspec.structs.replace(control_planes.IMAGES, backup="")
    release = msgspec.structs.replace(control_planes.RELEASE, images=images)
    return control_planes.control_plane(release=release, **changes)


def commands(job: Object) -> list[tuple[str, list[str]]]:
    """What its containers run, in order."""
    spec = job["spec"]["template"]["spec"]
    every = [*spec.get("initContainers", []), *spec["containers"]]
    return [(each["name"], each.get("command", []) + each.get("args", [])) for each in every]


def test_a_backup_is_saved_tried_and_reported() -> None:
    assert commands(store_jobs.backup_job(on_volume(), "nightly", "slot-2")) == [
        (
            "save",
            [
                "etcdctl",
                f"--endpoints=https://etcd-0.etcd.{KEY}.svc:2379",
                f"--cacert={FILES}/authorities/etcd-ca.crt",
                f"--cert={FILES}/apiserver-etcd-client/tls.crt",
                f"--key={FILES}/apiserver-etcd-client/tls.key",
                "snapshot",
                "save",
                "/backup/slot-2.db",
            ],
        ),
        ("trial", ["etcdutl", "snapshot", "restore", "/backup/slot-2.db", "--data-dir=/scratch/trial"]),
        ("verify", ["etcdutl", "snapshot", "status", "/backup/slot-2.db", "--write-out=json"]),
    ]


def test_a_program_keeps_a_verified_backup_elsewhere() -> None:
    job = store_jobs.backup_job(control_planes.CONTROL_PLANE, "nightly", "tenants/nightly")
    assert [name for name, _ in commands(job)] == ["save", "trial", "verify", "put"]
    assert commands(job)[-1] == ("put", ["put", "tenants/nightly", "/backup/snapshot.db"])
    (program,) = job["spec"]["template"]["spec"]["containers"]
    assert program["envFrom"] == [{"secretRef": {"name": "backup-credentials", "optional": True}}]
    assert job["metadata"]["annotations"] == {"vcnode.io/backup-location": "tenants/nightly"}
    volumes = job["spec"]["template"]["spec"]["volumes"]
    assert {"name": "backup", "emptyDir": {"sizeLimit": "512Mi"}} in volumes


def test_a_restore_is_of_one_member_and_raises_revisions() -> None:
    job = store_jobs.restore_job(on_volume(replicas=3), "etcd-1", "slot-0", 2)
    peers = ",".join(f"etcd-{n}=https://etcd-{n}.etcd.{KEY}.svc:2380" for n in range(3))
    assert commands(job) == [
        (
            "restore",
            [
                "etcdutl",
                "snapshot",
                "restore",
                "/backup/slot-0.db",
                "--data-dir=/var/lib/etcd/data",
                "--name=etcd-1",
                f"--initial-cluster={peers}",
                f"--initial-cluster-token={UID}",
                f"--initial-advertise-peer-urls=https://etcd-1.etcd.{KEY}.svc:2380",
                "--bump-revision=2000000000",
                "--mark-compacted",
            ],
        )
    ]
    spec = job["spec"]["template"]["spec"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-etcd-1"}} in spec["volumes"]
    assert job["spec"]["backoffLimit"] == 0


def test_a_restore_from_elsewhere_fetches_first() -> None:
    job = store_jobs.restore_job(control_planes.CONTROL_PLANE, "etcd-0", "tenants/nightly", 1)
    assert commands(job)[0] == ("get", ["get", "tenants/nightly", "/backup/snapshot.db"])


def test_pods_of_jobs_are_restricted_and_have_no_token() -> None:
    job = store_jobs.backup_job(on_volume(), "nightly", "slot-0")
    spec = job["spec"]["template"]["spec"]
    assert (spec["automountServiceAccountToken"], spec["restartPolicy"]) == (False, "Never")
    assert spec["securityContext"]["runAsNonRoot"] is True
    for each in (*spec["initContainers"], *spec["containers"]):
        assert each["securityContext"]["allowPrivilegeEscalation"] is False


def test_the_volume_has_room_for_all_slots_and_one_more() -> None:
    volume = store_jobs.backup_volume(on_volume(datastore=DatastoreSpec(storage_class_name="fast")))
    assert volume["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2560Mi"}},
        "storageClassName": "fast",
    }


def test_a_new_data_volume_is_as_the_stateful_sets() -> None:
    volume = store_jobs.data_volume(on_volume(), "etcd-0", "token")
    assert volume["metadata"]["name"] == "data-etcd-0"
    assert volume["metadata"]["annotations"] == {"vcnode.io/restore-token": "token"}
    assert volume["spec"]["resources"]["requests"]["storage"] == "2Gi"


@pytest.mark.parametrize("program", [False, True])
def test_pods_of_jobs_reach_the_store_alone(program: bool) -> None:
    control_plane = control_planes.CONTROL_PLANE if program else on_volume()
    rules = store_jobs.network_policy(control_plane, control_planes.INPUTS)["spec"]
    assert rules["ingress"] == []
    assert rules["podSelector"]["matchLabels"] == {"app.kubernetes.io/component": "backup"}
    assert len(rules["egress"]) == (3 if program else 2)


def test_object_keys_of_two_tenants_never_collide() -> None:
    """Nor those of one that is made again under the same name."""
    first = control_planes.CONTROL_PLANE
    again = control_planes.control_plane(uid="3c6ef372-0000-4000-8000-00000000000b")
    assert store_jobs.object_key(first, "nightly") == f"tenants/{first.uid}/nightly"
    assert store_jobs.object_key(again, "nightly", first.uid) == store_jobs.object_key(first, "nightly")
    assert store_jobs.object_key(again, "nightly") != store_jobs.object_key(first, "nightly")


def test_names_of_jobs_are_short_and_their_own() -> None:
    names = {store_jobs.backup_job_ref(on_volume(), each).name for each in ("a" * 63, "a.b", "a-b")}
    assert len(names) == 3
    assert all(len(each) <= 52 and "." not in each for each in names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"hash":3386060180,"revision":5,"totalKey":4,"totalSize":20480,"version":"3.7.0"}\n',
            SnapshotReport(5, 20480, 3386060180),
        ),
        ('{"hash":0,"revision":0,"totalKey":0,"totalSize":20480}', None),
        ("Error: expected sha256", None),
        ('{"revision":"5"}', None),
        ("", None),
        ("[" * 100_000, None),
        ("\ud800", None),
    ],
)
def test_reports_are_read_whatever_they_are(text: str, expected: SnapshotReport | None) -> None:
    assert store_jobs.report_of(text) == expected
