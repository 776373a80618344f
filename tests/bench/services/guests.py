# SPDX-License-Identifier: Apache-2.0
"""Guests: network namespaces with our agent in them, each with a packet filter of its choice.

A guest has a /run of its own, as a VM has: legacy iptables locks a file there, and 30 guests would
wait for each other. Programs that are hidden from a guest decide which of iptables and nft it has.
"""

import enum
import functools
import re
import shlex
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.bench.processes import RunError
from tests.bench.services.watcher import EndpointWatcher, LegacyWatcher, NftWatcher
from tests.k8s.ring import network
from tests.k8s.ring.processes import RingProcess, run
from tests.lab.namespaces import SYSTEM_PATH, LabNamespace

_ALTERNATIVES = Path("/etc/alternatives")
_TOOLS = [f"{family}{name}" for family in ("iptables", "ip6tables") for name in ("", "-save", "-restore")]
_NFT_PROGRAM = Path("/usr/sbin/nft")


class GuestFilter(enum.Enum):
    """A guest's packet filter; our agent chooses `nft` where everything is installed."""

    NFT = "nft"
    LEGACY = "legacy"
    IPTABLES_NFT = "iptables-nft"

    @property
    def variant(self) -> str:
        """The variant of the guest's iptables: of `iptables-<variant>`."""
        return "legacy" if self is GuestFilter.LEGACY else "nft"

    def watcher(self, namespace: LabNamespace) -> EndpointWatcher:
        return LegacyWatcher(namespace) if self is GuestFilter.LEGACY else NftWatcher(namespace)


@dataclass(slots=True)
class BenchGuest:
    """One guest; `agent` is its agent's process while that runs."""

    number: int
    namespace: LabNamespace
    watcher: EndpointWatcher
    agent: RingProcess | None = None
    started_s: float = 0.0

    @property
    def id(self) -> str:
        return self.namespace.name

    @property
    def ip(self) -> str:
        return f"10.9.{self.number // 200}.{1 + self.number % 200}"


def create(prefix: str, numbers: Iterable[int], kind: GuestFilter, directory: Path) -> list[BenchGuest]:
    """Make namespaces, quickly. `delete` removes them."""
    found = list(numbers)
    names = [f"{prefix}-g{number}" for number in found]
    run(["ip", "-batch", "-"], stdin="\n".join(f"netns add {name}" for name in names).encode())
    guests = []
    for number, name in zip(found, names, strict=True):
        run(["ip", "-n", name, "link", "set", "lo", "up"])
        environment = {"PATH": SYSTEM_PATH, "XTABLES_LOCKFILE": str(directory / f"{name}.lock")}
        namespace = LabNamespace(name, environment)
        guests.append(BenchGuest(number, namespace, kind.watcher(namespace)))
    return guests


def delete(guests: Iterable[BenchGuest]) -> None:
    """End the processes of guests, and remove them."""
    removed = list(guests)
    for guest in removed:
        if guest.agent is not None:
            guest.agent.stop()
        guest.watcher.close()
    network.delete([guest.id for guest in removed])


def file(guest: BenchGuest, tenant: str, **more: object) -> str:
    """Its file for kata-bridge."""
    document: dict[str, object] = {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "Guest",
        "namespace": f"{tenant}-default",
        "name": guest.id,
        "tenant": tenant,
        "tenantNamespace": "default",
        "ips": [guest.ip],
        **more,
    }
    return yaml.safe_dump(document)


def start_agent(
    guest: BenchGuest, kind: GuestFilter, program: list[str], node: Path, credentials: Path, directory: Path
) -> None:
    """Start the agent of a guest, which dials `node`, a unix socket."""
    _hide(kind, directory)
    command = [
        *program,
        *("--node", f"unix:{node}", "--credentials", str(credentials)),
        *("--state", "/run/vcnode-guest", "--resolv-conf", "/run/resolv.conf"),
    ]
    lines = ["mount -t tmpfs tmpfs /run", *_mounts(kind, directory), f"exec {shlex.join(command)}"]
    guest.started_s = time.time()
    guest.agent = RingProcess(
        f"agent of {guest.id}",
        guest.namespace.command("unshare", "--mount", "sh", "-ec", "\n".join(lines)),
        directory / f"{guest.id}.log",
        directory=Path(__file__).parents[3],
    )


def _mounts(kind: GuestFilter, directory: Path) -> list[str]:
    if kind is GuestFilter.NFT:
        return []
    return [
        f"mount --bind {_alternatives(kind, directory)} {_ALTERNATIVES}",
        *(f"mount --bind /dev/null {path}" for path in _nft()),
    ]


@functools.cache
def _nft() -> list[str]:
    """The program and the library of nft."""
    library = re.search(r"libnftables\.so\.1 .* => (\S+)", run(["ldconfig", "-p"]).decode())
    if library is None or not _NFT_PROGRAM.exists():
        raise RunError("this machine has no nft to hide")
    return [str(Path(library[1]).resolve()), str(_NFT_PROGRAM)]


def _alternatives(kind: GuestFilter, directory: Path) -> Path:
    return directory / f"alternatives-{kind.variant}"


def _hide(kind: GuestFilter, directory: Path) -> None:
    """Make a copy of Debian's links in which `iptables` is the variant."""
    target = _alternatives(kind, directory)
    if target.exists() or kind is GuestFilter.NFT:
        return
    target.mkdir()
    for link in _ALTERNATIVES.iterdir():
        if link.is_symlink() and link.name not in _TOOLS:
            (target / link.name).symlink_to(link.readlink())
    for name in _TOOLS:
        (target / name).symlink_to(f"/usr/sbin/{name.replace('tables', f'tables-{kind.variant}')}")
