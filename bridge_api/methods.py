# SPDX-License-Identifier: Apache-2.0
"""Methods of gRPC services as values, without grpcio, which guests do not have."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, A]):
    """One method: its service's full name, its own name, the classes of request and reply."""

    service: str
    name: str
    request: type[Q]
    reply: type[A]

    @property
    def path(self) -> str:
        """The `:path` of a call."""
        return f"/{self.service}/{self.name}"


class BidiStream(Method[Q, A]):
    """A stream of requests and a stream of replies, each at its own pace."""

    __slots__ = ()
