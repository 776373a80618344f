# SPDX-License-Identifier: Apache-2.0
"""Hybrid vsock, from the host: a unix socket of the VMM that leads to a port in the guest.

Firecracker, Cloud Hypervisor and Dragonball have it in place of a kernel's AF_VSOCK: one says
`CONNECT <port>` and hears `OK <host port>`, each on a line, and from then on it is the guest's
stream. A guest that does not listen (yet) shows as a connection that is closed instead.
"""

import asyncio
import re
from pathlib import Path

from kata_bridge.channels.stock.faults import NoAnswerError

# What Kata's own shim gives the handshake.
HANDSHAKE_TIMEOUT_S = 10.0

_SHOWN_BYTES = 64
_OK = re.compile(rb"OK [0-9]{1,10}\r?\n")


def is_accepted(line: bytes) -> bool:
    """Whether a VMM's line says that what follows is the guest's stream."""
    return _OK.fullmatch(line) is not None


async def connect(
    path: Path, port: int, timeout_s: float = HANDSHAKE_TIMEOUT_S
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to `port` in the guest behind the VMM's socket `path`; raises `NoAnswerError`.

    The reader holds what the guest has sent after the line: no byte of it is lost.
    """
    hop = f"hvsock://{path}:{port}"
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(f"CONNECT {port}\n".encode("ascii"))
                line = await reader.readuntil(b"\n")
                if not is_accepted(line):
                    raise NoAnswerError(f"{hop}: the VMM answers {line[:_SHOWN_BYTES]!r}")
            except BaseException:
                writer.transport.abort()
                raise
    except TimeoutError:
        raise NoAnswerError(f"{hop}: no handshake within {timeout_s:g} s") from None
    except asyncio.IncompleteReadError:
        raise NoAnswerError(f"{hop}: closed, nobody listens there in the guest") from None
    except asyncio.LimitOverrunError:
        raise NoAnswerError(f"{hop}: the VMM answers without an end of line") from None
    except OSError as error:
        raise NoAnswerError(f"{hop}: {error.strerror or error}") from None
    return reader, writer
