# SPDX-License-Identifier: Apache-2.0
"""The images that the conformance tests name, made from files of this machine, as one archive in the cache.

What their programs must be like is in docs/conformance.md: two shells and one `nc` decide over a dozen specs.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import os
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.k8s.build import KUBERNETES_VERSION, Binaries
from tests.k8s.ring import debian
from tests.k8s.ring import images as ring_images
from tests.k8s.ring.images import Image
from tests.k8s.ring.processes import RingError, run

COREDNS = "registry.k8s.io/coredns/coredns:v1.12.4"
_TESTS = "registry.k8s.io/e2e-test-images"
_PACKAGES = ("bash", "netcat-openbsd", "curl", "bind9-dnsutils", "iproute2", "hostname", "libc-bin")
# In the image by these paths, from these of the packages.
_PROGRAMS = {
    "bin/bash": "bin/bash",
    "bin/nc": "bin/nc.openbsd",
    "bin/hostname": "bin/hostname",
    "bin/ss": "bin/ss",
    "usr/bin/curl": "usr/bin/curl",
    "usr/bin/dig": "usr/bin/dig",
    "usr/bin/getent": "usr/bin/getent",
}
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_USERS = "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/home:/bin/sh\n"
_GROUPS = "root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"
_PAGE = "<html><body><h1>{}</h1></body></html>\n"
_LOADER = "/lib64/ld-linux-x86-64.so.2"
_EXTRACTED_S = 600.0


def archive(binaries: Binaries, cache: Path) -> Path:
    """The archive of all images; made where it is not in the cache yet. Raises `RingError`."""
    sources = inspect.getsource(sys.modules[__name__]) + inspect.getsource(ring_images)
    built = sorted(str(path.parent) for path in binaries.paths.values())
    key = hashlib.sha256("\0".join([sources, debian.suite(), *built]).encode()).hexdigest()[:16]
    target = cache / f"conformance-images-{key}.tar"
    if not target.exists():
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        with tempfile.TemporaryDirectory() as scratch:
            ring_images.write_images(partial, _images(binaries, cache, Path(scratch)))
        partial.replace(target)
    return target


def _images(binaries: Binaries, cache: Path, scratch: Path) -> list[Image]:
    tree = _extract(cache, scratch)
    programs = _Layer()
    _add_programs(programs, tree)
    programs.links({"bin/sh": "bash"})
    base = [_busybox(), programs.done()]
    shells = _Layer()
    # /bin/sh is busybox, whose messages a spec compares; `sh` by PATH is bash, which keeps odd variables.
    shells.links({"bin/sh": "busybox", "bin/nc": "busybox", "usr/local/bin/sh": "/bin/bash"})
    small = [*base, shells.done()]
    agnhost = _Layer()
    agnhost.file("agnhost", Path(binaries["agnhost"]).read_bytes(), 0o755)
    agnhost.links({"agnhost-2": "agnhost"})
    agnhost.directory("uploads")
    module = _module()
    for name in ("localhost.crt", "localhost.key"):
        agnhost.file(name, (module / "test/images/agnhost/porter" / name).read_bytes(), 0o644)
    server = [*base, agnhost.done()]
    nautilus = _Layer()
    for name in ("nautilus.jpg", "data.json"):
        nautilus.file(name, (module / "test/images/nautilus/html" / name).read_bytes(), 0o644)
    privileges = _Layer()
    privileges.file("usr/local/bin/nnp", Path(binaries["nnp"]).read_bytes(), 0o6755)
    pause = _Layer()
    pause.file("pause", ring_images.compile_pause(scratch).read_bytes(), 0o755)
    entry = {"Entrypoint": ["/agnhost"], "Env": [_PATH]}
    found = [
        Image(f"{_TESTS}/agnhost:2.56", server, {**entry, "Cmd": ["pause"]}),
        Image(f"{_TESTS}/jessie-dnsutils:1.7", server, {"Cmd": ["/bin/sh"], "Env": [_PATH]}),
        Image(f"{_TESTS}/nautilus:1.7", [*server, nautilus.done()], {**entry, "Cmd": ["test-webserver"]}),
        Image(f"{_TESTS}/busybox:1.37.0-1", small, {"Cmd": ["sh"], "Env": [_PATH]}),
        Image(f"{_TESTS}/nonewprivs:1.3", [*small, privileges.done()], {"Cmd": ["nnp"], "Env": [_PATH]}),
        Image("registry.k8s.io/pause:3.10.1", [pause.done()], {"Entrypoint": ["/pause"]}),
    ]
    for name, root, page in (
        ("httpd:2.4.38-4", "usr/local/apache2/htdocs", "It works!"),
        ("httpd:2.4.39-4", "usr/local/apache2/htdocs", "It works!"),
        ("nginx:1.14-4", "usr/share/nginx/html", "Welcome to nginx!"),
        ("nginx:1.15-4", "usr/share/nginx/html", "Welcome to nginx!"),
    ):
        pages = _Layer()
        pages.file(f"{root}/index.html", _PAGE.format(page).encode(), 0o644)
        command = ["/bin/busybox", "httpd", "-f", "-p", "80", "-h", f"/{root}"]
        found.append(Image(f"{_TESTS}/{name}", [*small, pages.done()], {"Cmd": command, "Env": [_PATH]}))
    for name, program, path in (
        (f"{_TESTS}/sample-apiserver:1.29.2", "sample-apiserver", "sample-apiserver"),
        ("registry.k8s.io/etcd:3.6.4-0", "etcd", "usr/local/bin/etcd"),
        (COREDNS, "coredns", "coredns"),
    ):
        layer = _Layer()
        layer.file(path, Path(binaries[program]).read_bytes(), 0o755)
        found.append(Image(name, [base[0], layer.done()], {"Entrypoint": [f"/{path}"], "Env": [_PATH]}))
    return found


class _Layer:
    """A layer under construction; everything is root's and as old as the epoch."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115 - closed by done()
        self._directories: set[str] = set()

    def directory(self, name: str, mode: int = 0o755) -> None:
        if name in self._directories:
            return
        self._directories.add(name)
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        self._tar.addfile(entry)

    def file(self, name: str, content: bytes, mode: int) -> None:
        self._parents(name)
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), mode
        self._tar.addfile(entry, io.BytesIO(content))

    def links(self, targets: dict[str, str]) -> None:
        for name, target in targets.items():
            self._parents(name)
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            self._tar.addfile(entry)

    def _parents(self, name: str) -> None:
        for parent in reversed(Path(name).parents[:-1]):
            self.directory(str(parent))

    def done(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()


def _busybox() -> bytes:
    """The tree that most images have, with all of busybox's names in it."""
    binary = Path("/bin/busybox")
    names = run([str(binary), "--list"]).decode().split()
    layer = _Layer()
    for name in ("etc", "root", "home", "srv", "var", "usr", "usr/local"):
        layer.directory(name)
    for name in ("tmp", "var/tmp"):
        layer.directory(name, 0o1777)
    layer.file("bin/busybox", binary.read_bytes(), 0o755)
    layer.file("etc/passwd", _USERS.encode(), 0o644)
    layer.file("etc/group", _GROUPS.encode(), 0o644)
    layer.file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n", 0o644)
    layer.links({f"bin/{name}": "busybox" for name in names if name != "busybox"})
    return layer.done()


def _extract(cache: Path, scratch: Path) -> Path:
    """Debian's packages as files, none of their scripts run; from the cache where they are there."""
    key = hashlib.sha256(" ".join((debian.suite(), *_PACKAGES)).encode()).hexdigest()[:16]
    packed = cache / f"conformance-programs-{key}.tar"
    if not packed.exists():
        partial = packed.with_name(f".{packed.name}.{os.getpid()}")
        include = f"--include={','.join(_PACKAGES)}"
        argv = ["mmdebstrap", "--variant=extract", include, "--quiet", "--format=tar"]
        run([*argv, debian.suite(), str(partial)], timeout_s=_EXTRACTED_S)
        partial.replace(packed)
    tree = scratch / "tree"
    debian.unpack(packed, tree)
    return tree


def _add_programs(layer: _Layer, tree: Path) -> None:
    """The programs and all libraries that the loader finds for them inside the tree."""
    libraries: set[str] = set()
    for name, source in _PROGRAMS.items():
        layer.file(name, (tree / source).read_bytes(), 0o755)
        listed = run(["/usr/sbin/chroot", str(tree), _LOADER, "--list", f"/{source}"]).decode()
        found = {word for line in listed.splitlines() for word in line.split() if word.startswith("/")}
        if not found:
            raise RingError(f"{source}: the loader names no libraries")
        libraries |= found
    for path in sorted(libraries):
        layer.file(path.removeprefix("/"), (tree / path.removeprefix("/")).read_bytes(), 0o755)


def _module() -> Path:
    """Where Go keeps the sources of Kubernetes."""
    cache = run(["go", "env", "GOMODCACHE"]).decode().strip()
    return Path(cache) / f"k8s.io/kubernetes@{KUBERNETES_VERSION}"
