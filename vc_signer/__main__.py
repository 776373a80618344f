# SPDX-License-Identifier: Apache-2.0
"""`python -m vc_signer --keys DIRECTORY --socket PATH`."""

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence

from daemonkit import logs
from vc_signer import arguments, endpoint
from vc_signer.arguments import OWN_UID
from vc_signer.key_ring import KeyRing
from vc_signer.server import SignerServer
from vc_signer.service import SignerService

EXIT_STOPPED, EXIT_FAILED = 0, 1

_log = logs.get(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Sign until SIGTERM or SIGINT. Returns the exit code."""
    parsed = arguments.parse(sys.argv[1:] if argv is None else argv)
    logs.setup(has_libraries=False)
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    stopping: list[int] = []
    signal.set_wakeup_fd(waker.fileno())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stopping.append(number))
    uid = os.geteuid() if parsed.peer_uid == OWN_UID else parsed.peer_uid
    try:
        ring = KeyRing(parsed.keys, time.time_ns)
        ring.reload()
        listener = endpoint.listen(parsed.socket, is_shared=uid != os.geteuid())
        probes = endpoint.listen_for_probes(parsed.probe_port) if parsed.probe_port else None
    except OSError as error:
        _log.error("cannot start", error=error)
        return EXIT_FAILED
    _log.info("started", socket=parsed.socket, peer_uid=uid, probe_port=parsed.probe_port)
    server = SignerServer(
        ring, SignerService(ring, parsed), listener, probes, path=parsed.socket, allowed_uid=uid
    )
    server.run(lambda: bool(stopping), woken.fileno())
    _log.info("stopped")
    return EXIT_STOPPED


if __name__ == "__main__":
    sys.exit(main())
