# SPDX-License-Identifier: Apache-2.0
"""The node as an operator finds it: a Debian that systemd-nspawn booted, beside containerd and kubelet.

It runs in the namespaces of a host, such as `RealNode`. The two share what containerd and the daemons have
in /run, and the node's /var/lib/vcnode: containerd mounts resolvers and guests' credentials.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tests.k8s.ring import cgroups, debian
from tests.k8s.ring.processes import SYSTEM_PATH, RingError, RingProcess, run

# What a worker node has before vcnode comes. iptables: for guests that share the node's kernel; rpm: for
# packages of that form.
PACKAGES = ("python3", "systemd", "systemd-sysv", "dbus", "iptables", "conntrack", "procps", "rpm")
_COMMAND_S = 120.0
_BOOTED_S = 60.0
# What containerd shares with the node: its sockets, network namespaces, and resolvers that it mounts.
RESOLVERS = "/run/vcnode"
_SHARED = ("/run/containerd", "/run/nri", "/run/netns", RESOLVERS)
# systemd makes its control groups below that of its process; nspawn wants a /run/systemd of its own.
_BOOT = """
set -e
group=$1 root=$2; shift 2
for each in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do
    own=${each%/cgroup.procs}/$group/cgroup.procs
    if [ -e "$own" ]; then echo $$ > "$own"; fi
done
mount --make-rshared /run
mkdir -p /run/systemd/system /run/containerd /run/nri /run/netns /run/vcnode
mkdir -p "$root/var/lib/vcnode" /var/lib/vcnode
mount --bind "$root/var/lib/vcnode" /var/lib/vcnode
exec "$@"
"""


class Host(Protocol):
    """Namespaces with a network and a /run of their own. `enter` runs a command there."""

    @property
    def name(self) -> str: ...

    @property
    def enter(self) -> list[str]: ...


class BootedNode:
    """A booted Debian on `host`; `shared` are files of this machine, by their paths inside, read-only."""

    def __init__(self, host: Host, group: str, directory: Path, shared: Mapping[str, Path]) -> None:
        """`group` is a new control group below one that exists; `directory` has logs and the root."""
        self._host = host
        self._group = group
        self._directory = directory
        self._shared = dict(shared)
        self._nspawn: RingProcess | None = None
        self.leader = 0

    def start(self) -> None:
        """Boot it and wait until systemd has started everything. Raises `RingError`."""
        debian.unpack(debian.archive(PACKAGES), self.root)
        # At midnight it writes files, which a comparison before and after an installation would show.
        (self.root / "etc/systemd/system/dpkg-db-backup.timer").symlink_to("/dev/null")
        cgroups.create(self._group)
        options = [
            *("--quiet", f"--directory={self.root}", f"--machine={self._host.name}", "--boot"),
            *("--register=no", "--keep-unit", "--console=pipe"),
            # Without a network of its own nspawn takes them away, and iptables is of no use.
            "--capability=CAP_NET_ADMIN,CAP_NET_RAW",
            "--kill-signal=SIGRTMIN+4",
            *(f"--bind={path}" for path in _SHARED),
            *(f"--bind-ro={path}:{inside}" for inside, path in self._shared.items()),
        ]
        self._nspawn = RingProcess(
            "booted-node",
            [
                *self._host.enter,
                "sh",
                "-c",
                _BOOT,
                "sh",
                self._group,
                str(self.root),
                "systemd-nspawn",
                *options,
            ],
            self._directory / "booted-node.log",
            enters_pid_namespace=True,
        )
        self._nspawn.wait_until(self._find_leader, timeout_s=_BOOTED_S)
        state = self.run("systemctl is-system-running --wait || true").strip()
        if state != "running":
            raise RingError(f"booted node: {state}: {self.run('systemctl --failed --no-legend || true')}")

    @property
    def root(self) -> Path:
        """Its file system, from outside."""
        return self._directory / "root"

    def stop(self) -> None:
        """Power it off."""
        if self._nspawn is not None:
            self._nspawn.stop(signal.SIGTERM)

    def command(self, script: str, directory: str = "/root") -> list[str]:
        """The command that runs a script as root on the node."""
        inside = ["sh", "-ec", f"cd {directory}\n{script}"]
        environment = ["env", "-i", f"PATH={SYSTEM_PATH}", "LANG=C.UTF-8", "HOME=/root"]
        return ["nsenter", f"--target={self.leader}", "--all", *environment, *inside]

    def run(self, script: str, directory: str = "/root", *, timeout_s: float = _COMMAND_S) -> str:
        """Run it to its end; what it printed. Raises `RingError`."""
        return run(self.command(script, directory), timeout_s=timeout_s).decode()

    def try_run(self, script: str) -> tuple[int, str]:
        """Run it to its end; exit code and all that it printed."""
        done = subprocess.run(
            self.command(script), capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def write(self, path: str, content: bytes) -> None:
        """Write a file on the node, mode 0600, with its directories."""
        script = f"umask 077; mkdir -p $(dirname {path}); cat > {path}"
        run(self.command(script), stdin=content, timeout_s=_COMMAND_S)

    def _find_leader(self) -> bool:
        assert self._nspawn is not None
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
        if not children:
            return False
        self.leader = int(children[0])
        try:
            self.run("test -S /run/systemd/private")
        except RingError:
            return False
        return True
