# SPDX-License-Identifier: Apache-2.0
"""A unix socket that leads to the node over AF_VSOCK, which grpcio cannot dial itself.

What passes is TLS. One connection at a time: the agent has no more.
"""

import contextlib
import socket
import threading
from pathlib import Path

from daemonkit import logs

_DIAL_S = 10.0
_BUFFER_BYTES = 1 << 16

_log = logs.get(__name__)


class VsockDoor:
    """Listens on `path` and joins what comes with (cid, port), in threads that end with the process."""

    def __init__(self, path: Path, cid: int, port: int) -> None:
        """Raises `OSError`."""
        self._address = (cid, port)
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen(2)
        threading.Thread(target=self._accept, name="vsock", daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            try:
                far.settimeout(_DIAL_S)
                far.connect(self._address)
                far.settimeout(None)
            except OSError as error:
                # The end is what grpc sees, and tries again with its own patience.
                _log.debug("no way to the node", vsock=self._address, error=error)
                near.close()
                far.close()
                continue
            threading.Thread(target=join, args=(near, far), name="vsock", daemon=True).start()


def join(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes both ways until either side ends, then end both."""
    back = threading.Thread(target=_pump, args=(other, one), name="vsock", daemon=True)
    back.start()
    _pump(one, other)
    back.join()
    one.close()
    other.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    # Reset by either side is an end too, and the other side is told of it.
    with contextlib.suppress(OSError):
        while data := source.recv(_BUFFER_BYTES):
            sink.sendall(data)
    for each in (sink, source):
        # The other direction's thread waits in recv on these.
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
