# SPDX-License-Identifier: Apache-2.0
"""vc-signer as a process, with the keys of a mounted Secret."""

import http.client
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from devkit.secret_mount import SecretMount
from tests import waiting
from tests.functional.scraped_node import free_port

ROOT = Path(__file__).resolve().parents[3]
# As a launcher of packaging/tree.py starts it.
_LAUNCH = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from vc_signer.__main__ import main; sys.exit(main())"
)


class SignerProcess:
    """One process, and what its clients need."""

    def __init__(self, directory: Path, files: Mapping[str, bytes], *options: str) -> None:
        self.socket = directory / "signer.sock"
        self.log = directory / "signer.log"
        self.keys = SecretMount(directory / "keys", files)
        self.port = free_port()
        self._argv = [
            *(sys.executable, "-ISEXno_debug_ranges", "-c", _LAUNCH, str(ROOT)),
            *("--keys", str(self.keys.directory), "--socket", str(self.socket)),
            *("--probe-port", str(self.port), *options),
        ]
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self._argv, stderr=log, env={})

    def wait_started(self) -> None:
        waiting.wait_until(lambda: self.probe()[0] != 0, context=self.text)

    def start_again(self) -> None:
        self.process = self._started()
        self.wait_started()

    def stop(self) -> int:
        """Returns the exit code."""
        self.process.terminate()
        return self.process.wait(10)

    def text(self) -> str:
        return self.log.read_text()

    def probe(self, path: str = "/readyz") -> tuple[int, str]:
        """Status and body; 0 where nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except ConnectionError:
            return 0, ""
        finally:
            connection.close()

    def private_kb(self) -> int:
        """Memory that no other process shares."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
