# SPDX-License-Identifier: Apache-2.0
"""The JSON text `info` in the verbose status of a sandbox.

Each runtime has its own keys and may change them; a missing or unexpected value is read as empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """`runtime_type` as containerd has it (`io.containerd.kata.v2`); CRI-O has none.

    `network_namespace` is a path, empty on the host's network. `pid` is 0 where there is no process.
    """

    pid: int = 0
    runtime_type: str = ""
    network_namespace: str = ""


class _Namespace(msgspec.Struct):
    type: str = ""
    path: str = ""


class _Linux(msgspec.Struct):
    namespaces: list[_Namespace] | None = None


class _RuntimeSpec(msgspec.Struct):
    linux: _Linux | None = None


class _Info(msgspec.Struct, rename="camel"):
    pid: int = 0
    runtime_type: str = ""
    runtime_spec: _RuntimeSpec | None = None


def sandbox_info(info: Mapping[str, str]) -> SandboxInfo:
    """Read `PodSandboxStatusResponse.info`."""
    try:
        read = msgspec.json.decode(info.get("info", "{}"), type=_Info)
    except (msgspec.DecodeError, RecursionError):
        return SandboxInfo()
    linux = read.runtime_spec.linux if read.runtime_spec is not None else None
    namespaces = linux.namespaces if linux is not None else None
    path = next((each.path for each in namespaces or () if each.type == "network"), "")
    return SandboxInfo(read.pid, read.runtime_type, path)
