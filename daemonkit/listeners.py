# SPDX-License-Identifier: Apache-2.0
"""Ends a listening socket without losing a connection that is being accepted."""

import asyncio

# From `accept` to the protocol's first call asyncio takes three iterations of the loop.
_ITERATIONS = 4


async def stop_accepting(server: asyncio.Server) -> None:
    """Close `server` after its accepted connections have reached their protocol or callback.

    `Server.close` alone lets a connection whose transport is being made in that iteration fail with an
    AssertionError, and its socket is left to the garbage collector (cpython 109564).
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    for _ in range(_ITERATIONS):
        await asyncio.sleep(0)
    server.close()
