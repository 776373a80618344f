# SPDX-License-Identifier: Apache-2.0
"""A fake of `iptables-restore --noflush --verbose --wait`; lines of a script may make it misbehave.

Its output is buffered as a C library buffers what goes into a pipe. It writes what it committed into
`loaded` beside it, a line for each table: its process and the lines. A file `mode` beside it sets
how it differs from iptables-restore: "mute" echoes nothing, "noisy" prints much else, "locked" waits
for a lock on `lock`, "locked-old" prints that it waits.
"""

import fcntl
import os
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BUFFER_BYTES = 4_096
FOR_EVER_S = 600.0

buffered = bytearray()


def echo(data: bytes) -> None:
    buffered.extend(data)
    while len(buffered) >= BUFFER_BYTES:
        os.write(1, buffered[:BUFFER_BYTES])
        del buffered[:BUFFER_BYTES]


def fail(status: int, message: str) -> None:
    sys.stderr.write(message)
    sys.exit(status)


def act(number: int, line: str) -> None:
    """Execute a line that iptables does not have."""
    command, _, argument = line.partition(" ")
    if command == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif command == "hang":
        time.sleep(FOR_EVER_S)
    elif command == "sleep":
        time.sleep(float(argument))
    elif command == "quit":
        sys.exit(0)
    elif command == "refuse":
        fail(2, f"restore v0 (fake): Bad argument `{argument}'\n\nError occurred at line: {number}\n")


def lock(mode: str) -> None:
    if mode == "locked-old":
        sys.stderr.write("Another app is currently holding the xtables lock; waiting for it to exit...\n")
        sys.stderr.flush()
        time.sleep(FOR_EVER_S)
    elif mode == "locked":
        with (HERE / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)


def main() -> None:
    mode = (HERE / "mode").read_text() if (HERE / "mode").exists() else ""
    table: list[str] = []
    number = 0
    while data := sys.stdin.buffer.readline():
        number += 1
        line = data.decode().rstrip("\n")
        if mode == "noisy":
            os.write(1, b"#0;" + os.urandom(1) * 50_000)
            os.write(2, b"what is this \xff" * 5_000)
        if line.startswith("#"):
            if mode != "mute":
                echo(data)
        elif line.startswith("*"):
            lock(mode)
            table = [line]
        elif line == "COMMIT":
            with (HERE / "loaded").open("a") as file:
                file.write(f"{os.getpid()} {' '.join(table)}\n")
            table = []
        else:
            act(number, line)
            table.append(line)
    if table:
        fail(1, f"restore: COMMIT expected at line {number + 1}\n")
    os.write(1, buffered)


main()
