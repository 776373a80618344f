# SPDX-License-Identifier: Apache-2.0
"""Guests of the DNS scenario: DNS servers, and containers with files of their own in /etc.

A container runs in the network of a pod and has another /etc than the host: the files of an image, and the
resolv.conf that the start gate mounts over the image's.
"""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kata_bridge.nri.messages import Mount
from vcnode.terminal import ToolError
from vcnode_demo import dns_program
from vcnode_demo.guest import BOUND, Guest, run
from vcnode_demo.vpc import has_program

RESOLV_CONF = "/etc/resolv.conf"
# The files of an image's /etc that matter for resolving names.
_IMAGE = {
    "nsswitch.conf": "hosts: files dns\n",
    "hosts": "127.0.0.1 localhost\n",
    "resolv.conf": "",
}
# Where Python's libraries are, on hosts where the linker does not know it by itself.
_LINKER_CACHE = Path("/etc/ld.so.cache")
# Sockets of services that would resolve for us, past resolv.conf (nscd, systemd-resolved).
_HIDDEN = "/run"


def missing_requirement() -> str:
    """Why containers cannot run here, as words after `it`; empty if they can."""
    if not has_program("mount"):
        return "needs mount"
    try:
        run([*BOUND, "unshare", "--mount", "--", "mount", "--bind", "/etc", "/etc"])
    except ToolError as error:
        return f"needs what this kernel or container does not allow: {error}"
    return ""


def write_image(directory: Path) -> None:
    """Write the /etc of all containers."""
    directory.mkdir()
    for name, text in _IMAGE.items():
        (directory / name).write_text(text)
    if _LINKER_CACHE.exists():
        shutil.copy(_LINKER_CACHE, directory)


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The result of one lookup; `error` is empty if it has addresses."""

    addresses: tuple[str, ...]
    error: str
    at_s: float = 0.0


class NameServer(Guest):
    """A guest with a DNS server; it also holds the network of a pod."""

    def __init__(self, name: str) -> None:
        super().__init__(name, dns_program)

    def serve_names(self, address: str, names: Mapping[str, str], others: str = "") -> None:
        """Answer at the address from now on; other names get `others`, or NXDOMAIN if it is empty."""
        self._ask("names", address, dict(names), others)

    def queried_names(self) -> tuple[str, ...]:
        """The names of all queries so far."""
        return tuple(self._ask("asked")["names"])


class DemoContainer(Guest):
    """A container of a pod: its network, with an /etc of its own."""

    def __init__(self, name: str, pod: Guest, etc: Path, mounts: Sequence[Mount]) -> None:
        """`etc` is the directory of `write_image`; `mounts` are those of the runtime."""
        super().__init__(name, dns_program)
        self._pod = pod
        self._etc = etc
        self._mounts = mounts

    def start(self) -> None:
        """Start it. Raises ToolError."""
        steps = [["mount", "--bind", str(self._etc), "/etc"]]
        for mount in self._mounts:
            steps.append(["mount", "--bind", mount.source, mount.destination])
            if "ro" in mount.options:
                steps.append(["mount", "-o", "remount,bind,ro", mount.destination])
        steps.append(["mount", "-t", "tmpfs", "none", _HIDDEN])
        script = " && ".join([*map(shlex.join, steps), 'exec "$@"'])
        network = f"--net=/proc/{self._pod.pid}/ns/net"
        self._start("nsenter", network, "--", "unshare", "--mount", "--", "sh", "-c", script, "sh")

    def lookup(self, name: str) -> LookupResult:
        return _found(self._ask("lookup", name))

    def follow(self, name: str, address: str, within_s: float) -> LookupResult:
        """Look up again and again until the name has this address."""
        self._send("follow", name, address, within_s)
        return _found(self._receive(within_s + _MARGIN_S))

    def resolv_conf(self) -> str:
        """Its own, as it is now."""
        text: str = self._ask("read", RESOLV_CONF)["text"]
        return text


# A lookup that began just before the deadline: two tries of five seconds (resolv.conf(5)).
_MARGIN_S = 15.0


def _found(reply: dict[str, Any]) -> LookupResult:
    return LookupResult(tuple(reply["addresses"]), reply["error"], reply.get("at", 0.0))
