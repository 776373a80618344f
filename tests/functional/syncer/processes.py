# SPDX-License-Identifier: Apache-2.0
"""One vc-syncer process of a test: its configuration, its status pages, its end."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from daemonkit.status.server import StatusError, fetch
from tenancy import keys
from tests import waiting

ROOT = Path(__file__).resolve().parents[3]
# The machine may be busy with other tests.
DEADLINE_S = 60.0


class SyncerProcess:
    """`settings` is its configuration without the kind and the status socket; all lies in `directory`."""

    def __init__(self, directory: Path, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.socket = directory / f"{name}.sock"
        self._config = directory / f"{name}.yaml"
        self._settings = settings
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *, waits_until_ready: bool = True) -> None:
        document = {
            "apiVersion": keys.API_VERSION,
            "kind": "SyncerConfiguration",
            "status": {"socket": str(self.socket)},
        }
        self._config.write_text(yaml.safe_dump(document | self._settings))
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "syncer", "--config", str(self._config)),
                cwd=ROOT,
                env={"POD_NAME": self.name, "PYTHONUNBUFFERED": "1"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if waits_until_ready:
            await self.until_ready()

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the process; returns its exit code."""
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
        return await asyncio.wait_for(process.wait(), DEADLINE_S)

    async def ready_page(self) -> tuple[int, str]:
        """The code and the lines of `/readyz`; 0 while nobody answers."""
        with contextlib.suppress(StatusError, OSError):
            code, body = await self._fetch("/readyz")
            return code, body.decode()
        return 0, ""

    async def status(self) -> dict[str, Any]:
        _, body = await self._fetch("/status")
        found: dict[str, Any] = json.loads(body)
        return found

    async def metrics(self) -> str:
        _, body = await self._fetch("/metrics")
        return body.decode()

    async def _fetch(self, path: str) -> tuple[int, bytes]:
        return await asyncio.to_thread(fetch, self.socket, path, 5.0)

    async def until(self, condition: Callable[[], object], within_s: float = DEADLINE_S) -> None:
        await waiting.until(condition, within_s=within_s, context=self.tail)

    async def until_status(
        self, condition: Callable[[dict[str, Any]], object], within_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        """Wait until the page `/status` is as it should be; returns it."""
        end = asyncio.get_running_loop().time() + within_s
        while True:
            found = await self.status()
            if condition(found):
                return found
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"the status stays {json.dumps(found, indent=1)}\n{self.tail()}")
            await asyncio.sleep(0.05)  # pace: the page is asked for again

    async def until_ready(self) -> None:
        end = asyncio.get_running_loop().time() + DEADLINE_S
        while (await self.ready_page())[0] != 200:
            if self.process is None or self.process.returncode is not None:
                raise AssertionError(f"the syncer has ended:\n{self.tail()}")
            if asyncio.get_running_loop().time() > end:
                _, page = await self.ready_page()
                raise AssertionError(f"not ready within {DEADLINE_S} s:\n{page}\n{self.tail()}")
            await asyncio.sleep(0.02)  # pace: the page is asked for again

    def tail(self) -> str:
        return "\n".join(self.log.read_text().splitlines()[-40:])
