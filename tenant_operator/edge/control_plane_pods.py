# SPDX-License-Identifier: Apache-2.0
"""The pods of a component of a control plane, as the super cluster has them now."""

import msgspec

from daemonkit.kube.client import ApiClient
from daemonkit.kube.resources import PODS
from tenant_operator.model import names, pods

_MAX_PODS = 100
_MAX_LIST_BYTES = 8 << 20
# Their containers have ended.
_ENDED = ("Succeeded", "Failed")


class ComponentPod(msgspec.Struct, frozen=True):
    """`address` is empty before it has one."""

    name: str
    address: str
    files_digest: str = ""
    is_ready: bool = False

    def url(self, port: int) -> str:
        """Where it listens."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"https://{host}:{port}"

    def has_started_with(self, files_digest: str) -> bool:
        """Whether it serves, and is of the template that has this digest of its files."""
        return bool(files_digest) and self.files_digest == files_digest and self.is_ready


class _PodName(msgspec.Struct, frozen=True):
    name: str
    annotations: dict[str, str] = {}


class _PodCondition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _RunningStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: list[_PodCondition] = []


class _ListedPod(msgspec.Struct, frozen=True):
    metadata: _PodName
    status: _RunningStatus = _RunningStatus()


class _PodPage(msgspec.Struct, frozen=True):
    items: list[_ListedPod] = []


async def pods_of(client: ApiClient, namespace: str, component: str) -> tuple[ComponentPod, ...]:
    """Those that may run. One that ends still serves. Raises ApiError and UnreachableError."""
    labels = pods.selector(component)["matchLabels"]
    params = {
        "labelSelector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        "limit": str(_MAX_PODS),
    }
    body = await client.request("GET", PODS.path(namespace), params, limit_bytes=_MAX_LIST_BYTES)
    found = msgspec.json.decode(body, type=_PodPage).items
    return tuple(
        ComponentPod(
            each.metadata.name,
            each.status.pod_ip,
            each.metadata.annotations.get(names.FILES_DIGEST, ""),
            any(found.type == "Ready" and found.status == "True" for found in each.status.conditions),
        )
        for each in found
        if each.status.phase not in _ENDED
    )
