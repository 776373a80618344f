# SPDX-License-Identifier: Apache-2.0
"""A fake of a guest's virtio-vsock, which User-mode Linux lacks: real AF_VSOCK in this kernel up to this
process, and from here a link to the VMM's process on the node.

Arguments: the port to listen on, and the VMM's host and port.
"""

import contextlib
import socket
import sys
import threading

_BUFFER_BYTES = 1 << 16


def main() -> None:
    port, host, host_port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    listener = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    listener.bind((socket.VMADDR_CID_ANY, port))
    listener.listen(8)
    while True:
        near, _ = listener.accept()
        try:
            far = socket.create_connection((host, host_port), 5)
        except OSError:
            near.close()
            continue
        far.settimeout(None)
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_BUFFER_BYTES):
            sink.sendall(data)
    for each in (sink, source):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    main()
