# SPDX-License-Identifier: Apache-2.0
"""The messages of a stock kata-agent that we use (docs/spec/kata.md#agent). Pure."""

from dataclasses import dataclass

from daemonkit.protobuf import (
    BOOL,
    BYTES,
    INT32,
    INT64,
    STRING,
    UINT32,
    field,
)

AGENT = "grpc.AgentService"
HEALTH = "grpc.Health"


@dataclass(frozen=True, slots=True)
class GetIPTablesRequest:
    is_ipv6: bool = field(1, BOOL)


@dataclass(frozen=True, slots=True)
class GetIPTablesResponse:
    data: bytes = field(1, BYTES)  # what ip(6)tables-save printed


@dataclass(frozen=True, slots=True)
class SetIPTablesRequest:
    is_ipv6: bool = field(1, BOOL)
    data: bytes = field(2, BYTES)  # for ip(6)tables-restore


@dataclass(frozen=True, slots=True)
class SetIPTablesResponse:
    data: bytes = field(1, BYTES)


@dataclass(frozen=True, slots=True)
class SetPolicyRequest:
    policy: str = field(1, STRING)


@dataclass(frozen=True, slots=True)
class CopyFileRequest:
    """One part of a file. The agent writes beside `path`, and renames once it has `file_size` bytes."""

    path: str = field(1, STRING)
    file_size: int = field(2, INT64)
    file_mode: int = field(3, UINT32)  # st_mode, the type included
    dir_mode: int = field(4, UINT32)
    uid: int = field(5, INT32)
    gid: int = field(6, INT32)
    offset: int = field(7, INT64)
    data: bytes = field(8, BYTES)


@dataclass(frozen=True, slots=True)
class Empty:
    """google.protobuf.Empty"""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The request of `Health/Version` too."""

    service: str = field(1, STRING)


@dataclass(frozen=True, slots=True)
class VersionCheckResponse:
    grpc_version: str = field(1, STRING)
    agent_version: str = field(2, STRING)
