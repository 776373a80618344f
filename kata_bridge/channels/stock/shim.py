# SPDX-License-Identifier: Apache-2.0
"""The management socket of a sandbox's Kata shim (docs/spec/kata.md#shim): stock Kata's way to iptables.

The shim in Go answers an error with 500 and the agent's text. The shim in Rust closes the connection, and
listens before its guest has booted. So a missing reply proves nothing.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from kata_bridge.channels.stock import shim_http
from kata_bridge.channels.stock.faults import (
    MAX_STOCK_TEXT_CHARACTERS,
    CallFailedError,
    NoAnswerError,
    NoEndpointError,
    failure_of_text,
)
from ruleset.model import Family

# The shim in Go, then the one in Rust. A sandbox has one of them.
ROOTS = (Path("/run/vc/sbs"), Path("/run/kata"))
SOCKET_NAME = "shim-monitor.sock"

# The shim itself gives its agent 60 s. A call that takes longer than ten does not help a waiting pod.
TIMEOUT_S = 10.0

_TABLES = {Family.IPV4: "/iptables", Family.IPV6: "/ip6tables"}
_SANDBOX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_NO_SUCH_ENDPOINT = frozenset({404, 405, 501})


def shim_socket(sandbox_id: str, roots: Sequence[Path] = ROOTS) -> Path | None:
    """Return the management socket of a sandbox. A sandbox is Kata's if it exists.

    Raises `ValueError` for an invalid sandbox id, so that an id cannot lead out of the roots.
    """
    if not _SANDBOX_ID.fullmatch(sandbox_id):
        raise ValueError(f"{sandbox_id!r} is not a sandbox id")
    paths = (root / sandbox_id / SOCKET_NAME for root in roots)
    return next((path for path in paths if path.is_socket()), None)


class Shim:
    """The calls of one sandbox's shim. Each looks the socket up again: the shim may make it late.

    All raise `NoAnswerError` (`NoEndpointError` where the shim lacks the call) and `CallFailedError`.
    """

    def __init__(
        self, sandbox_id: str, *, roots: Sequence[Path] = ROOTS, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._sandbox_id = sandbox_id
        self._roots = tuple(roots)
        self._timeout_s = timeout_s

    async def get_tables(self, family: Family) -> bytes:
        """Return the output of iptables-save for all tables; empty if there is none, or if it failed."""
        return await self._call("GET", _TABLES[family])

    async def set_tables(self, family: Family, text: bytes) -> None:
        """Pass `text` to iptables-restore, which replaces every table that it names."""
        await self._call("PUT", _TABLES[family], text)

    async def set_policy(self, text: str) -> None:
        """Replace the agent's whole policy. Shims in Go have this since 3.3."""
        await self._call("PUT", "/policy", text.encode())

    async def agent_url(self) -> str:
        """Return where the agent listens; empty if the shim does not know it, or not yet."""
        url = await self._call("GET", "/agent-url")
        return url[:MAX_STOCK_TEXT_CHARACTERS].decode("utf-8", "replace").strip()

    async def _call(self, method: str, target: str, body: bytes = b"") -> bytes:
        path = shim_socket(self._sandbox_id, self._roots)
        if path is None:
            places = ", ".join(str(root) for root in self._roots)
            raise NoAnswerError(
                f"the shim has not made {SOCKET_NAME} of sandbox {self._sandbox_id} in {places}"
            )
        reply = await shim_http.request(path, method, target, body, self._timeout_s)
        if reply.status == 200:
            return reply.body
        text = reply.body[:MAX_STOCK_TEXT_CHARACTERS].decode("utf-8", "replace").strip()
        if reply.status in _NO_SUCH_ENDPOINT:
            raise NoEndpointError(f"{path}: the shim does not support {method} {target} ({reply.status})")
        if not text:
            raise CallFailedError(None, f"{method} {target}: {reply.status} without a message")
        raise failure_of_text(text)
