# SPDX-License-Identifier: Apache-2.0
"""Jobs that make room in etcd. Their commands were run with etcd 3.7.3."""

from tenant_operator.life import space_job
from tests.unit.tenant_operator import control_planes
from tests.unit.tenant_operator.life.test_store_jobs import commands

KEY = control_planes.CONTROL_PLANE.key
FILES = "/etc/kubernetes/files"


def _etcdctl(members: list[str], *command: str, timeout_s: int = 180) -> list[str]:
    hosts = ",".join(f"https://etcd-{each}.etcd.{KEY}.svc:2379" for each in members)
    return [
        "etcdctl",
        f"--endpoints={hosts}",
        f"--cacert={FILES}/authorities/etcd-ca.crt",
        f"--cert={FILES}/apiserver-etcd-client/tls.crt",
        f"--key={FILES}/apiserver-etcd-client/tls.key",
        f"--command-timeout={timeout_s}s",
        *command,
    ]


def test_old_revisions_go_first() -> None:
    job = space_job.compact_job(control_planes.control_plane(), "392.64.1", "392")
    assert commands(job) == [("compact", _etcdctl(["0"], "compaction", "392", "--physical"))]
    assert job["metadata"]["annotations"] == {"vcnode.io/store-state": "392.64.1"}
    assert job["spec"]["backoffLimit"] == 0


def test_members_are_written_anew_in_turn() -> None:
    """etcdctl asks a member that is away until its time is over: one that does not answer at once is left."""
    job = space_job.free_space_job(control_planes.control_plane(replicas=3), "392.64.3")
    index = ["$(JOB_COMPLETION_INDEX)"]
    assert commands(job) == [
        ("ask", _etcdctl(index, "endpoint", "status", timeout_s=5)),
        ("defrag", _etcdctl(index, "defrag")),
    ]
    spec = {key: value for key, value in job["spec"].items() if key != "template"}
    assert spec == {
        "completionMode": "Indexed",
        "completions": 3,
        "parallelism": 1,
        "backoffLimitPerIndex": 0,
        "activeDeadlineSeconds": 540,
        "ttlSecondsAfterFinished": 3600,
    }


def test_any_member_disarms() -> None:
    job = space_job.disarm_job(control_planes.control_plane(replicas=3), "uid")
    assert commands(job) == [("disarm", _etcdctl(["0", "1", "2"], "alarm", "disarm"))]
