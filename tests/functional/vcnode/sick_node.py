# SPDX-License-Identifier: Apache-2.0
"""A node of fake daemons and fake servers, into which tests of `vcnode doctor` plant faults."""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from daemonkit.version import VERSION
from devkit.kube.apiserver import FakeApiserver
from devkit.kubelet.server import FakeKubelet, kubelet_context
from devkit.pki import Authority
from tests.cases.agent_files import NODE
from tests.functional.healthy_node import DAEMONS, HealthyNode

ROOT = Path(__file__).resolve().parents[3]


class FakeDaemon:
    """The status pages of a daemon; `readyz`, `status` and `version` are what it serves."""

    def __init__(self, name: str, path: Path) -> None:
        self.path = path
        self.is_ready = True
        self.readyz = "all: ok\n"
        self.version = VERSION
        self.status: dict[str, Any] = {"daemon": name, "pid": os.getpid()}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def stop(self) -> None:
        """End, as a killed process: the socket stays."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                path = connection.recv(4096).split(b" ")[1]
                code, body = self._page(path)
                head = f"HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode() + body)

    def _page(self, path: bytes) -> tuple[int, bytes]:
        if path == b"/readyz":
            return (200 if self.is_ready else 503), self.readyz.encode()
        if path == b"/metrics":
            return 200, f'{"vcnode"}_build_info{{version="{self.version}",daemon="x"}} 1\n'.encode()
        return 200, json.dumps(self.status).encode()


class TlsServer:
    """What vn-agent shows to tenants."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                with connection, self._context.wrap_socket(connection, server_side=True) as tls:
                    tls.recv(1)
            except OSError:
                continue


class SickNode:
    """`start`, plant, `doctor`, `stop`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.super_authority = Authority.create("super-cluster")
        self.apiserver = FakeApiserver(
            authority=self.super_authority, client_ca_pem=self.super_authority.cert_pem
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.files = HealthyNode(directory)
        self.files.super_authority = self.super_authority
        self.kubelet = FakeKubelet(tls=self._kubelet_tls())
        self.daemons: dict[str, FakeDaemon] = {}
        self._others: list[FakeDaemon | TlsServer | socket.socket] = []

    def start(self, *, with_daemons: bool = True) -> None:
        """Start the servers and write all files; with the fake daemons, or for real ones."""
        self._thread.start()
        self._call(self.apiserver.start())
        self.kubelet.start()
        self.files.kubelet_port, self.files.server = self.kubelet.port, self.apiserver.url
        self.files.write()
        if with_daemons:
            self._start_daemons()

    def _start_daemons(self) -> None:
        run = self.directory / "run"
        self.daemons = {name: FakeDaemon(name, run / f"{name}.sock") for name in DAEMONS}
        for name in ("bridge.sock", "nri.sock"):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(run / name))
            listener.listen()
            self._others.append(listener)
        agent = TlsServer(self.directory / "serving.crt", self.directory / "serving.key")
        self._others.append(agent)
        self.files.write_config("vn-agent", listen={"address": "127.0.0.1", "port": agent.port})

    def stop(self) -> None:
        for daemon in self.daemons.values():
            if daemon.path.exists():
                daemon.path.unlink()
        for each in self._others:
            each.close() if isinstance(each, socket.socket) else each.stop()
        self.kubelet.stop()
        self._call(self.apiserver.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def stop_apiserver(self) -> None:
        self._call(self.apiserver.stop())

    def doctor(self, *arguments: str) -> tuple[int, list[tuple[str, str, str, str]], str]:
        """Exit code; level, check, message and remedy of each finding; errors."""
        command = [sys.executable, "-m", "vcnode", "doctor", "--config-directory", str(self.directory)]
        ended = subprocess.run(
            [*command, "-o", "json", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if not ended.stdout:
            return ended.returncode, [], ended.stderr
        text = ended.stdout.replace(str(self.directory), "DIR")
        return ended.returncode, list(_rows(json.loads(text)["items"])), ended.stderr

    def _kubelet_tls(self) -> ssl.SSLContext:
        leaf = self.files.kubelet_authority.issue(NODE, sans_dns=[NODE], usages=("server",))
        certificate, key = leaf.write(self.directory, "kubelet")
        return kubelet_context(str(certificate), str(key), self.files.agent_clients.cert_pem.decode())

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


def _rows(found: Iterable[dict[str, str]]) -> Iterable[tuple[str, str, str, str]]:
    for each in found:
        yield each["level"], each["check"], each["message"], each["remedy"]
