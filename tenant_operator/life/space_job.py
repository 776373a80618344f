# SPDX-License-Identifier: Apache-2.0
"""The Jobs that make room in an etcd that is full. Pure.

etcd compacts itself every few minutes, but gives back no space of its file, and refuses writes until its
alarm is disarmed.
"""

from tenancy import keys
from tenant_operator.life import store_jobs
from tenant_operator.model import names, pods
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Object

COMPACT, FREE_SPACE = "compact", "free-space"
# A file of 8 GiB, at 50 MB a second. Requests wait as long as their member's file is written anew.
_MOST_S = 180
_KEPT_S = 3600
_GRACE_S = 10
_PAIR = pods.key_pair(names.API_SERVER_ETCD_CLIENT)
_AUTHORITY = pods.authorities(names.ETCD_BUNDLE)


def compact_job(control_plane: ControlPlane, state: str, revision: str) -> Object:
    """Forgets what was before the revision. etcd refuses to do that twice: then it fails, and no harm is
    done. `state` is kept as an annotation."""
    last = _container(control_plane, "compact", "compaction", revision, "--physical")
    return _job(control_plane, COMPACT, state, [], last)


def free_space_job(control_plane: ControlPlane, state: str) -> Object:
    """Writes each member's file anew, and has etcd take writes again.

    No alarm but that of the quota is ever raised: the checks that raise the other one are off.
    """
    first = _container(control_plane, "defrag", "defrag")
    return _job(
        control_plane, FREE_SPACE, state, [first], _container(control_plane, "disarm", "alarm", "disarm")
    )


def _job(control_plane: ControlPlane, name: str, state: str, first: list[Object], last: Object) -> Object:
    template = pods.pod_template(
        names.BACKUP,
        control_plane,
        containers=[last],
        volumes=[pods.files_volume((_PAIR, _AUTHORITY))],
        grace_seconds=_GRACE_S,
        digest="",
    )
    template["spec"]["restartPolicy"] = "Never"
    if first:
        template["spec"]["initContainers"] = first
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


def _container(control_plane: ControlPlane, name: str, *command: str) -> Object:
    release = control_plane.etcd_release or control_plane.release
    hosts = (f"{each}.{names.ETCD}.{control_plane.key}.svc" for each in store_jobs.members(control_plane))
    return pods.container(
        name,
        release.images.etcd,
        control_plane.size.etcd,
        command=[
            "etcdctl",
            f"--endpoints={','.join(f'https://{each}:{names.ETCD_PORT}' for each in hosts)}",
            f"--cacert={_AUTHORITY.path(names.ETCD_BUNDLE)}",
            f"--cert={_PAIR.path('tls.crt')}",
            f"--key={_PAIR.path('tls.key')}",
            f"--command-timeout={_MOST_S}s",
            *command,
        ],
        mounts=[pods.FILES_MOUNT],
    )
