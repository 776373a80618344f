# SPDX-License-Identifier: Apache-2.0
"""Builds the images of what runs in the super cluster, without a container engine:
`python packaging/image.py --tree TREE --out DIRECTORY [--newest]`, or writes the lock with `--lock`.

An image has a base of Debian's packages (the interpreter and its libraries: no shell, no package manager),
and of TREE (packaging/tree.py) the packages of packages.toml that its program needs. Hashes lock both:
`requirements/debian.lock` has name, version and SHA-256 of each of Debian's. apt gets them, into a cache;
`--newest` takes what apt has now instead, for a machine whose mirror lacks a locked version. One commit makes
the same digest. DIRECTORY gets an OCI archive for each image, and `digests.json`:

    ctr --namespace k8s.io images import build/images/vc-syncer.tar

Exit code 1: apt lacks a version, or a file has another hash.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import oci
import packages

from daemonkit.version import VERSION

LOCK = packages.SOURCE / "packaging/requirements/debian.lock"
CACHE = Path.home() / ".cache/vcnode/debs"
DIGESTS = "digests.json"
# Of Debian 12, whose Python the tree is built for. libuuid1 and below: modules of the standard library;
# tzdata: time zones of VirtualClusters' schedules.
_BASE = (
    *("base-files", "libc6", "libgcc-s1", "libstdc++6", "libpython3.11-minimal", "libpython3.11-stdlib"),
    *(
        "python3.11-minimal",
        "zlib1g",
        "libexpat1",
        "libssl3",
        "libffi8",
        "libuuid1",
        "libbz2-1.0",
        "liblzma5",
        "tzdata",
    ),
)
_LEFT_OUT = (
    *("usr/share/man", "usr/share/locale", "usr/share/lintian", "usr/share/gcc", "usr/share/bug"),
    *("usr/share/zoneinfo/posix", "usr/share/zoneinfo/right"),
    *("usr/lib/python3.11/lib2to3", "usr/lib/python3.11/pydoc_data", "usr/lib/python3.11/ensurepip"),
)
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


@dataclass(frozen=True, slots=True)
class ShippedImage:
    """`packages` are of packages.toml; what they depend on comes with them. `tools` are more launchers.
    `arguments` are the program's, where a pod gives none."""

    program: str
    packages: tuple[str, ...]
    tools: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ("--config", "/etc/vcnode/config.yaml")

    @property
    def name(self) -> str:
        return f"vcnode-{self.program}"


# What `vcnode status` needs, by which pods are probed: the tool imports modules of the node's daemons.
_TOOL = ("vcnode-tools", "vcnode-agent", "vcnode-services")
IMAGES = (
    ShippedImage("vc-syncer", ("vcnode-syncer", *_TOOL), tools=("vcnode",)),
    ShippedImage("vc-operator", ("vcnode-operator", *_TOOL), tools=("vcnode",)),
    ShippedImage("dnsconfig-webhook", ("vcnode-webhook",)),
    ShippedImage(
        "vc-signer",
        ("vcnode-signer",),
        arguments=("--keys", "/etc/vc-signer/keys", "--socket", "/run/vc-signer/signer.sock"),
    ),
)


@dataclass(frozen=True, slots=True)
class Deb:
    name: str
    version: str
    sha256: str


class ImageError(Exception):
    """An image cannot be built; the text has what to do."""


