# SPDX-License-Identifier: Apache-2.0
"""Asks a TLS server for its first messages, and goes away: no credential is sent, and none is needed."""

import asyncio
import ssl

from tenant_operator.pki.handshake import HandshakeError, ServerFlight, read_flight

_CHUNK_BYTES = 1 << 16


async def first_flight(host: str, port: int) -> ServerFlight:
    """Raises OSError for a server that does not answer, HandshakeError for one that speaks otherwise."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(_client_hello())
        data = b""
        while True:
            more = await reader.read(_CHUNK_BYTES)
            if not more:
                raise HandshakeError("the connection ended")
            data += more
            if (found := read_flight(data)) is not None:
                return found
    finally:
        writer.close()


def _client_hello() -> bytes:
    """Of TLS 1.2: from 1.3 on, certificates are encrypted (RFC 8446, 4.4)."""
    # Nothing is trusted that the server shows: its certificates are compared with those that we issued.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing)
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise HandshakeError("no ClientHello was made")
