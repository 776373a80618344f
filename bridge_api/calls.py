# SPDX-License-Identifier: Apache-2.0
"""Calls of gRPC services as values, without grpcio: a guest's agent does without it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, A]):
    """One call: full name of its service, its own name, classes of request and reply."""

    service: str
    name: str
    request: type[Q]
    reply: type[A]

    @property
    def path(self) -> str:
        """The call's name on the wire."""
        return f"/{self.service}/{self.name}"


class BothStream(Method[Q, A]):
    """Many requests, many replies, each side at its own pace."""

    __slots__ = ()