def main(argv: list[str] | None = None) -> int:
    """Build all images. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="image.py", allow_abbrev=False)
    parser.add_argument("--tree", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--registry", default="", help="first part of the images' names, such as registry.example/vcnode"
    )
    parser.add_argument(
        "--newest", action="store_true", help="Debian's packages as apt has them now, not the lock"
    )
    parser.add_argument("--lock", action="store_true", help="write the lock from what apt has now, and end")
    arguments = parser.parse_args(argv)
    try:
        if arguments.lock:
            LOCK.write_text("".join(f"{each.name} {each.version} {each.sha256}\n" for each in newest()))
            return 0
        if arguments.tree is None or arguments.out is None:
            parser.error("--tree and --out are required")
        debs = newest() if arguments.newest else locked()
        build(arguments.tree, arguments.out, debs, arguments.registry)
    except (ImageError, packages.PackagingError) as error:
        sys.stderr.write(f"image: {error}\n")
        return 1
    return 0


def locked() -> list[Deb]:
    """What the lock has."""
    return [Deb(*line.split()) for line in LOCK.read_text().splitlines()]


def newest() -> list[Deb]:
    """What apt would install now."""
    return [_shown(name) for name in sorted(_BASE)]


def _shown(name: str) -> Deb:
    text = _run("apt-cache", "show", "--no-all-versions", name)
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line and line[0] != " ")
    if "SHA256" not in fields:
        raise ImageError(f"{name}: apt knows no package of a mirror: run apt-get update")
    return Deb(name, fields["Version"], fields["SHA256"])


def build(tree: Path, out: Path, debs: list[Deb], registry: str = "", cache: Path = CACHE) -> dict[str, str]:
    """Write all images into `out`; returns their digests by name. Raises `ImageError`."""
    read = {each.name: each for each in packages.read()}
    divided = packages.divide(tree, list(read.values()))
    made_at = packages.commit_time()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    digests = {}
    with tempfile.TemporaryDirectory(prefix="vcnode-image-") as scratch:
        base = _cached_base(debs, cache, Path(scratch) / "base")
        for image in IMAGES:
            root = Path(scratch) / image.program
            target = root / packages.PREFIX[1:]
            target.mkdir(parents=True)
            for package in _closure(image.packages, read):
                packages.stage_tree(read[package], tree, divided[package], target)
            for launcher in (target / "bin").iterdir():
                if launcher.name not in (image.program, *image.tools):
                    launcher.unlink()
            packages.set_modes(root)
            settings: dict[str, object] = {
                "User": "65534:65534",
                "Entrypoint": [f"{packages.PREFIX}/bin/{image.program}"],
                "Cmd": list(image.arguments),
                "Env": [f"PATH={packages.PREFIX}/bin:/usr/bin"],
                "WorkingDir": "/",
            }
            name = f"{registry}/{image.name}" if registry else f"docker.io/library/{image.name}"
            archive = out / f"{image.program}.tar"
            layers = [base, oci.layer(root)]
            digests[image.name] = oci.write(archive, name, VERSION, layers, settings, made_at)
            size = sum(len(each.blob) for each in layers) >> 20
            sys.stdout.write(f"{name}@{digests[image.name]} {size} MiB\n")
    (out / DIGESTS).write_text(json.dumps(digests, indent=2) + "\n")
    return digests


def _closure(names: tuple[str, ...], read: dict[str, packages.Package]) -> list[str]:
    """These and all that they depend on."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += read[name].depends
    return sorted(found)


def _cached_base(debs: list[Deb], cache: Path, root: Path) -> oci.LayerBlob:
    """The base, which changes with its packages, with this file and with the interpreter alone."""
    parts = [sys.version, *(repr(each) for each in debs)]
    parts += [Path(module).read_text() for module in (__file__, oci.__file__)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    tar = cache / f"base-{key}.tar.gz"
    if not tar.exists():
        made = _base(debs, cache, root)
        partial = tar.with_name(f".{tar.name}.{os.getpid()}")
        partial.write_bytes(made.blob)
        partial.replace(tar)
    return oci.read_layer(tar.read_bytes())


def _base(debs: list[Deb], cache: Path, root: Path) -> oci.LayerBlob:
    root.mkdir()
    for deb in debs:
        file = _fetched(deb, cache)
        _run("dpkg-deb", "--extract", str(file), str(root))
        # Scanners look here where there is no dpkg.
        status = root / "var/lib/dpkg/status.d" / deb.name
        status.parent.mkdir(parents=True, exist_ok=True)
        status.write_text(_run("dpkg-deb", "--field", str(file)))
    for name in _LEFT_OUT:
        shutil.rmtree(root / name, ignore_errors=True)
    for path in sorted((root / "usr/share/doc").rglob("*")):
        if path.is_file() and path.name != "copyright":
            path.unlink()
    for name, text in _FILES.items():
        (root / name).write_text(text)
    # A read-only file system keeps no byte code: without this each start compiles the standard library.
    words = (
        "-I",
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "unchecked-hash",
        "-s",
        str(root),
        "-p",
        "/",
    )
    _run(sys.executable, *words, str(root / "usr/lib/python3.11"))
    return oci.layer(root)


def _fetched(deb: Deb, cache: Path) -> Path:
    """The file from the cache, or from apt. Raises `ImageError`."""
    target = cache / f"{deb.sha256}.deb"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            try:
                _run("apt-get", "--quiet", "download", f"{deb.name}={deb.version}", directory=scratch)
            except ImageError as error:
                raise ImageError(f"{error}; for the newest: make locks, or --newest") from None
            (found,) = Path(scratch).glob("*.deb")
            found.replace(target)
    actual = hashlib.sha256(target.read_bytes()).hexdigest()
    if actual != deb.sha256:
        target.unlink()
        raise ImageError(f"{deb.name} {deb.version}: hash {actual}, expected {deb.sha256}")
    return target


def _run(*words: str, directory: str | None = None) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "LC_ALL": "C"}  # noqa: TID251 - as for nfpm
    done = subprocess.run(  # noqa: S603 - our own words
        words, check=False, capture_output=True, text=True, cwd=directory, env=environment
    )
    if done.returncode:
        raise ImageError(f"{' '.join(words[:4])}: {done.stderr.strip()[-400:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
