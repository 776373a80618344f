# SPDX-License-Identifier: Apache-2.0
"""One guest: a kernel of its own as a process of this machine, and the command server in it."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import waiting
from tests.lab.namespaces import LabNamespace
from tests.lab_vm.image import AGENT, Image
from tests.lab_vm.inside import command_server
from tests.lab_vm.kernels import GuestKernel

DEADLINE_S = 60.0
# Longer than the command server waits for a program.
_PROGRAM_S = 100.0
# Room for Python twice, with the packages of the command server and of the node that one test starts, for
# iptables, and for the kernel itself.
_MEMORY = "160M"


class GuestError(Exception):
    """The guest ended, or does not respond; the text has the end of its console."""


@dataclass(frozen=True, slots=True)
class FinishedProgram:
    """How a program in the guest ended."""

    status: int
    output: str
    errors: str


class Machine:
    """A guest in `directory`, with taps in `node`: `pod_tap` into its VPC, `link_tap` to the node."""

    def __init__(
        self,
        name: str,
        directory: Path,
        kernel: GuestKernel,
        image: Image,
        node: LabNamespace,
        *,
        taps: tuple[str, str],
        number: int,
        link_address: str,
    ) -> None:
        self.name = name
        self.link_address = link_address
        self._directory = directory
        self._kernel = kernel
        self._image = image
        self._node = node
        self._taps = taps
        self._number = number
        self._process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        """When its kernel was started, in seconds since the epoch."""

    @property
    def root(self) -> Path:
        return self._directory / "root"

    def start(self) -> None:
        """Start the kernel. Does not wait for it."""
        # A process namespace of its own, so that the kernel's processes all end with its first.
        script = "\n".join(
            [
                "set -e",
                *self._image.mounts(self.root),
                f"exec {shlex.join(self._command())}",
            ]
        )
        argv = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork"]
        argv += ["--kill-child=KILL", "--mount-proc", "sh", "-c", script]
        # The directory of an earlier kernel; otherwise this one reports that it is in use.
        shutil.rmtree(self._directory / self.name, ignore_errors=True)
        self.started_at = time.time()
        with self._console.open("ab") as console:
            self._process = subprocess.Popen(
                self._node.command(*argv),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={"PATH": self._node.environment["PATH"], "TMPDIR": "/dev/shm"},  # noqa: S108 - its memory
            )

    def _command(self) -> list[str]:
        devices = [
            f"vec{index}:transport=tap,ifname={tap},depth=64,gro=1,mac=52:54:00:0{index}:00:{self._number:02x}"
            for index, tap in enumerate(self._taps)
        ]
        # A fixed hardware address: otherwise neighbours have the old one for a while after a restart.
        return [
            str(self._kernel.program),
            *self._kernel.arguments,
            f"mem={_MEMORY}",
            # hostfs means no device: a kernel without block devices searches for none.
            "root=hostfs",
            "rootfstype=hostfs",
            f"rootflags={self.root}",
            "rw",
            "init=/init",
            "quiet",
            "con=null",
            "con0=null,fd:1",
            *devices,
            f"umid={self.name}",
            f"uml_dir={self._directory}/",
        ]

    def stop(self) -> None:
        """End the kernel at once."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(DEADLINE_S)
        self._process = None

    @property
    def _console(self) -> Path:
        return self._directory / "console"

    def console(self) -> str:
        """The output of kernel, init and agent."""
        return self._console.read_text(errors="replace")

    def share_credentials(self, credentials: Path) -> None:
        """Replace the directory of credentials that the guest sees, in one step."""
        share = self.root / "share"
        new = share / "new"
        new.mkdir()
        for file in credentials.iterdir():
            (new / file.name).write_bytes(file.read_bytes())
        if (share / "credentials").exists():
            (share / "credentials").rename(share / f"old-{time.monotonic_ns()}")
        new.rename(share / "credentials")

    # ---- through the command server

    def run(self, *argv: str, stdin: str = "") -> FinishedProgram:
        """Run a program in the guest to its end."""
        reply = self._request({"run": list(argv), "stdin": stdin}, wait_s=_PROGRAM_S)
        return FinishedProgram(reply["status"], reply["output"], reply["errors"])

    def output(self, *argv: str, stdin: str = "") -> str:
        """The output of a program in the guest; it must succeed."""
        ended = self.run(*argv, stdin=stdin)
        assert ended.status == 0, f"{self.name}: {shlex.join(argv)}: {ended.errors}"
        return ended.output

    def python(self, module: str, *argv: str) -> FinishedProgram:
        """Run a module of the repository, with this environment's packages, in the guest to its end."""
        words = ["env", "PYTHONPATH=/repository:/packages", "python3", "-S", "-m", module]
        return self.run(*words, *argv)

    def kill_agent(self) -> None:
        """Kill the agent as a crash would; init starts it again."""
        self.output("kill", "-KILL", str(self.agent_pid()))

    def agent_pid(self) -> int:
        """The agent's process, which may be about to be started again."""
        # The script that starts it does not match.
        words = ("pgrep", "--oldest", "--full", f"python3 .*{AGENT}")
        self.until(lambda: self.run(*words).status == 0, "running an agent")
        return int(self.output(*words))

    def reboot(self) -> None:
        """Restart the kernel in the same process.

        Its cards are shut first: User-mode Linux keeps their files open, and cannot open them twice.
        """
        script = "sleep 0.1; ip link set vec0 down; ip link set vec1 down; echo b >/proc/sysrq-trigger"
        self.output("sh", "-c", f"({script}) >/dev/null 2>&1 &")

    def lose_power(self) -> None:
        """Kill the kernel, and start another."""
        self.stop()
        self.start()

    def ends(
        self, ip: str, port: int, kind: str = "tcp", *, times: int = 1, source_port: int = 0
    ) -> Sequence[str]:
        """Where connections of the guest end: servers' addresses, or `reject`, `late reject`, `drop`."""
        request = {"connect": [ip, port, kind], "times": times, "source_port": source_port}
        found: list[str] = self._request(request)["ends"]
        return found

    def end(self, ip: str, port: int, kind: str = "tcp") -> str:
        return self.ends(ip, port, kind)[0]

    def addresses(self, name: str) -> list[str]:
        """The addresses of a name that a program of the guest's start finds, or its error."""
        found: list[str] = self._request({"lookup": name})["ends"]
        return found

    def records(self, name: str, kind: str) -> tuple[str, ...]:
        """The response of the guest's DNS server for a name: its code, then the records."""
        response = json.loads(self.output("python3", "-IS", "/inside/records.py", name, kind))
        return response["code"], *response["records"]

    def is_up(self) -> bool:
        """Whether the command server responds."""
        try:
            self._request({"run": ["true"]}, wait_s=2.0)
        except (OSError, ValueError):
            return False
        return True

    def until(self, condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> float:
        """Wait for a condition; return how long it took, in seconds."""
        began_s = time.monotonic()
        while not condition():
            if time.monotonic() - began_s > deadline_s:
                seen = waiting.failure(condition, deadline_s)
                raise GuestError(
                    f"{self.name}: not {what}; {seen}\nits console ends:\n{self.console()[-4000:]}"
                )
            if self._process is None or self._process.poll() is not None:
                raise GuestError(f"{self.name} ended; its console ends:\n{self.console()[-4000:]}")
            time.sleep(0.02)
        return time.monotonic() - began_s

    def _request(self, request: object, wait_s: float = DEADLINE_S) -> dict[str, Any]:
        """One request. Raises `OSError`, and `ValueError` for a connection that ended early."""
        with self._node.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
            made.settimeout(wait_s)
            made.connect((self.link_address, command_server.PORT))
            made.sendall(json.dumps(request).encode() + b"\n")
            with made.makefile("rb") as lines:
                reply: dict[str, Any] = json.loads(lines.readline())
        return reply
