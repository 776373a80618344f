# SPDX-License-Identifier: Apache-2.0
"""Starts a vc-syncer by fork for each line on stdin, and prints its pid: a start without Python's imports."""

import os
import signal
import sys
from pathlib import Path

from syncer.__main__ import main


def serve(config: str, log: Path) -> None:
    """Fork until stdin ends. Children that end are nobody's to wait for."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with log.open("ab") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            os._exit(main(["--config", config]))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
