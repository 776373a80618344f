#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the programs of the k8s ring from their Go modules, once, into a cache.

    python3 tests/k8s/build.py [--cache DIR] [--conformance] [--older]

Prints one line a component. A second run finds the binaries and ends at once. Needs nothing but
the standard library and a Go compiler. Exit 1 when something cannot be built. What is built, and
where it is kept, the ring's fixtures read from here.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KUBERNETES_VERSION = "v1.34.4"
# What tenants are upgraded from. Its programs have the minor version behind their names.
OLDER_KUBERNETES_VERSION = "v1.33.13"
OLDER_SUFFIX = "-1.33"
ETCD_VERSION = "3.7.3"
KINE_VERSION = "0.17.5"
KUBE_PROXY_VERSION = "v1.36.3"
KUBE_PROXY_ORACLE = "kube-proxy-oracle"

MODULES = Path(__file__).resolve().parent / "components"
DEFAULT_CACHE = Path.home() / ".cache" / "vcnode" / "k8s"

_VERSION_PACKAGE = "k8s.io/component-base/version"
# Binaries 0.45 GB, module cache 1.5 GB and build cache 3 GB when cold, and room for the linker.
_FREE_BYTES_NEEDED = 8 << 30

# A cold build of everything takes about ten minutes on two cores; three times that is a hang.
_BUILD_TIMEOUT_S = 1500


@dataclass(frozen=True, slots=True)
class Component:
    """One Go module under `components/` and the programs that are built from it.

    `programs` maps the name of the binary to its package; `./NAME` is one of our own. `ldflags` is passed to
    the linker. Several may share the module `of`: a new program in a component of its own leaves the others'
    binaries as they are. Those that `tests` names are packages of tests, whose program runs them. `tags` are
    build tags, by commas. `has_c`: it needs a C compiler.
    """

    name: str
    programs: dict[str, str]
    ldflags: str = "-s -w"
    of: str = ""
    tests: tuple[str, ...] = ()
    tags: str = ""
    has_c: bool = False

    @property
    def module(self) -> Path:
        """The directory that holds go.mod, go.sum and tools.go, or a program of our own."""
        return MODULES / (self.of or self.name)

    def directory(self, cache: Path, go_version: str) -> Path:
        """Where the finished binaries are kept: a new go.sum, source, tag or compiler is a new directory."""
        digest = hashlib.sha256(
            "\0".join(
                [
                    (self.module / "go.sum").read_text(),
                    go_version,
                    self.ldflags,
                    repr(sorted(self.programs.items())),
                    *([self.tags] if self.tags else []),
                    *(["cgo"] if self.has_c else []),
                    # A program that is written here changes without its go.sum.
                    *(p.read_text() for p in self._own_sources() if p.name != "tools.go"),
                ]
            ).encode()
        )
        return cache / f"{self.name}-{digest.hexdigest()[:16]}"

    def _own_sources(self) -> list[Path]:
        """Of programs in the module's directory, and of those in directories below it that are built."""
        below = [self.module / package for package in self.programs.values() if package.startswith("./")]
        return [path for directory in (self.module, *below) for path in sorted(directory.glob("*.go"))]


def _kubernetes_ldflags(version: str) -> str:
    """Without these the programs call themselves v0.0.0, and clients believe it."""
    major, minor, _patch = version.removeprefix("v").split(".")
    return (
        f"-s -w -X {_VERSION_PACKAGE}.gitVersion={version}"
        f" -X {_VERSION_PACKAGE}.gitMajor={major} -X {_VERSION_PACKAGE}.gitMinor={minor}"
    )


_KUBERNETES_LDFLAGS = _kubernetes_ldflags(KUBERNETES_VERSION)

