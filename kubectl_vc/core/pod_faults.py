# SPDX-License-Identifier: Apache-2.0
"""Why a pod of a control plane does not serve."""

from collections.abc import Iterator, Sequence

from kubectl_vc.core.diagnosis import Diagnosis
from kubectl_vc.core.view import Object, at, number, objects, text

_IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_CONFIG_REASONS = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_CRASHED = "CrashLoopBackOff"
_OUT_OF_MEMORY = "OOMKilled"
_MANY_RESTARTS = 5


def pod_diagnoses(pods: Sequence[Object], namespace: str) -> Iterator[Diagnosis]:
    """At most one for each container, and one for each pod that has no node."""
    for pod in pods:
        name = text(pod, "metadata", "name")
        for condition in objects(pod, "status", "conditions"):
            if text(condition, "type") == "PodScheduled" and text(condition, "status") == "False":
                yield Diagnosis(
                    f"Pod {namespace}/{name}",
                    f"no node takes it: {text(condition, 'message')}",
                    "add nodes or free resources, or choose a smaller class of the tenant",
                )
        for kind in ("initContainerStatuses", "containerStatuses"):
            for status in objects(pod, "status", kind):
                yield from _of_container(status, namespace, name)


def _of_container(status: Object, namespace: str, pod: str) -> Iterator[Diagnosis]:
    container = text(status, "name")
    subject = f"Pod {namespace}/{pod}, container {container}"
    waiting = text(status, "state", "waiting", "reason")
    message = text(status, "state", "waiting", "message")
    log = f"read its log: kubectl -n {namespace} logs {pod} -c {container}"
    if waiting in _IMAGE_REASONS:
        image = text(status, "image")
        yield Diagnosis(
            subject,
            f"{waiting}: image {image}: {message}",
            "correct spec.images of the ClusterVersion, or the registry",
        )
    elif waiting in _CONFIG_REASONS:
        yield Diagnosis(
            subject,
            f"{waiting}: {message}",
            "vc-operator writes what is missing: see its log, and the Secrets there",
        )
    elif _was_out_of_memory(status):
        yield Diagnosis(
            subject,
            f"it needed more memory than its limit, {number(status, 'restartCount')} restarts",
            "choose a larger class of the tenant, or raise it in the ClusterVersion",
        )
    elif waiting == _CRASHED:
        code = _exit_code(status)
        yield Diagnosis(subject, f"it ends again and again, exit code {code}", f"{log} --previous")
    elif at(status, "ready") is False and text(status, "state", "running", "startedAt"):
        restarts = number(status, "restartCount")
        yield Diagnosis(subject, f"it runs and its probe fails, {restarts} restarts", log)
    elif number(status, "restartCount") > _MANY_RESTARTS:
        yield Diagnosis(
            subject, f"it has been restarted {number(status, 'restartCount')} times", f"{log} --previous"
        )


def _was_out_of_memory(status: Object) -> bool:
    return _OUT_OF_MEMORY in (
        text(status, "state", "terminated", "reason"),
        text(status, "lastState", "terminated", "reason"),
    )


def _exit_code(status: Object) -> int:
    """Of a container that waits, in its last state."""
    return number(status, "lastState", "terminated", "exitCode")
