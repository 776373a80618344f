# SPDX-License-Identifier: Apache-2.0
"""An API server that answers each path as a test has it, and counts who left it open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import Status


@dataclass
class FakeAnswers:
    """`answers` by method and path; a list is for one call after the other, an exception is raised."""

    answers: dict[str, Any]
    server: str = "https://fake:6443"
    requests: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    is_closed: bool = False

    async def request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None = None, **_: object
    ) -> bytes:
        self.requests.append((f"{method} {path}", dict(params)))
        self.bodies += [body] if body is not None else []
        found = self.answers.get(f"{method} {path}")
        if isinstance(found, list):
            found = found.pop(0)
        if isinstance(found, Exception):
            raise found
        if found is None:
            raise ApiError(Status(code=404, reason="NotFound"))
        return found if isinstance(found, bytes) else json.dumps(found).encode()

    async def close(self) -> None:
        self.is_closed = True


def unreachable() -> UnreachableError:
    return UnreachableError("does not answer")
