# SPDX-License-Identifier: Apache-2.0
"""Upgrade, downgrade and purge of the packages on a node that serves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests import guide
from tests.k8s.ring.booted import RESOLVERS
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.tenants import RingTenant
from tests.systemd import restarts, workload
from tests.systemd.site import PACKAGES, PREVIOUS, Site, copy_bundle

NODE_PACKAGES = (
    "vcnode",
    "vcnode-common",
    "vcnode-cryptography",
    "vcnode-agent",
    "vcnode-services",
    "vcnode-tools",
)
_READY_S = 60.0
# What a purge of packages may leave: what dpkg, apt, systemd and the account tools write for themselves.
_OTHERS = (
    "/var/lib/dpkg",
    "/var/lib/apt",
    "/var/lib/systemd",
    "/var/cache",
    "/var/log",
    "/etc/passwd",
    "/etc/group",
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/.pwd.lock",
    "/etc/subuid",
    "/etc/subgid",
    "/etc/machine-id",
    "/tmp",  # noqa: S108 - left out of a list
    "/var/tmp",  # noqa: S108 - as above
    "/root",
)
_FILES = "find / -xdev \\( {left_out} \\) -prune -o -print | sort"
_KEPT = "/etc/vcnode /var/lib/vcnode"


def files(site: Site) -> set[str]:
    """All paths of the node's own file systems but those of `_OTHERS`."""
    left_out = " -o ".join(f"-path {path}" for path in (*_OTHERS, "/proc", "/sys", "/dev", "/run"))
    return set(site.booted.run(_FILES.format(left_out=left_out)).splitlines())


def accounts(site: Site) -> set[str]:
    """All users and groups."""
    return set(site.booted.run("cut -d: -f1 /etc/passwd /etc/group").splitlines())


@dataclass(frozen=True, slots=True)
class Kept:
    """What must outlive a version: digests of /etc/vcnode, and the names of saved states."""

    configuration: str
    states: frozenset[str]

    @classmethod
    def of(cls, site: Site) -> Kept:
        """As it is now."""
        configuration = site.booted.run("find /etc/vcnode -type f -exec sha256sum {} + | sort")
        states = site.booted.run("find /var/lib/vcnode -mindepth 2 -maxdepth 2")
        return cls(configuration, frozenset(states.split()))

    def check(self, site: Site) -> None:
        """It is there still. Raises `AssertionError`."""
        after = Kept.of(site)
        assert after.configuration == self.configuration, (after.configuration, self.configuration)
        assert self.states <= after.states, self.states - after.states


def running(site: Site) -> str:
    """Process ids in the slice; nothing when vcnode is gone."""
    # systemd may keep the slice's empty group for a while.
    return site.booted.try_run(
        "find /sys/fs/cgroup -path '*/vcnode.slice/*' -name cgroup.procs -exec cat {} + 2>/dev/null"
    )[1]


def check(site: Site, tenant: RingTenant, steps: guide.Steps) -> Iterator[str]:
    """A line for each thing that held. Raises `RingError` or `AssertionError`."""
    kept = Kept.of(site)
    paths = " ".join(f"{PREVIOUS}/{name}_*.deb" for name in NODE_PACKAGES)
    downgrade = f"DEBIAN_FRONTEND=noninteractive dpkg --install {paths} 2>&1"
    for name, commands in (("downgrade", downgrade), ("upgrade", steps["upgrade"])):
        with restarts.log_load(site, tenant) as load:
            site.booted.run(commands, PACKAGES)
            wait_until_ready(site)
        version = site.booted.run("dpkg-query --show --showformat='${Version}' vcnode-agent")
        kept.check(site)
        yield (
            f"{name} to {version}: configuration and tenants kept, no question asked, "
            f"{load.answered} requests meanwhile, none refused or lost"
        )
    yield _check_renewal(site, steps)


def _check_renewal(site: Site, steps: guide.Steps) -> str:
    """Certificates are taken from a new bundle; a registered tenant stays as it is."""
    copy_bundle(site)
    printed = site.booted.run(steps["renew"])
    assert printed.startswith("nothing to do"), printed
    tenants = "vcnode tenant show tenant-1-70b001-test -o json"
    before = site.booted.run(tenants)
    site.booted.run(f"{steps['register']}rm -r node-1")
    assert site.booted.run(tenants) == before
    return "renewal: what is valid stays, and a client that is registered again"


def check_purge(site: Site, before: tuple[set[str], set[str]], steps: guide.Steps) -> str:
    """`before`: files and accounts before the packages came. Raises `AssertionError`."""
    # The ring's own mount, which would keep the directory.
    site.booted.run(f"systemctl stop 'vcnode.slice' && umount --lazy {RESOLVERS}")
    site.booted.run(steps["remove"])
    left = (files(site) - before[0], accounts(site) - before[1])
    assert left == (set(), set()), left
    assert running(site) == "", running(site)
    assert site.booted.try_run("test -e /run/vcnode")[0] == 1
    return "purge: no file, user, group, process or socket is left"


def wait_until_ready(site: Site) -> None:
    """All daemons are ready. Raises `RingError`."""
    wait_for("every daemon is ready", lambda: _ask_ready(site), timeout_s=_READY_S)


def _ask_ready(site: Site) -> bool:
    code, out = site.booted.try_run("vcnode status")
    return code == 0 and out.count(": ready") == workload.DAEMONS
