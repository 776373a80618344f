# SPDX-License-Identifier: Apache-2.0
"""The static source of guests: a directory of files, for labs, demos and nodes without a container runtime.

A file that becomes invalid is reported and keeps its guest as it was; only its removal removes the guest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from daemonkit.config import binding
from daemonkit.config.binding import ConfigError, setting
from daemonkit.files.watched import FilesError, Watched
from kata_bridge.sandboxes.core.runtimes import CHANNELS
from kata_bridge.sandboxes.core.sandbox import Sandbox, is_sandbox_id
from tenancy import keys, names

KIND = "Guest"
_SUFFIXES = (".yaml", ".json")


@dataclass(frozen=True, slots=True)
class GuestFile:
    """One guest; `id` defaults to the file's name without its suffix."""

    namespace: str = setting(minimum_length=1, doc="of the pod, in the super cluster")
    name: str = setting(minimum_length=1, doc="of the pod, in the super cluster")
    id: str = setting("", doc="sandbox id; empty: the file's name without its suffix")
    uid: str = setting("", doc="UID of the pod in the super cluster")
    tenant: str = setting("", doc="cluster key; empty: a pod of the super cluster itself")
    tenant_namespace: str = setting("", doc="of the pod, in the tenant")
    tenant_name: str = setting("", doc="of the pod, in the tenant")
    networks: tuple[str, ...] = setting((keys.DEFAULT_NETWORK,), doc="the pod's networks")
    ips: tuple[str, ...] = setting((), doc="the pod's addresses")
    runtime_handler: str = setting("", doc="handler of its RuntimeClass; empty: the default one")
    netns: Path | None = setting(None, doc="path of its network namespace, for the channel netns")
    channels: tuple[str, ...] = setting((), choices=CHANNELS, doc="default: netns with netns, else agent")

    def problems(self) -> Iterator[str]:
        if self.id and not is_sandbox_id(self.id):
            yield "id: letters, digits, dots, dashes and underscores, at most 128"
        if not names.is_dns_label(self.namespace):
            yield "namespace: expected the name of a namespace"
        if not names.is_pod_name(self.name):
            yield "name: expected the name of a pod"
        if not self.networks:
            yield "networks: at least one"
        refusal = names.check_key(self.tenant) if self.tenant else None
        if refusal is not None:
            yield f"tenant: {refusal.reason}"
        if "netns" in self.channels and self.netns is None:
            yield "netns: needed for the channel netns"


class GuestDirectory:
    """Guests by id out of `*.yaml` and `*.json`; hidden files and other names are not read."""

    def __init__(self, directory: Path) -> None:
        self.problems: dict[str, str] = {}
        self._directory = directory
        self._watched = Watched(self._paths)
        self._good: dict[Path, Sandbox] = {}

    def _paths(self) -> list[Path]:
        return [
            path
            for path in self._directory.iterdir()
            if path.suffix in _SUFFIXES and not path.name.startswith(".")
        ]

    def poll(self) -> bool:
        """Look at the files, and return whether any has changed since the last time."""
        return self._watched.poll()

    def read(self) -> Mapping[str, Sandbox]:
        """All guests. Raises `FilesError` if the directory cannot be read."""
        content = self._watched.snapshot()
        bad = dict(self._watched.problems)
        good: dict[Path, Sandbox] = {}
        for path, data in content.items():
            try:
                good[path] = parse(data, path)
            except ConfigError as error:
                bad[path] = "; ".join(error.errors)
        for path in bad:
            if path in self._good:
                good[path] = self._good[path]
        found: dict[str, Sandbox] = {}
        for path, sandbox in sorted(good.items()):
            if sandbox.id in found:
                bad[path] = f"another file has the id {sandbox.id}"
            else:
                found[sandbox.id] = sandbox
        self._good = good
        self.problems = {path.name: problem for path, problem in sorted(bad.items())}
        return found


def parse(data: bytes, path: Path) -> Sandbox:
    """Read one file. Raises `ConfigError`."""
    file = binding.parse(data, GuestFile, kind=KIND, source=str(path), directory=path.parent)
    sandbox_id = file.id or path.stem
    if not is_sandbox_id(sandbox_id):
        raise ConfigError(str(path), ("id: the file's name is not a valid id; give one",))
    return Sandbox(
        id=sandbox_id,
        namespace=file.namespace,
        name=file.name,
        uid=file.uid or sandbox_id,
        tenant=file.tenant,
        tenant_namespace=file.tenant_namespace,
        tenant_name=file.tenant_name or (file.name if file.tenant else ""),
        networks=file.networks,
        ips=file.ips,
        runtime_handler=file.runtime_handler,
        netns=str(file.netns) if file.netns is not None else "",
        channels=file.channels or (("netns",) if file.netns is not None else ("agent",)),
    )


__all__ = ["FilesError", "GuestDirectory", "GuestFile", "parse"]
