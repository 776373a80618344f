# SPDX-License-Identifier: Apache-2.0
"""The messages, calls and fields of CRI v1 that kata-bridge uses.

The names are those of CRI's own protocol file; a test of the k8s ring holds the two together.
GetContainerEvents must stay left out: containerd 1.7 has one queue of events, so the kubelet never sees an
event that another client read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bridge_api.rpc import UnaryMethod
from daemonkit.protobuf import (
    BOOL,
    INT64,
    STRING,
    UINT32,
    OpenEnum,
    enumeration,
    field,
    map_of,
    message_of,
    messages_of,
)


class PodSandboxState(OpenEnum):
    SANDBOX_READY = 0
    SANDBOX_NOTREADY = 1


class NamespaceMode(OpenEnum):
    POD = 0
    CONTAINER = 1
    NODE = 2
    TARGET = 3


@dataclass(frozen=True, slots=True)
class PodSandboxMetadata:
    name: str = field(1, STRING)
    uid: str = field(2, STRING)
    namespace: str = field(3, STRING)
    attempt: int = field(4, UINT32)


@dataclass(frozen=True, slots=True)
class ListPodSandboxRequest:
    pass


@dataclass(frozen=True, slots=True)
class PodSandbox:
    """`created_at` in nanoseconds. `runtime_handler` is that of the RuntimeClass, "" for the default."""

    id: str = field(1, STRING)
    metadata: PodSandboxMetadata | None = field(2, message_of(PodSandboxMetadata))
    state: PodSandboxState = field(3, enumeration(PodSandboxState))
    created_at: int = field(4, INT64)
    labels: Mapping[str, str] = field(5, map_of(STRING))
    annotations: Mapping[str, str] = field(6, map_of(STRING))
    runtime_handler: str = field(7, STRING)


@dataclass(frozen=True, slots=True)
class ListPodSandboxResponse:
    items: tuple[PodSandbox, ...] = field(1, messages_of(PodSandbox))


@dataclass(frozen=True, slots=True)
class PodSandboxStatusRequest:
    pod_sandbox_id: str = field(1, STRING)
    verbose: bool = field(2, BOOL)


@dataclass(frozen=True, slots=True)
class PodIP:
    ip: str = field(1, STRING)


@dataclass(frozen=True, slots=True)
class PodSandboxNetworkStatus:
    ip: str = field(1, STRING)
    additional_ips: tuple[PodIP, ...] = field(2, messages_of(PodIP))


@dataclass(frozen=True, slots=True)
class NamespaceOption:
    network: NamespaceMode = field(1, enumeration(NamespaceMode))


@dataclass(frozen=True, slots=True)
class Namespace:
    options: NamespaceOption | None = field(2, message_of(NamespaceOption))


@dataclass(frozen=True, slots=True)
class LinuxPodSandboxStatus:
    namespaces: Namespace | None = field(1, message_of(Namespace))


@dataclass(frozen=True, slots=True)
class PodSandboxStatus:
    id: str = field(1, STRING)
    metadata: PodSandboxMetadata | None = field(2, message_of(PodSandboxMetadata))
    state: PodSandboxState = field(3, enumeration(PodSandboxState))
    created_at: int = field(4, INT64)
    network: PodSandboxNetworkStatus | None = field(5, message_of(PodSandboxNetworkStatus))
    linux: LinuxPodSandboxStatus | None = field(6, message_of(LinuxPodSandboxStatus))
    labels: Mapping[str, str] = field(7, map_of(STRING))
    annotations: Mapping[str, str] = field(8, map_of(STRING))
    runtime_handler: str = field(9, STRING)

    @property
    def ips(self) -> tuple[str, ...]:
        """Its addresses, the primary one first."""
        if self.network is None:
            return ()
        return tuple(ip for ip in (self.network.ip, *(each.ip for each in self.network.additional_ips)) if ip)

    @property
    def is_host_network(self) -> bool:
        namespaces = self.linux.namespaces if self.linux is not None else None
        options = namespaces.options if namespaces is not None else None
        return options is not None and options.network is NamespaceMode.NODE


@dataclass(frozen=True, slots=True)
class PodSandboxStatusResponse:
    """`info` answers a verbose request, with keys of the runtime's own: see `cri.info`."""

    status: PodSandboxStatus | None = field(1, message_of(PodSandboxStatus))
    info: Mapping[str, str] = field(2, map_of(STRING))


@dataclass(frozen=True, slots=True)
class VersionRequest:
    pass


@dataclass(frozen=True, slots=True)
class VersionResponse:
    """`runtime_name` is such as containerd, `runtime_version` such as v2.1.4."""

    runtime_name: str = field(2, STRING)
    runtime_version: str = field(3, STRING)


_SERVICE = "runtime.v1.RuntimeService"

VERSION = UnaryMethod(_SERVICE, "Version", VersionRequest, VersionResponse)
LIST_POD_SANDBOX = UnaryMethod(_SERVICE, "ListPodSandbox", ListPodSandboxRequest, ListPodSandboxResponse)
POD_SANDBOX_STATUS = UnaryMethod(
    _SERVICE, "PodSandboxStatus", PodSandboxStatusRequest, PodSandboxStatusResponse
)
