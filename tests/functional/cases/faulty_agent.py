# SPDX-License-Identifier: Apache-2.0
"""An agent that does everything wrong. The harness of the cases must notice each fault.

It asks no client for a certificate, passes every byte on to the kubelet, leaks a megabyte and a
metric series a request, closes nothing upstream when a client leaves, swallows the last byte of a
tunnel's way back, keeps no audit log, and makes ten-b wait. `--config FILE` like the real one.
"""

import asyncio
import contextlib
import json
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import yaml

_LEAK_BYTES = 1024 * 1024
_NEIGHBOUR_WAITS_S = 1.1


class FaultyAgent:
    """Blind relay with a status socket."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._port = 0
        self._leaked: list[bytearray] = []
        self._paths: list[str] = []
        self._unclosed: list[asyncio.StreamWriter] = []

    async def run(self) -> None:
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(
            self._config["serving"]["certificateFile"], self._config["serving"]["keyFile"]
        )
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0, ssl=serving)
        self._port = server.sockets[0].getsockname()[1]
        await asyncio.start_unix_server(self._status, self._config["status"]["socket"])
        await server.serve_forever()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kubelet = self._config["kubelet"]
        upstream = ssl.create_default_context(cafile=kubelet["caFile"])
        upstream.load_cert_chain(kubelet["clientCertificateFile"], kubelet["clientKeyFile"])
        there, back = await asyncio.open_connection(
            kubelet["address"], kubelet["port"], ssl=upstream, server_hostname=kubelet["serverName"]
        )
        self._unclosed.append(back)
        with contextlib.suppress(ConnectionError, ssl.SSLError, ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, back, is_up=True))
                group.create_task(self._pump(there, writer, is_up=False))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_up: bool) -> None:
        is_tunnel = False
        while data := await source.read(65536):
            if is_up and data.startswith((b"GET", b"POST")):
                self._leaked.append(bytearray(b"x" * _LEAK_BYTES))
                self._paths.append(data.split(b" ")[1].decode("latin-1"))
                if b"/bank/" in data:
                    # The super cluster's name, so that the neighbour does get an answer, but late.
                    data = data.replace(b"/web/bank/", b"/ten-b-web/bank/")
                    await asyncio.sleep(_NEIGHBOUR_WAITS_S)  # pace: this reply is late
            is_tunnel = is_tunnel or (not is_up and data.startswith(b"HTTP/1.1 101"))
            sink.write(data[:-1] if is_tunnel and not data.startswith(b"HTTP/") else data)
            await sink.drain()
        if not is_up:
            sink.close()

    async def _status(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        body = "ok"
        if path == "/status":
            body = json.dumps({"listen": {"address": "127.0.0.1", "port": self._port}})
        elif path == "/metrics":
            rows = [f'requests_total{{path="{number}"}} 1' for number in range(len(self._paths))]
            # Time passes for it as reloads: it claims to have noticed whatever is waited for.
            rows.append(f'vcnode_reloads_total{{result="ok"}} {int(time.monotonic() * 10)}')
            rows.append(f"vcnode_tasks {len(asyncio.all_tasks())}")
            body = "\n".join(rows) + "\n"
        reply = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write((reply + body).encode())
        await writer.drain()
        writer.close()


def main() -> None:
    text = Path(sys.argv[sys.argv.index("--config") + 1]).read_text(encoding="utf-8")
    asyncio.run(FaultyAgent(yaml.safe_load(text)).run())


if __name__ == "__main__":
    main()
