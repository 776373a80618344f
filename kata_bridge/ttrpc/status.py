# SPDX-License-Identifier: Apache-2.0
"""Status codes of ttrpc, which are those of gRPC. Pure."""

from daemonkit.protobuf import OpenEnum


class Code(OpenEnum):
    """The codes that ttrpc peers use; other numbers are kept as they are."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class TtrpcError(Exception):
    """A status other than OK: one that the peer returned, or one to return."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = Code(code)
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"
