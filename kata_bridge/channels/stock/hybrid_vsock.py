# SPDX-License-Identifier: Apache-2.0
"""Hybrid vsock from the host: a unix socket of the VMM that leads to a port in the guest.

Firecracker, Cloud Hypervisor and Dragonball have it in place of AF_VSOCK (docs/spec/kata.md#vsock). The host
sends `CONNECT <port>` and reads `OK <host port>`, each on a line; then the connection is the guest's stream.
The VMM closes the connection if nothing listens in the guest, or not yet.
"""

import asyncio
import re
from pathlib import Path

from kata_bridge.channels.stock.faults import NoAnswerError

# As in Kata's own shim.
HANDSHAKE_TIMEOUT_S = 10.0

_SHOWN_BYTES = 64
_OK = re.compile(rb"OK [0-9]{1,10}\r?\n")


def is_accepted(line: bytes) -> bool:
    """Whether the VMM's line announces the guest's stream."""
    return _OK.fullmatch(line) is not None


async def connect(
    path: Path, port: int, timeout_s: float = HANDSHAKE_TIMEOUT_S
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to `port` in the guest behind the VMM's socket `path`; raises `NoAnswerError`.

    Bytes that the guest sent right after the line are in the reader.
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
        raise NoAnswerError(f"{hop}: closed, nothing listens there in the guest") from None
    except asyncio.LimitOverrunError:
        raise NoAnswerError(f"{hop}: the VMM answers without an end of line") from None
    except OSError as error:
        raise NoAnswerError(f"{hop}: {error.strerror or error}") from None
    return reader, writer
