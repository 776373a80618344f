# SPDX-License-Identifier: Apache-2.0
"""Jobs that make room in etcd. Their commands were run with etcd 3.7.3."""

from tenant_operator.life import space_job
from tests.unit.tenant_operator import control_planes
from tests.unit.tenant_operator.life.test_store_jobs import commands

KEY = control_planes.CONTROL_PLANE.key
FILES = "/etc/kubernetes/files"


def _etcdctl(replicas: int, *command: str) -> list[str]:
    hosts = ",".join(f"https://etcd-{each}.etcd.{KEY}.svc:2379" for each in range(replicas))
    return [
        "etcdctl",
        f"--endpoints={hosts}",
        f"--cacert={FILES}/authorities/etcd-ca.crt",
        f"--cert={FILES}/apiserver-etcd-client/tls.crt",
        f"--key={FILES}/apiserver-etcd-client/tls.key",
        "--command-timeout=180s",
        *command,
    ]


def test_old_revisions_go_first() -> None:
    job = space_job.compact_job(control_planes.control_plane(), "392.64.1", "392")
    assert commands(job) == [("compact", _etcdctl(1, "compaction", "392", "--physical"))]
    assert job["metadata"]["annotations"] == {"vcnode.io/store-state": "392.64.1"}
    assert job["spec"]["backoffLimit"] == 0


def test_each_member_is_written_anew_before_it_takes_writes() -> None:
    job = space_job.free_space_job(control_planes.control_plane(replicas=3), "392.64.3")
    assert commands(job) == [
        ("defrag", _etcdctl(3, "defrag")),
        ("disarm", _etcdctl(3, "alarm", "disarm")),
    ]
