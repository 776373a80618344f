# SPDX-License-Identifier: Apache-2.0
"""A real kubectl, run inside a network namespace as one user of one cluster."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import SYSTEM_PATH

_TIMEOUT_S = 45.0


@dataclass(frozen=True, slots=True)
class KubectlResult:
    """The exit code and output of a command."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode()

    @property
    def error_text(self) -> str:
        """Standard error as text."""
        return self.err.decode()

    def check(self) -> KubectlResult:
        """Fail the test when the command failed."""
        assert self.code == 0, f"kubectl: exit {self.code}: {self.error_text}{self.text[-500:]}"
        return self


@dataclass(frozen=True, slots=True)
class Kubectl:
    """One user at one apiserver. `websockets` chooses the stream protocol, else it is SPDY."""

    network: NetworkNamespace
    binary: str
    kubeconfig: Path
    namespace: str = "default"
    websockets: bool = True

    def argv(self, *arguments: str) -> list[str]:
        """The whole command line, the way into the namespace included."""
        return [
            *self.network.enter,
            self.binary,
            f"--kubeconfig={self.kubeconfig}",
            f"--namespace={self.namespace}",
            *arguments,
        ]

    @property
    def environment(self) -> dict[str, str]:
        """All that the command may know of its surroundings."""
        choice = "true" if self.websockets else "false"
        return {
            "PATH": SYSTEM_PATH,
            "HOME": str(self.kubeconfig.parent),
            "TERM": "xterm",
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": choice,
            "KUBECTL_PORT_FORWARD_WEBSOCKETS": choice,
        }

    def __call__(
        self, *arguments: str, stdin: bytes | None = None, timeout_s: float = _TIMEOUT_S
    ) -> KubectlResult:
        """Run to the end."""
        done = subprocess.run(
            self.argv(*arguments),
            input=b"" if stdin is None else stdin,
            capture_output=True,
            env=self.environment,
            timeout=timeout_s,
            check=False,
        )
        return KubectlResult(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start without waiting; the caller ends it."""
        return subprocess.Popen(
            self.argv(*arguments),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
