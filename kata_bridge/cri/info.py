# SPDX-License-Identifier: Apache-2.0
"""The JSON text `info` in the verbose status of a sandbox.

Each runtime has its own keys and may change them; a missing or unexpected value is read as empty.
"""

from collections.abc import Mapping

import msgspec


class _Namespace(msgspec.Struct):
    type: str = ""
    path: str = ""


class _Linux(msgspec.Struct):
    namespaces: list[_Namespace] | None = None


class _RuntimeSpec(msgspec.Struct):
    linux: _Linux | None = None


class _Info(msgspec.Struct, rename="camel"):
    runtime_spec: _RuntimeSpec | None = None


def network_namespace(info: Mapping[str, str]) -> str:
    """The path of a sandbox's network namespace; empty in the host's network, and where it is unknown."""
    try:
        read = msgspec.json.decode(info.get("info", "{}"), type=_Info)
    except (msgspec.DecodeError, RecursionError):
        return ""
    linux = read.runtime_spec.linux if read.runtime_spec is not None else None
    namespaces = linux.namespaces if linux is not None else None
    return next((each.path for each in namespaces or () if each.type == "network"), "")