COMPONENTS = (
    Component(
        "ttrpc",
        {"ttrpcpeer": "."},
    ),
    Component(
        "etcd",
        {
            "etcd": "go.etcd.io/etcd/server/v3",
            "etcdctl": "go.etcd.io/etcd/etcdctl/v3",
            "etcdutl": "go.etcd.io/etcd/etcdutl/v3",
        },
    ),
    Component(
        # Linked statically, as its official image is: its image has no C library.
        "kine",
        {"kine": "github.com/k3s-io/kine"},
        ldflags="-s -w -extldflags '-static'",
        tags="netgo,osusergo",
        has_c=True,
    ),
    Component(
        "coredns",
        {"coredns": "github.com/coredns/coredns"},
    ),
    Component(
        "metrics-server",
        {"metrics-server": "sigs.k8s.io/metrics-server/cmd/metrics-server"},
    ),
    Component(
        "helm",
        {"helm": "helm.sh/helm/v4/cmd/helm"},
    ),
    Component(
        "containerd",
        {
            name: f"github.com/containerd/containerd/v2/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
    ),
    Component(
        "kubernetes",
        {
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kubelet": "k8s.io/kubernetes/cmd/kubelet",
            "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
            "kubectl": "k8s.io/kubernetes/cmd/kubectl",
            "agnhost": "k8s.io/kubernetes/test/images/agnhost",
        },
        ldflags=_KUBERNETES_LDFLAGS,
    ),
    Component(
        "kube-scheduler",
        {"kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler"},
        ldflags=_KUBERNETES_LDFLAGS,
        of="kubernetes",
    ),
    Component(
        "client-load",
        {"client-load": "./load"},
        of="kubernetes",
    ),
    Component(
        # The oracle of `test_kube_proxy_oracle.py`: 1.36 is the first kube-proxy with a rule for an address
        # that an endpoint which ends and another one share. Before, the order of a Go map decided.
        "kube-proxy",
        {KUBE_PROXY_ORACLE: "k8s.io/kubernetes/cmd/kube-proxy"},
        ldflags=_kubernetes_ldflags(KUBE_PROXY_VERSION),
    ),
    Component(
        "prometheus",
        {name: f"github.com/prometheus/prometheus/cmd/{name}" for name in ("promtool", "prometheus")},
        # Without the clients of clouds, which are a third of promtool, and without assets of web pages.
        tags="remove_all_sd,enable_kubernetes_sd",
    ),
)

# The minor version before, between which and the current one control planes are upgraded. It takes five
# minutes to build, and tests that can use it do so where it is built.
OLDER = (
    Component(
        "kubernetes-1.33",
        {
            f"{name}{OLDER_SUFFIX}": f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager")
        },
        ldflags=_kubernetes_ldflags(OLDER_KUBERNETES_VERSION),
    ),
)

# Kubernetes' own end-to-end tests, and the programs of their images. No other ring needs them.
CONFORMANCE = (
    Component(
        "conformance",
        {
            "e2e.test": "k8s.io/kubernetes/test/e2e",
            "ginkgo": "github.com/onsi/ginkgo/v2/ginkgo",
            "nnp": "k8s.io/kubernetes/test/images/nonewprivs",
            "sample-apiserver": "k8s.io/sample-apiserver",
        },
        ldflags=_KUBERNETES_LDFLAGS,
        tests=("e2e.test",),
    ),
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """Paths of every program of the ring, by name."""

    paths: dict[str, Path]

    def __getitem__(self, name: str) -> str:
        return str(self.paths[name])


def go_version() -> str | None:
    """The compiler's version as `go env GOVERSION` prints it, or None without a compiler."""
    try:
        done = subprocess.run(
            ["go", "env", "GOVERSION"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def find_binaries(
    cache: Path, version: str, components: Sequence[Component] = COMPONENTS
) -> tuple[Binaries, list[str]]:
    """The programs that are built, and the names of the components that are not."""
    paths: dict[str, Path] = {}
    missing: list[str] = []
    for component in components:
        directory = component.directory(cache, version)
        if not directory.is_dir():
            missing.append(component.name)
            continue
        paths.update({name: directory / name for name in component.programs})
    return Binaries(paths), missing


def has_older() -> bool:
    """Whether the minor version before is built."""
    return bool(find_binaries(DEFAULT_CACHE, go_version() or "", OLDER)[0].paths)


def main() -> int:
    """Build what is missing; the exit code says whether everything is there now."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE)
    parser.add_argument("--conformance", action="store_true", help="also Kubernetes' own end-to-end tests")
    parser.add_argument("--older", action="store_true", help="also the minor version of Kubernetes before")
    arguments = parser.parse_args()
    cache: Path = arguments.cache
    components = (
        *COMPONENTS,
        *(CONFORMANCE if arguments.conformance else ()),
        *(OLDER if arguments.older else ()),
    )
    version = go_version()
    if version is None:
        return _fail("no Go compiler: `go env GOVERSION` does not run")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        # Two builds at once would only take turns on the processors.
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [c for c in components if not c.directory(cache, version).is_dir()]
        for component in components:
            if component not in missing:
                _say(f"{component.name}: already built, {component.directory(cache, version)}")
        free = shutil.disk_usage(cache).free
        if missing and free < _FREE_BYTES_NEEDED:
            return _fail(f"{cache}: {free >> 20} MiB free, {_FREE_BYTES_NEEDED >> 20} MiB needed to build")
        for component in missing:
            problem = _build(component, cache, version)
            if problem is not None:
                return _fail(problem)
    return 0


def _build(component: Component, cache: Path, version: str) -> str | None:
    """Build one module's programs in a scratch directory, then move them in: all or nothing."""
    started = time.monotonic()
    target = component.directory(cache, version)
    with tempfile.TemporaryDirectory(prefix=f".{component.name}-", dir=cache) as scratch:
        output = Path(scratch) / "bin"
        output.mkdir()
        for name, package in component.programs.items():
            done = subprocess.run(
                [
                    *("nice", "env", f"CGO_ENABLED={int(component.has_c)}", "GOFLAGS=-mod=readonly"),
                    # Vet would check all of Kubernetes: 15 minutes.
                    "go",
                    *(("test", "-c", "-vet=off") if name in component.tests else ("build",)),
                    *("-trimpath", "-buildvcs=false", "-tags", component.tags),
                    *("-ldflags", component.ldflags, "-o", str(output / name), package),
                ],
                cwd=component.module,
                capture_output=True,
                text=True,
                timeout=_BUILD_TIMEOUT_S,
                check=False,
            )
            if done.returncode != 0:
                return f"{component.name}: {package}: {done.stderr.strip()[-2000:]}"
        output.rename(target)
    size = sum(p.stat().st_size for p in target.iterdir())
    _say(
        f"{component.name}: {len(component.programs)} programs, {size >> 20} MiB, "
        f"{time.monotonic() - started:.0f} s, {target}"
    )
    return None


def _say(line: str) -> None:
    sys.stdout.write(f"k8s build: {line}\n")
    sys.stdout.flush()


def _fail(reason: str) -> int:
    sys.stderr.write(f"k8s build: {reason}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
