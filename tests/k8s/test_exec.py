# SPDX-License-Identifier: Apache-2.0
"""`kubectl exec` in a tenant's own pods, by both protocols of streams."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.processes import wait_for

_MEGABYTE = 1 << 20
_IN_WEB = ("exec", "web", "-c", "main")


def test_output(streaming: Kubectl) -> None:
    result = streaming(*_IN_WEB, "--", "sh", "-c", "echo out; echo err >&2").check()
    assert (result.out, result.err) == (b"out\n", b"err\n")


@pytest.mark.parametrize("code", [1, 7, 126])
def test_exit_code(streaming: Kubectl, code: int) -> None:
    assert streaming(*_IN_WEB, "--", "sh", "-c", f"exit {code}").code == code


def test_arguments_arrive_as_they_are(streaming: Kubectl) -> None:
    arguments = ["a b", "c&d=e", "%20+;#?", '"quoted"', "ümläut", "", "-x", "/../"]
    result = streaming(*_IN_WEB, "--", "sh", "-c", 'printf "<%s>" "$@"', "sh", *arguments).check()
    assert result.text == "".join(f"<{a}>" for a in arguments)


def test_a_program_that_is_not_there(streaming: Kubectl) -> None:
    result = streaming(*_IN_WEB, "--", "/no/such/program")
    assert result.code != 0
    assert "no such file or directory" in result.error_text


def test_a_container_that_has_ended(streaming: Kubectl) -> None:
    result = streaming("exec", "web", "-c", "setup", "--", "true")
    assert result.code == 1
    # The kubelet returns 500 here; the user must get the reason, without the super cluster's names.
    assert "container is not running" in result.error_text
    assert "tenant-1" not in result.error_text


def test_a_session_of_the_kubelets_is_resumed(served: Ring, streaming: Kubectl) -> None:
    """Go's session ticket has the client's certificate, by which the kubelet recognises the agent."""
    series = 'vcnode_vnagent_kubelet_handshakes_total{kind="resumed"}'

    def resumes() -> bool:
        before = served.agent.series(series)
        for _ in range(2):
            streaming(*_IN_WEB, "--", "true").check()
        # Behind each stream a connection is dialled ahead, for the next one.
        return served.agent.series(series) > before

    wait_for("a stream resumes a session", resumes, timeout_s=30)
    # Its own connection is that one, which was dialled ahead.
    assert streaming(*_IN_WEB, "--", "echo", "known").check().out == b"known\n"


def test_other_container(streaming: Kubectl) -> None:
    result = streaming("exec", "web", "-c", "side", "--", "cat", "/proc/1/cmdline").check()
    assert result.out == b"sleep\x00100000\x00"


def test_a_megabyte_there_and_back(streaming: Kubectl) -> None:
    content = random.Random(1).randbytes(_MEGABYTE)  # noqa: S311 - test data
    assert streaming(*_IN_WEB, "-i", "--", "cat", stdin=content).check().out == content


def test_end_of_input_ends_the_command(streaming: Kubectl) -> None:
    result = streaming(*_IN_WEB, "-i", "--", "wc", "-c", stdin=b"12345").check()
    assert result.text.strip() == "5"


def test_output_is_not_cut_at_the_end(streaming: Kubectl) -> None:
    # The last bytes before the exit code are the ones that a hasty close loses.
    result = streaming(*_IN_WEB, "--", "sh", "-c", "yes | head -c 3000000; exit 3")
    assert (result.code, len(result.out)) == (3, 3_000_000)


def test_terminal_and_resize(streaming: Kubectl) -> None:
    with _terminal(streaming, rows=31, columns=97) as terminal:
        # A size travels on a stream of its own, the first one too: ask until it is there.
        terminal.type("until [ \"$(stty size)\" = '31 97' ]; do sleep 0.1; done; echo si'z'ed\n")
        terminal.wait_for("sized")
        terminal.resize(rows=22, columns=111)
        terminal.type("until [ \"$(stty size)\" = '22 111' ]; do sleep 0.1; done; echo re'siz'ed\n")
        terminal.wait_for("resized")
        terminal.type("tty && echo is'-'tty; exit 5\n")
        terminal.wait_for("is-tty")
        assert terminal.process.wait(10) == 5


@dataclass(slots=True)
class _KubectlTerminal:
    """The near end of a kubectl that has a terminal."""

    process: subprocess.Popen[bytes]
    master: int
    slave: int
    seen: bytearray = field(default_factory=bytearray)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def resize(self, *, rows: int, columns: int) -> None:
        _set_size(self.slave, rows, columns)
        # A real terminal signals its foreground process; this one has none.
        self.process.send_signal(signal.SIGWINCH)

    def wait_for(self, text: str, timeout_s: float = 15.0) -> None:
        deadline = time.monotonic() + timeout_s
        while text.encode() not in self.seen:
            readable, _, _ = select.select([self.master], [], [], deadline - time.monotonic())
            assert readable, f"{text!r} is not in {bytes(self.seen)!r}"
            self.seen += os.read(self.master, 65536)
        del self.seen[: self.seen.index(text.encode()) + len(text)]


@contextmanager
def _terminal(kubectl: Kubectl, *, rows: int, columns: int) -> Iterator[_KubectlTerminal]:
    master, slave = pty.openpty()
    _set_size(slave, rows, columns)
    process = subprocess.Popen(
        kubectl.argv(*_IN_WEB, "-it", "--", "sh"),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=kubectl.environment,
    )
    try:
        yield _KubectlTerminal(process, master, slave)
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def _set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
