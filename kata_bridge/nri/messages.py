# SPDX-License-Identifier: Apache-2.0
"""The messages and fields of NRI (package `nri.pkg.api.v1alpha1`) that kata-bridge uses.

A container's arguments and environment are left out: secrets that are not read cannot leak.
The names are those of NRI's own protocol file; a test of the k8s ring holds the two together.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from daemonkit.protobuf import (
    BOOL,
    INT32,
    INT64,
    STRING,
    UINT32,
    OpenEnum,
    enumeration,
    field,
    map_of,
    message_of,
    messages_of,
    repeated,
)
from kata_bridge.nri.events import Event

PLUGIN = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME = "nri.pkg.api.v1alpha1.Runtime"


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@dataclass(frozen=True, slots=True)
class RegisterPluginRequest:
    """`plugin_idx` is two digits: plugins are called in its order."""

    plugin_name: str = field(1, STRING)
    plugin_idx: str = field(2, STRING)
    NRI_version: str = field(3, STRING)


@dataclass(frozen=True, slots=True)
class ConfigureRequest:
    """Timeouts in milliseconds. `NRI_version` is empty before NRI 0.12."""

    runtime_name: str = field(2, STRING)
    runtime_version: str = field(3, STRING)
    registration_timeout: int = field(4, INT64)
    request_timeout: int = field(5, INT64)
    NRI_version: str = field(6, STRING)


@dataclass(frozen=True, slots=True)
class ConfigureResponse:
    events: int = field(2, INT32)


@dataclass(frozen=True, slots=True)
class LinuxNamespace:
    type: str = field(1, STRING)
    path: str = field(2, STRING)


@dataclass(frozen=True, slots=True)
class LinuxPodSandbox:
    namespaces: tuple[LinuxNamespace, ...] = field(5, messages_of(LinuxNamespace))


@dataclass(frozen=True, slots=True)
class PodSandbox:
    """A sandbox as it was created. A dead one has pid 0 and no network namespace."""

    id: str = field(1, STRING)
    name: str = field(2, STRING)
    uid: str = field(3, STRING)
    namespace: str = field(4, STRING)
    labels: Mapping[str, str] = field(5, map_of(STRING))
    annotations: Mapping[str, str] = field(6, map_of(STRING))
    runtime_handler: str = field(7, STRING)
    linux: LinuxPodSandbox | None = field(8, message_of(LinuxPodSandbox))
    pid: int = field(9, UINT32)
    ips: tuple[str, ...] = field(10, repeated(STRING))

    @property
    def network_namespace(self) -> str:
        """The path of its network namespace; empty on the host's network, and when it is dead."""
        namespaces = self.linux.namespaces if self.linux is not None else ()
        return next((each.path for each in namespaces if each.type == "network"), "")


class ContainerState(OpenEnum):
    CONTAINER_UNKNOWN = 0
    CONTAINER_CREATED = 1
    CONTAINER_PAUSED = 2
    CONTAINER_RUNNING = 3
    CONTAINER_STOPPED = 4


@dataclass(frozen=True, slots=True)
class Mount:
    destination: str = field(1, STRING)
    type: str = field(2, STRING)
    source: str = field(3, STRING)
    options: tuple[str, ...] = field(4, repeated(STRING))


@dataclass(frozen=True, slots=True)
class Container:
    id: str = field(1, STRING)
    pod_sandbox_id: str = field(2, STRING)
    name: str = field(3, STRING)
    state: ContainerState = field(4, enumeration(ContainerState))
    labels: Mapping[str, str] = field(5, map_of(STRING))
    annotations: Mapping[str, str] = field(6, map_of(STRING))
    mounts: tuple[Mount, ...] = field(9, messages_of(Mount))
    pid: int = field(12, UINT32)


@dataclass(frozen=True, slots=True)
class SynchronizeRequest:
    pods: tuple[PodSandbox, ...] = field(1, messages_of(PodSandbox))
    containers: tuple[Container, ...] = field(2, messages_of(Container))
    more: bool = field(3, BOOL)


@dataclass(frozen=True, slots=True)
class SynchronizeResponse:
    more: bool = field(2, BOOL)


@dataclass(frozen=True, slots=True)
class PodRequest:
    """Run-, Stop- and RemovePodSandboxRequest, which are alike."""

    pod: PodSandbox | None = field(1, message_of(PodSandbox))


@dataclass(frozen=True, slots=True)
class StateChangeEvent:
    """Runtimes before NRI 0.12 send it for events without a call of their own."""

    event: Event = field(1, enumeration(Event))
    pod: PodSandbox | None = field(2, message_of(PodSandbox))


@dataclass(frozen=True, slots=True)
class CreateContainerRequest:
    pod: PodSandbox | None = field(1, message_of(PodSandbox))
    container: Container | None = field(2, message_of(Container))


@dataclass(frozen=True, slots=True)
class ContainerAdjustment:
    """A mount replaces the one at its destination; "-" before the destination removes it."""

    annotations: Mapping[str, str] = field(2, map_of(STRING))
    mounts: tuple[Mount, ...] = field(3, messages_of(Mount))


@dataclass(frozen=True, slots=True)
class CreateContainerResponse:
    adjust: ContainerAdjustment | None = field(1, message_of(ContainerAdjustment))


@dataclass(frozen=True, slots=True)
class PluginInstance:
    name: str = field(1, STRING)
    index: str = field(2, STRING)


@dataclass(frozen=True, slots=True)
class ValidateContainerAdjustmentRequest:
    """`container` before any adjustment, `adjust` what all `plugins` together made."""

    pod: PodSandbox | None = field(1, message_of(PodSandbox))
    container: Container | None = field(2, message_of(Container))
    adjust: ContainerAdjustment | None = field(3, message_of(ContainerAdjustment))
    plugins: tuple[PluginInstance, ...] = field(6, messages_of(PluginInstance))


@dataclass(frozen=True, slots=True)
class ValidateContainerAdjustmentResponse:
    reject: bool = field(1, BOOL)
    reason: str = field(2, STRING)
