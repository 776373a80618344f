# SPDX-License-Identifier: Apache-2.0
"""What vagrant and shellcheck say of `lab/`, without a machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

from tests.k8s.ring.processes import SYSTEM_PATH
from tests.lab_nodes import topology

_VAGRANT_S = 120.0
_PROGRAMS = ("vagrant", "shellcheck")


def lacking() -> list[str]:
    """A line for each check that this machine cannot make."""
    return [
        f"{name}: LEFT OUT: not installed"
        for name in _PROGRAMS
        if shutil.which(name, path=SYSTEM_PATH) is None
    ]


def check() -> Iterator[str]:
    """A line for each thing that held. Raises AssertionError."""
    if shutil.which("shellcheck", path=SYSTEM_PATH) is not None:
        scripts = sorted(map(str, (topology.LAB / "provision").glob("*.sh")))
        _run(["shellcheck", "--external-sources", f"--source-path={topology.LAB.parent}", *scripts])
        yield f"shellcheck: nothing to say of {len(scripts)} scripts"
    if shutil.which("vagrant", path=SYSTEM_PATH) is not None:
        _run(["vagrant", "validate"])
        described = topology.read()
        expected = {described.control, *(worker.name for worker in described.workers)}
        states = _run(["vagrant", "status"])
        found = set(re.findall(r"^(\S+)\s+not created \(libvirt\)$", states, re.MULTILINE))
        assert found == expected, f"the Vagrantfile has {found}, topology.env {expected}"
        yield f"vagrant: the Vagrantfile is valid, with libvirt's settings: {', '.join(sorted(found))}"


def _run(argv: list[str]) -> str:
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            argv,
            cwd=topology.LAB,
            env={
                "PATH": SYSTEM_PATH,
                "LANG": "C.UTF-8",
                "HOME": home,
                "VAGRANT_HOME": home,
                "VAGRANT_DEFAULT_PROVIDER": "libvirt",
                "VAGRANT_DOTFILE_PATH": f"{home}/machines",
            },
            capture_output=True,
            text=True,
            timeout=_VAGRANT_S,
            check=False,
        )
    assert done.returncode == 0, f"{argv[:2]}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout
