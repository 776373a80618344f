# SPDX-License-Identifier: Apache-2.0
"""The rpms on the booted node, after the debs have gone: files, scriptlets, upgrade, erasure.

The node is a Debian: rpm resolves no dependencies there, since its database has nothing of the distribution.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests import guide
from tests.k8s.ring.processes import run, wait_for
from tests.k8s.ring.tenants import RingTenant
from tests.systemd import lifecycle, restarts, site
from tests.systemd.site import PACKAGES, PREVIOUS, Site

# Debian's rpm refuses to install anything without it.
_RPM = "rpm --nodeps --force-debian"
# A mode as ls prints it, and a path; directories are not compared.
_DEB_ENTRY = re.compile(r"^([-l]\S{9}) .*? \./(.*?)(?: -> .*)?$", re.MULTILINE)
_RPM_ENTRY = re.compile(r"^([-l]\S{9}) /(.*)$", re.MULTILINE)
_QUERY = "[%{FILEMODES:perms} %{FILENAMES}\n]"
# Where each form has its licences and exceptions.
_OF_ONE_FORM = ("usr/share/doc/", "usr/share/licenses/", "usr/share/lintian/")
_AGENT_STATUS = "vcnode status --socket /run/vcnode/vn-agent/status.sock"
# rpm keeps edited configuration, certificates and state.
_KEPT = ("/etc/vcnode", "/var/lib/vcnode")
# Folders of distributions that use rpm. This Debian had none of them, and rpm leaves what no package has.
_DISTRIBUTION = {"/usr/share/licenses", "/usr/share/fish", "/usr/share/fish/vendor_completions.d"}


def check_files(packages: Path) -> str:
    """Each rpm has the files of its deb, with their modes. Raises `AssertionError` or `RingError`."""
    names = sorted(path.name.split("_")[0] for path in packages.glob("*.deb"))
    for name in names:
        (deb,) = packages.glob(f"{name}_*.deb")
        (rpm,) = packages.glob(f"{name}-[0-9]*.rpm")
        ours = _entries(_DEB_ENTRY, ["dpkg-deb", "--contents", str(deb)])
        theirs = _entries(_RPM_ENTRY, ["rpm", "--query", "--package", "--queryformat", _QUERY, str(rpm)])
        assert theirs == ours, (name, theirs ^ ours)
    return f"rpm: {len(names)} packages with the files and modes of their debs"


def check(made: Site, tenant: RingTenant, steps: guide.Steps, before: set[str]) -> Iterator[str]:
    """Install, go to the previous build and back, erase. `before`: the node's files without vcnode.

    Raises `RingError` or `AssertionError`.
    """
    made.booted.run(f"{_RPM} --install {_paths(PACKAGES)}")
    # Nothing has changed a file, a mode or an owner since.
    assert made.booted.try_run(f"{_RPM} --verify {_names()}") == (0, "")
    site.copy_bundle(made)
    for name in ("node", "start", "tenant"):
        made.booted.run(steps[name])
    lifecycle.wait_until_ready(made)
    wait_for("vn-agent knows the tenant", lambda: tenant.key in made.booted.run(_AGENT_STATUS), timeout_s=60)
    yield "rpm: installed and verified, configured by `vcnode init`, all daemons are ready"
    kept = lifecycle.Kept.of(made)
    for name, directory in (("downgrade", PREVIOUS), ("upgrade", PACKAGES)):
        with restarts.log_load(made, tenant) as load:
            made.booted.run(f"{_RPM} --upgrade --oldpackage {_paths(directory)}")
            lifecycle.wait_until_ready(made)
        version = made.booted.run("rpm --query --queryformat '%{VERSION}' vcnode-agent")
        kept.check(made)
        yield (
            f"rpm: {name} to {version}: configuration and tenants kept, "
            f"{load.answered} requests meanwhile, none refused or lost"
        )
    made.booted.run(f"{_RPM} --erase {_names()}")
    assert lifecycle.running(made) == ""
    left = {path for path in lifecycle.files(made) - before - _DISTRIBUTION if not path.startswith(_KEPT)}
    assert left == set(), left
    # vcnode has written into these, so they are renamed; the certificates keep their names.
    assert made.booted.try_run("test -e /etc/vcnode/vn-agent.yaml.rpmsave")[0] == 0
    yield f"rpm: erased: no process is left, and of files what is below {' and '.join(_KEPT)}"


def _entries(pattern: re.Pattern[str], words: list[str]) -> set[tuple[str, str]]:
    found = pattern.findall(run(words).decode())
    assert found, words
    return {(mode, path) for mode, path in found if not path.startswith(_OF_ONE_FORM)}


def _paths(directory: str) -> str:
    return " ".join(f"{directory}/{name}-[0-9]*.rpm" for name in lifecycle.NODE_PACKAGES)


def _names() -> str:
    return " ".join(lifecycle.NODE_PACKAGES)
