# SPDX-License-Identifier: Apache-2.0
"""A program of the demo as a process. Requests and replies are JSON lines."""

import json
import subprocess
import sys
from types import ModuleType
from typing import Any

DEADLINE_S = 30.0


class JsonProgram:
    """Runs with the standard library alone, as the demo starts it."""

    def __init__(self, module: ModuleType, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(module.__file__), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, verb: str, *arguments: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({verb: arguments}) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        reply: dict[str, Any] = json.loads(self.process.stdout.readline())
        return reply

    def call(self, verb: str, *arguments: object) -> dict[str, Any]:
        self.send(verb, *arguments)
        return self.receive()

    def close(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.stdout.close()
