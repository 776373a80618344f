# SPDX-License-Identifier: Apache-2.0
"""Starts a vc-syncer by fork for each line on stdin: a start without Python's imports.

As a supervisor does, it waits for the end of the last one first: what is killed listens on its status socket
until it has ended, and the next one refuses to start beside it. Prints how the last one ended, as an exit
code or less than 0 for a signal (that of SIGKILL also for the first), and the new one's pid. Kills the last
one once stdin ends.
"""

import os
import signal
import sys
from pathlib import Path

from syncer.__main__ import main


def serve(config: str, log: Path) -> None:
    """Fork until stdin ends."""
    pid = 0
    for _ in sys.stdin:
        ended = _wait(pid) if pid else -signal.SIGKILL
        pid = os.fork()
        if pid == 0:
            with log.open("ab") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            os._exit(main(["--config", config]))
        sys.stdout.write(f"{ended} {pid}\n")
        sys.stdout.flush()
    if pid:
        os.kill(pid, signal.SIGKILL)
        _wait(pid)


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
