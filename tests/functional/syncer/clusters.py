# SPDX-License-Identifier: Apache-2.0
"""A super cluster, tenants' control planes, all fake, and a real vc-syncer process between them."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import yaml

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, Resource
from daemonkit.status.server import StatusError, fetch
from devkit.kube.apiserver import FakeApiserver, Seen
from devkit.kube.cluster import ClusterSettings
from devkit.kube.storage import Object, Selection
from devkit.pki import Authority
from tenancy import keys
from tests import waiting

ROOT = Path(__file__).resolve().parents[3]
# The machine may be busy with other tests.
DEADLINE_S = 60.0


class RecordingApiserver:
    """A fake API server with an authority of its own, which keeps the rules of a cluster if it has `rules`.

    `requests` has all that the syncer sent; `on_request` may refuse one.
    """

    def __init__(self, name: str, rules: ClusterSettings | None = None) -> None:
        self.authority = Authority.create(name)
        self.key = name
        self.leaf = self.authority.issue("vc-syncer", usages=["client"])
        self.requests: list[Seen] = []
        self.on_request: Callable[[Seen], bool] = lambda _: True
        self._rules = rules
        self.server = self._new_server()

    def _new_server(self) -> FakeApiserver:
        return FakeApiserver(
            authority=self.authority,
            client_ca_pem=self.authority.cert_pem,
            authorize=self._note,
            cluster=self._rules,
        )

    async def wipe(self) -> None:
        """Come back at the same address with an empty storage."""
        await self.server.stop()
        port, self.server = self.server.port, self._new_server()
        self.server.port = port
        await self.server.start()

    def _note(self, seen: Seen) -> bool:
        self.requests.append(seen)
        return self.on_request(seen)

    def writes(self, resource: Resource, verb: str, subresource: str = "") -> list[Seen]:
        """The requests of a kind."""
        asked = (resource, verb, subresource)
        return [each for each in self.requests if (each.resource, each.verb, each.subresource) == asked]

    @property
    def storage(self) -> Any:
        return self.server.storage

    def kubeconfig(self) -> str:
        return self.server.kubeconfig(self.leaf)

    def objects(self, resource: Resource, namespace: str = "") -> dict[tuple[str, str], Object]:
        """The objects of a kind, by namespace and name."""
        found = self.storage.select(Selection(resource, namespace))
        return {(each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in found}

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self.objects(resource, namespace).get((namespace, name))

    def create_namespace(self, name: str, **metadata: Any) -> Object:
        created: Object = self.storage.create(NAMESPACES, {"metadata": {"name": name, **metadata}})
        return created

    def create_config_map(self, namespace: str, name: str, data: dict[str, str]) -> Object:
        created: Object = self.storage.create(
            CONFIG_MAPS, {"metadata": {"namespace": namespace, "name": name}, "data": data}
        )
        return created


class SyncedClusters:
    """Everything lies in `directory`; the log is `log`. Tenants come from a directory of kubeconfigs."""

    def __init__(
        self,
        directory: Path,
        keys_of_tenants: tuple[str, ...],
        settings: dict[str, Any] | None = None,
        rules: ClusterSettings | None = None,
    ) -> None:
        self.directory = directory
        self.super = RecordingApiserver("super", rules)
        self.tenants = {key: RecordingApiserver(key, rules) for key in keys_of_tenants}
        self.settings = settings or {}
        self.log = directory / "syncer.log"
        self.socket = directory / "status.sock"
        self.process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "SyncedClusters":
        for plane in (self.super, *self.tenants.values()):
            await plane.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        for plane in (self.super, *self.tenants.values()):
            await plane.server.stop()

    def write_config(self) -> Path:
        (self.directory / "super.kubeconfig").write_text(self.super.kubeconfig())
        tenants = self.directory / "tenants"
        tenants.mkdir(exist_ok=True)
        for key, plane in self.tenants.items():
            (tenants / f"{key}.kubeconfig").write_text(plane.kubeconfig())
        document = {
            "apiVersion": keys.API_VERSION,
            "kind": "SyncerConfiguration",
            "superCluster": {"kubeconfigFile": str(self.directory / "super.kubeconfig")},
            "tenants": {"directory": str(tenants)},
            "status": {"socket": str(self.socket)},
        }
        path = self.directory / "config.yaml"
        path.write_text(yaml.safe_dump(document | self.settings))
        return path

    async def start(self, *, waits_until_ready: bool = True, launcher: tuple[str, ...] = ()) -> None:
        """Start the syncer, and wait until all tenants are synced. `launcher` is a module that runs it."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *launcher, "syncer"),
                *("--config", str(self.write_config())),
                cwd=ROOT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if waits_until_ready:
            await self.until_ready()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the syncer; returns its exit code."""
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(number)
        return await asyncio.wait_for(process.wait(), DEADLINE_S)

    async def is_ready(self) -> bool:
        with contextlib.suppress(StatusError, OSError):
            code, _ = await self._fetch("/readyz")
            return code == 200
        return False

    async def readiness(self) -> list[str]:
        """The lines of `/readyz`."""
        _, body = await self._fetch("/readyz")
        return body.decode().splitlines()

    async def status(self) -> dict[str, Any]:
        _, body = await self._fetch("/status")
        found: dict[str, Any] = json.loads(body)
        return found

    async def until_status(self, condition: Callable[[Any], object], within_s: float = DEADLINE_S) -> Any:
        """Wait for a condition of `/status` by tenant; returns that part of the page."""
        return (await self.until_page(lambda found: condition(found["tenants"]), within_s))["tenants"]

    async def until_page(
        self, condition: Callable[[dict[str, Any]], object], within_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        """Wait for a condition of `/status`; returns that page."""
        end = asyncio.get_running_loop().time() + within_s
        while True:
            found = await self.status()
            if condition(found):
                return found
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"not within {within_s} s, last seen:\n{found}\n{self._tail()}")
            await asyncio.sleep(0.02)  # pace: the page is asked for again

    async def _fetch(self, path: str) -> tuple[int, bytes]:
        return await asyncio.to_thread(fetch, self.socket, path, 5.0)

    async def until(self, condition: Callable[[], object], within_s: float = DEADLINE_S) -> None:
        await waiting.until(condition, within_s=within_s, context=self._tail)

    async def until_ready(self) -> None:
        end = asyncio.get_running_loop().time() + DEADLINE_S
        while not await self.is_ready():
            if self.process is not None and self.process.returncode is not None:
                raise AssertionError(f"the syncer has ended:\n{self._tail()}")
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"the syncer is not ready within {DEADLINE_S} s:\n{self._tail()}")
            await asyncio.sleep(0.02)  # pace: the page is asked for again

    def _tail(self) -> str:
        return "\n".join(self.log.read_text().splitlines()[-40:])


@contextlib.asynccontextmanager
async def synced_clusters(
    directory: Path, *tenants: str, rules: ClusterSettings | None = None, **settings: Any
) -> AsyncIterator[SyncedClusters]:
    """Start all; the syncer last, with `settings` in its configuration."""
    async with SyncedClusters(directory, tenants or ("acme",), settings, rules) as clusters:
        yield clusters
