# SPDX-License-Identifier: Apache-2.0
"""Asks a vn-agent whether it answers: with a TLS handshake, up to the client's last flight.

A kernel accepts connections for a process that hangs, so TCP alone proves nothing. `GET /healthz` would need
a certificate that vn-agent knows as a tenant's. In TLS 1.3 the server proves itself before the client does.
At that point we hang up, and vn-agent counts no failed handshake.
"""

import asyncio
import contextlib
import ssl

from daemonkit.tls.contexts import unverified_client_context

_READ_BYTES = 16 * 1024
# A server's whole flight: a chain of certificates is a few KB.
_MAX_BYTES = 128 * 1024


class TlsAgentProbe:
    """An AgentProbe on sockets. The caller has the deadline."""

    def __init__(self) -> None:
        self._context = unverified_client_context()

    async def probe(self, address: str, port: int) -> bool:
        """Whether a TLS server at this address finishes its part of a handshake."""
        try:
            reader, writer = await asyncio.open_connection(address, port)
        except OSError:
            return False
        try:
            return await self._handshake(reader, writer)
        except OSError:  # ssl.SSLError among them
            return False
        finally:
            with contextlib.suppress(RuntimeError):  # the loop may be closed
                writer.transport.abort()

    async def _handshake(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = self._context.wrap_bio(incoming, outgoing)
        size = 0
        while True:
            try:
                session.do_handshake()
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                data = await reader.read(_READ_BYTES)
                size += len(data)
                if not data or size > _MAX_BYTES:
                    return False
                incoming.write(data)
            else:
                # What is in `outgoing` now stays unsent.
                return True
