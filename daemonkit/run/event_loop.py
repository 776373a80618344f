# SPDX-License-Identifier: Apache-2.0
"""The event loop of daemons: asyncio's, which waits for no resolver when it ends."""

import asyncio
import contextlib
import socket
import threading
from typing import Any

# Names that are looked up at once; others wait.
MAX_LOOKUPS = 8


class DaemonLoop(asyncio.SelectorEventLoop):
    """Looks names up in threads of their own.

    A resolver that gets no answer takes up to 30 s. asyncio's would end only after it, and with it a daemon
    that was asked to stop while DNS was away.
    """

    _lookups: asyncio.Semaphore | None = None

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - asyncio has named it
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """As `socket.getaddrinfo`, which also says what is returned and raised."""
        lookups = self._lookups = self._lookups or asyncio.Semaphore(MAX_LOOKUPS)
        await lookups.acquire()
        answer: asyncio.Future[list[Any]] = self.create_future()

        def settle(found: list[Any], error: Exception | None) -> None:
            lookups.release()
            if answer.done():  # its caller waits no more
                return
            if error is None:
                answer.set_result(found)
            else:
                answer.set_exception(error)

        def look_up() -> None:
            found: list[Any] = []
            error: Exception | None = None
            try:
                found = socket.getaddrinfo(host, port, family, type, proto, flags)
            # UnicodeError is among them.
            except Exception as raised:  # noqa: BLE001 - it is raised where the answer is awaited
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self.call_soon_threadsafe(settle, found, error)

        try:
            threading.Thread(target=look_up, name="resolver", daemon=True).start()
        except RuntimeError as error:
            lookups.release()
            raise OSError(f"no thread for the resolver: {error}") from error
        return await answer
