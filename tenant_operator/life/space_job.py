# SPDX-License-Identifier: Apache-2.0
"""The Jobs that make room in an etcd that is full. Pure.

etcd compacts itself every few minutes, but gives back no space of its file, and refuses writes until its
alarm is disarmed. A member's file is its own matter: one that does not answer holds up none of the others.
"""

from collections.abc import Sequence

from tenancy import keys
from tenant_operator.life import store_jobs
from tenant_operator.model import names, pods
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Object

COMPACT, FREE_SPACE, DISARM = "compact", "free-space", "disarm"
# A file of 8 GiB, at 50 MB a second. Requests wait as long as their member's file is written anew.
_MOST_S = 180
# etcdctl asks a member that is away again until its time is over.
_ANSWER_S = 5
_KEPT_S = 3600
# Which of its pods one is, as the controller of Jobs has it in the environment.
_INDEX = "JOB_COMPLETION_INDEX"
_GRACE_S = 10
_PAIR = pods.key_pair(names.API_SERVER_ETCD_CLIENT)
_AUTHORITY = pods.authorities(names.ETCD_BUNDLE)


def compact_job(control_plane: ControlPlane, state: str, revision: str) -> Object:
    """Forgets what was before the revision. etcd refuses to do that twice: then it fails, and no harm is
    done. `state` is kept as an annotation."""
    hosts, command = store_jobs.members(control_plane), ("compaction", revision, "--physical")
    return _job(control_plane, COMPACT, state, [_container(control_plane, "compact", hosts, command)])


def free_space_job(control_plane: ControlPlane, state: str) -> Object:
    """Writes the members' files anew, one after the other, as requests wait meanwhile. The pod of a member
    that does not answer fails, and the next one follows: `status.succeeded` counts those that have space."""
    member = (f"{names.ETCD}-$({_INDEX})",)
    job = _job(
        control_plane,
        FREE_SPACE,
        state,
        [
            _container(control_plane, "ask", member, ("endpoint", "status"), _ANSWER_S),
            _container(control_plane, "defrag", member, ("defrag",)),
        ],
    )
    count = control_plane.size.etcd.replicas
    del job["spec"]["backoffLimit"]
    job["spec"] |= {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": 1,
        "backoffLimitPerIndex": 0,
        "activeDeadlineSeconds": _MOST_S * count,
    }
    return job


def disarm_job(control_plane: ControlPlane, state: str) -> Object:
    """Has etcd take writes again, for which the majority of its members is enough.

    No alarm but that of the quota is ever raised: the checks that raise the other one are off.
    """
    hosts = store_jobs.members(control_plane)
    return _job(
        control_plane, DISARM, state, [_container(control_plane, "disarm", hosts, ("alarm", "disarm"))]
    )


def _job(control_plane: ControlPlane, name: str, state: str, containers: list[Object]) -> Object:
    template = pods.pod_template(
        names.BACKUP,
        control_plane,
        containers=containers[-1:],
        volumes=[pods.files_volume((_PAIR, _AUTHORITY))],
        grace_seconds=_GRACE_S,
        digest="",
    )
    template["spec"]["restartPolicy"] = "Never"
    if containers[:-1]:
        template["spec"]["initContainers"] = containers[:-1]
    metadata = pods.metadata(control_plane, name, names.BACKUP)
    metadata["annotations"] = {keys.STORE_STATE: state}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": _MOST_S,
            "ttlSecondsAfterFinished": _KEPT_S,
            "template": template,
        },
    }


def _container(
    control_plane: ControlPlane,
    name: str,
    members: Sequence[str],
    command: Sequence[str],
    timeout_s: int = _MOST_S,
) -> Object:
    release = control_plane.etcd_release or control_plane.release
    where = f"{names.ETCD}.{control_plane.key}.svc:{names.ETCD_PORT}"
    return pods.container(
        name,
        release.images.etcd,
        control_plane.size.etcd,
        command=[
            "etcdctl",
            f"--endpoints={','.join(f'https://{each}.{where}' for each in members)}",
            f"--cacert={_AUTHORITY.path(names.ETCD_BUNDLE)}",
            f"--cert={_PAIR.path('tls.crt')}",
            f"--key={_PAIR.path('tls.key')}",
            f"--command-timeout={timeout_s}s",
            *command,
        ],
        mounts=[pods.FILES_MOUNT],
    )
