# SPDX-License-Identifier: Apache-2.0
"""Pods of a control plane: what all of them have in common.

They run under the Pod Security level `restricted`: no root, no capability, no file system to write to. They
get no service account token: nothing in a control plane talks to the super cluster's API server.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tenant_operator.model import names
from tenant_operator.model.cluster_version import ComponentSize
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Object

GROUP_READABLE = 0o440

FILES_DIRECTORY = "/etc/kubernetes/files"
"""Where each Secret and ConfigMap of a pod is a directory of its name."""

# Units of Kubernetes' quantities that memory is written in, and of Go's memory limits.
_UNITS = {f"{prefix}i": 1 << 10 * (place + 1) for place, prefix in enumerate("KMGTPE")}
_UNITS |= {prefix: 10 ** (3 * (place + 1)) for place, prefix in enumerate("kMGTPE")}
RUNTIME_SHARE = 0.8
"""Of a container's limit, what the Go runtime may take; the rest of the process has the remainder."""


class Files(NamedTuple):
    """Some keys of a Secret or ConfigMap, as files of a pod."""

    kind: str
    name: str
    keys: Sequence[str]

    def path(self, key: str) -> str:
        """Where a container has this key."""
        return f"{FILES_DIRECTORY}/{self.name}/{key}"


def key_pair(secret: str) -> Files:
    """The certificate and key that a Secret of type kubernetes.io/tls has."""
    return Files("Secret", secret, ("tls.crt", "tls.key"))


def authorities(*keys: str) -> Files:
    """Bundles of certificates of authorities, which a pod trusts."""
    return Files("ConfigMap", names.AUTHORITIES, keys)


def files_volume(files: Iterable[Files]) -> Object:
    """One volume of all files: the kubelet replaces them together."""
    return {
        "name": "files",
        "projected": {
            "defaultMode": GROUP_READABLE,
            "sources": [
                {
                    "secret" if each.kind == "Secret" else "configMap": {
                        "name": each.name,
                        "items": [{"key": key, "path": f"{each.name}/{key}"} for key in each.keys],
                    }
                }
                for each in files
            ],
        },
    }


FILES_MOUNT: Object = {"name": "files", "mountPath": FILES_DIRECTORY, "readOnly": True}


def metadata(control_plane: ControlPlane, name: str, component: str = "") -> Object:
    """Of an object in the root namespace."""
    labels = control_plane.labels | ({names.COMPONENT: component} if component else {})
    return {"namespace": control_plane.key, "name": name, "labels": labels}


def selector(component: str) -> Object:
    """Selects the pods of a component in their namespace."""
    return {"matchLabels": {names.COMPONENT: component}}


def flags(values: Mapping[str, str]) -> list[str]:
    """As a command line, in order of names: an order of its own would restart the pods."""
    return [f"--{name}={value}" for name, value in sorted(values.items())]


def container(
    name: str,
    image: str,
    size: ComponentSize,
    *,
    command: Sequence[str] = (),
    args: Sequence[str] = (),
    env: Sequence[Object] = (),
    mounts: Sequence[Object] = (),
    ports: Mapping[str, int] | None = None,
    probes: Mapping[str, Object] | None = None,
) -> Object:
    """A container that Pod Security's level `restricted` admits."""
    found: Object = {
        "name": name,
        "image": image,
        "resources": resources(size),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    more = {
        "command": list(command),
        "args": list(args),
        "env": [*go_environment(size), *env],
        "volumeMounts": list(mounts),
        "ports": [{"name": key, "containerPort": port} for key, port in (ports or {}).items()],
    }
    return found | {key: value for key, value in more.items() if value} | dict(probes or {})


def resources(size: ComponentSize) -> Object:
    """Requests are the class's figures. Memory may burst to twice as much, CPU to all that the node has."""
    request = memory_bytes(size.memory)
    needed = int(memory_bytes(size.go_memory_limit) / RUNTIME_SHARE) if size.go_memory_limit else 0
    limit = memory_quantity(max(2 * request, needed))
    return {"requests": {"cpu": size.cpu, "memory": size.memory}, "limits": {"memory": limit}}


def go_environment(size: ComponentSize) -> list[Object]:
    """How the Go runtime works. Its garbage collection is the only large lever on the memory of a control
    plane.

    Its threads are twice the processors that the class requests, or one: a program of a small class that
    starts, or collects garbage, takes one of the node's processors and not all of them. A class that leaves
    Go as it is has none of this, and neither has what is not written in Go.
    """
    found = []
    if size.go_gc:
        found.append({"name": "GOGC", "value": str(size.go_gc)})
    if size.go_memory_limit:
        found.append({"name": "GOMEMLIMIT", "value": str(memory_bytes(size.go_memory_limit))})
    if found:
        found.append({"name": "GOMAXPROCS", "value": str(max(1, math.ceil(2 * _cpu(size.cpu))))})
    return found


def _cpu(quantity: str) -> float:
    """Of `100m`, or of `1.5`."""
    return int(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


def memory_bytes(quantity: str) -> int:
    """Of `140Mi`, as Kubernetes writes it, of `140MiB`, as Go does, or of a plain number."""
    text = quantity.removesuffix("B")
    for unit, factor in _UNITS.items():
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * factor)
    return int(text)


def memory_quantity(size: int) -> str:
    """A quantity of memory, rounded up, in the form in which the API server keeps it."""
    whole = -(-size // _UNITS["Mi"])
    return f"{whole // 1024}Gi" if whole % 1024 == 0 else f"{whole}Mi"


def _security(control_plane: ControlPlane) -> Object:
    """fsGroup lets it read Secrets, whose files belong to root."""
    user = control_plane.user_id
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        # Else the kubelet walks a whole volume at each start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def pod_template(
    component: str,
    control_plane: ControlPlane,
    *,
    containers: Sequence[Object],
    volumes: Sequence[Object],
    grace_seconds: int,
    digest: str,
    sidecars: Sequence[Object] = (),
) -> Object:
    """`digest`: of the files that no program of this pod reads again: a change of them restarts it."""
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "serviceAccountName": names.SERVICE_ACCOUNT,
        "terminationGracePeriodSeconds": grace_seconds,
        "securityContext": _security(control_plane),
        "affinity": {"podAntiAffinity": _spread(component)},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": selector(component),
            }
        ],
        "containers": list(containers),
        "volumes": list(volumes),
    }
    if sidecars:
        spec["initContainers"] = [{"restartPolicy": "Always"} | each for each in sidecars]
    meta: Object = {"labels": control_plane.labels | {names.COMPONENT: component}}
    if digest:
        meta["annotations"] = {names.FILES_DIGEST: digest}
    return {"metadata": meta, "spec": spec}


def _spread(component: str) -> Object:
    """Preferred, not required: a cluster with one node runs control planes too."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector(component)}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}


def probe(path: str, port: str, *, scheme: str, period_s: int, failures: int, timeout_s: int = 5) -> Object:
    """A request of the kubelet."""
    return {
        "httpGet": {"path": path, "port": port, "scheme": scheme},
        "periodSeconds": period_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
    }
