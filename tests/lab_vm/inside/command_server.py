# SPDX-License-Identifier: Apache-2.0
"""Serves the test in a guest: runs programs and makes connections, as the pod's containers would.

One line of JSON is a request, one line the response, on TCP connections over the link to the node:

    {"run": [argv...], "stdin": ""}                     -> {"status": 0, "output": "", "errors": ""}
    {"connect": [ip, port, "tcp" or "udp"], "times": 1, "source_port": 0}  -> {"ends": ["10.0.0.1:80", ...]}
    {"lookup": name}                                    -> {"ends": ["10.96.0.10", ...]}

An end is the address at which the server was reached, or `reject`, `late reject`, `drop`. For a name: its
IPv4 addresses, as this process's C library finds them, `no such name` or `no answer`.
"""

import json
import socket
import socketserver
import subprocess
import sys
import time
from typing import Any

PORT = 7000
_WAIT_S = 3.0
# IPv6 has no refusal of its own in OUTPUT but by a reset, and a retransmission takes a second.
_LATE_S = 0.8
_PROGRAM_S = 90


class _Requests(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            request = json.loads(line)
            if "run" in request:
                response = _run(request)
            elif "lookup" in request:
                response = {"ends": _addresses(request["lookup"])}
            else:
                response = _connect_all(request)
            self.wfile.write(json.dumps(response).encode() + b"\n")


def _run(request: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        request["run"],
        input=request.get("stdin", ""),
        capture_output=True,
        text=True,
        timeout=_PROGRAM_S,
        check=False,
    )
    return {"status": done.returncode, "output": done.stdout, "errors": done.stderr}


def _connect_all(request: dict[str, Any]) -> dict[str, Any]:
    ip, port, kind = request["connect"]
    source_port = request.get("source_port", 0)
    return {"ends": [_end(ip, port, kind, source_port) for _ in range(request.get("times", 1))]}


def _end(ip: str, port: int, kind: str, source_port: int) -> str:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    began_s = time.monotonic()
    with socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as client:
        client.settimeout(_WAIT_S)
        try:
            if source_port:
                client.bind(("", source_port))
            client.connect((ip, port))
            if kind == "udp":
                client.send(b"?")
            return client.recv(128).decode().partition(" ")[0]
        except (ConnectionRefusedError, PermissionError):
            # EPERM: a datagram was refused or dropped in OUTPUT.
            return "reject" if time.monotonic() - began_s < _LATE_S else "late reject"
        except TimeoutError:
            return "drop"
        except OSError as error:
            return str(error)


def _addresses(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except socket.gaierror as error:
        is_known = error.errno in {socket.EAI_NONAME, socket.EAI_NODATA}
        return ["no such name" if is_known else "no answer"]
    return sorted({str(address[0]) for *_, address in found})


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    _Server((sys.argv[1], PORT), _Requests).serve_forever()
