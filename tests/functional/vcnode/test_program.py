# SPDX-License-Identifier: Apache-2.0
"""`vcnode` on a terminal, and with its output in a pipe."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

pytestmark = pytest.mark.functional

COMMAND = (sys.executable, "-m", "vcnode", "tenant", "list", "--directory")


def on_terminal(directory: Path, columns: int, **environment: str) -> list[str]:
    """The lines that a terminal of this width gets."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [*COMMAND, str(directory)], stdout=slave, env={"TERM": "xterm", **environment}
    ) as process:
        os.close(slave)
        written = bytearray()
        try:
            while data := os.read(master, 65536):
                written += data
        except OSError:  # EIO: the process has ended
            pass
        finally:
            os.close(master)
        assert process.wait(30) == 1
    return written.decode().splitlines()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "bad.yaml").write_text("kind: Tenant\n")
    return tmp_path


def test_terminal_gets_colours_and_its_width(directory: Path) -> None:
    for columns in (72, 80):
        line = on_terminal(directory, columns)[1]
        assert "\x1b[31mBAD\x1b[m: " in line
        assert line.endswith("\N{HORIZONTAL ELLIPSIS}")
        assert len(line) == columns + len("\x1b[31m\x1b[m")


def test_no_color_is_honoured(directory: Path) -> None:
    assert "\x1b" not in "".join(on_terminal(directory, 80, NO_COLOR="1"))


def test_pipe_gets_whole_lines_without_colours(directory: Path) -> None:
    found = subprocess.run([*COMMAND, str(directory)], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stdout.splitlines()[1].endswith("is not a DNS label of at most 63 characters")
