# SPDX-License-Identifier: Apache-2.0
"""The command lines of control planes, asked of the programs that get them: each knows each of its flags."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tenant_operator.model.cluster_version import DatastoreSpec
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Object
from tenant_operator.provisioners import native
from tests.k8s import build
from tests.unit.tenant_operator.control_planes import INPUTS, control_plane, release_of

_AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
# The older one where it is built: `build.py --older`.
_VERSIONS = {(1, 34, 4): "", **({(1, 33, 13): build.OLDER_SUFFIX} if build.has_older() else {})}
_DATASTORES = ("etcd", "kine-sqlite", "kine-postgresql", "shared-etcd")
_FLAG = re.compile(r"^\s+(?:-\w, )?--([\w-]+)", re.MULTILINE)


def _control_planes(version: tuple[int, int, int]) -> Iterator[ControlPlane]:
    """All flags that there are: with one replica or more, each datastore, audit, an emulated version."""
    release = release_of(version, audit_policy=_AUDIT)
    for replicas in (1, 3):
        for kind in _DATASTORES:
            for emulated in ("", "1.33"):
                spec = DatastoreSpec(type=kind, secret_name="administrator")
                yield control_plane(
                    release=release, replicas=replicas, datastore=spec, emulated_version=emulated
                )


def _containers(version: tuple[int, int, int]) -> Iterator[Object]:
    for each in _control_planes(version):
        for group in native.groups(each, INPUTS):
            for manifest in group.manifests:
                if manifest["kind"] in ("Deployment", "StatefulSet"):
                    pod = manifest["spec"]["template"]["spec"]
                    yield from (*pod["containers"], *pod.get("initContainers", ()))


def _help(program: str) -> str:
    done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("version", _VERSIONS)
def test_programs_know_their_flags(k8s_binaries: build.Binaries, version: tuple[int, int, int]) -> None:
    used: dict[str, set[str]] = {}
    for container in _containers(version):
        (program,) = container["command"]
        if program != "vc-signer":
            flags = {each.partition("=")[0].removeprefix("--") for each in container["args"]}
            used.setdefault(program, set()).update(flags)
    assert used.keys() == {"kube-apiserver", "kube-controller-manager", "etcd", "kine"}
    for program, flags in used.items():
        suffix = _VERSIONS[version] if program.startswith("kube-") else ""
        known = set(_FLAG.findall(_help(k8s_binaries[f"{program}{suffix}"])))
        assert flags - known == set(), program


@pytest.mark.parametrize("version", _VERSIONS)
def test_controllers_are_known(k8s_binaries: build.Binaries, version: tuple[int, int, int]) -> None:
    """One that the program does not know ends it."""
    listed = {
        name.removeprefix("-")
        for container in _containers(version)
        for argument in container["args"]
        if argument.startswith("--controllers=")
        for name in argument.partition("=")[2].split(",")
    }
    text = _help(k8s_binaries[f"kube-controller-manager{_VERSIONS[version]}"])
    (known,) = re.findall(r"All controllers: (.*)", text)
    assert listed - {"*"}
    assert listed - {"*"} <= set(known.split(", "))
