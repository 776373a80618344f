# SPDX-License-Identifier: Apache-2.0
"""Container images made from files of this machine: no registry is reachable, none is needed."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.k8s.ring.processes import run

PAUSE = "ring.test/pause:1"
BUSYBOX = "ring.test/busybox:1"
AGNHOST = "ring.test/agnhost:1"
COREDNS = "ring.test/coredns:1"
METRICS_SERVER = "ring.test/metrics-server:1"
PROMETHEUS = "ring.test/prometheus:1"

# What the sandbox runs: wait for ever, collect orphans, end on SIGTERM. The ring's node also has
# it as process 1 of its process namespace.
_PAUSE_SOURCE = """
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int n) { (void)n; _exit(0); }
static void reap(int n) { (void)n; while (waitpid(-1, NULL, WNOHANG) > 0) { } }
int main(void) {
    struct sigaction s = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGCHLD, &s, NULL);
    signal(SIGTERM, end);
    signal(SIGINT, end);
    for (;;) pause();
}
"""

_BUSYBOX = "/bin/busybox"


@dataclass(slots=True)
class _Layer:
    """The files of an image's only layer."""

    buffer: io.BytesIO = field(default_factory=io.BytesIO)

    def build(
        self, *, directories: list[str], files: dict[str, tuple[bytes, int]], links: dict[str, str]
    ) -> bytes:
        """Pack them, everything owned by root and as old as the epoch."""
        with tarfile.open(fileobj=self.buffer, mode="w") as tar:
            for name in directories:
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            for name, (content, mode) in files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), mode
                tar.addfile(entry, io.BytesIO(content))
            for name, target in links.items():
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
        return self.buffer.getvalue()


def compile_pause(directory: Path) -> Path:
    """Build the static pause program.

    Raises:
        RingError: there is no C compiler, or no static C library.
    """
    binary = directory / "pause"
    run(
        ["gcc", "-Os", "-static", "-x", "c", "-o", str(binary), "-"],
        stdin=_PAUSE_SOURCE.encode(),
    )
    return binary


def write_pause_image(archive: Path, binary: Path, image: str = PAUSE) -> None:
    """An image with nothing but the pause program."""
    layer = _Layer().build(directories=[], files={"pause": (binary.read_bytes(), 0o755)}, links={})
    write_archive(archive, image, [layer], {"Entrypoint": ["/pause"]})


def write_busybox_image(archive: Path, image: str = BUSYBOX) -> None:
    """An image with Debian's static busybox under all its names."""
    write_archive(archive, image, [_busybox_layer()], {"Cmd": ["/bin/sh"]})


def write_agnhost_image(archive: Path, binary: Path) -> None:
    """The same with the server of Kubernetes' own tests, which looks up names as Go programs do."""
    layer = _Layer().build(directories=[], files={"agnhost": (binary.read_bytes(), 0o755)}, links={})
    write_archive(archive, AGNHOST, [_busybox_layer(), layer], {"Entrypoint": ["/agnhost"]})


def write_coredns_image(archive: Path, binary: str, image: str = COREDNS) -> None:
    """An image with nothing but CoreDNS, which takes its arguments as the official one does."""
    _write_program_image(archive, image, "coredns", binary)


def write_metrics_server_image(archive: Path, binary: str) -> None:
    """An image with nothing but metrics-server, as the official one is."""
    _write_program_image(archive, METRICS_SERVER, "metrics-server", binary)


def write_prometheus_image(archive: Path, binary: str) -> None:
    """An image with Prometheus alone, as the official distroless one."""
    _write_program_image(archive, PROMETHEUS, "prometheus", binary)


def write_control_plane_image(archive: Path, image: str, programs: Mapping[str, str]) -> None:
    """An image with programs of a control plane by their names, at the paths of official images.

    Each is at /usr/local/bin/NAME and /NAME, for any user. There is nothing else, also no shell.
    """
    layer = _Layer().build(
        directories=["etc", "tmp", "usr", "usr/local", "usr/local/bin"],
        files={
            f"usr/local/bin/{name}": (Path(binary).read_bytes(), 0o755) for name, binary in programs.items()
        },
        links={name: f"/usr/local/bin/{name}" for name in programs},
    )
    first = next(iter(programs))
    write_archive(archive, image, [layer], {"Entrypoint": [f"/{first}"], "Env": ["PATH=/usr/local/bin"]})


def layer_of(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """A layer with these files: contents and modes by path. Unpacking makes their directories."""
    return _Layer().build(directories=["etc", "tmp"], files=dict(files), links={})


def _write_program_image(archive: Path, image: str, name: str, binary: str) -> None:
    layer = _Layer().build(directories=["etc"], files={name: (Path(binary).read_bytes(), 0o755)}, links={})
    write_archive(archive, image, [layer], {"Entrypoint": [f"/{name}"]})


def _busybox_layer() -> bytes:
    applets = subprocess.run(
        [_BUSYBOX, "--list"], capture_output=True, text=True, check=True, timeout=10
    ).stdout.split()
    return _Layer().build(
        directories=["bin", "etc", "root", "tmp", "srv", "var", "var/tmp"],
        files={
            "bin/busybox": (Path(_BUSYBOX).read_bytes(), 0o755),
            "etc/passwd": (b"root:x:0:0:root:/root:/bin/sh\n", 0o644),
            "etc/group": (b"root:x:0:\n", 0o644),
        },
        links={f"bin/{name}": "busybox" for name in applets if name != "busybox"},
    )


@dataclass(frozen=True, slots=True)
class Image:
    """One image: `layers` are tars, the lowest first; `settings` are of its configuration."""

    name: str
    layers: Sequence[bytes]
    settings: Mapping[str, object]


def write_archive(archive: Path, name: str, layers: Sequence[bytes], settings: Mapping[str, object]) -> None:
    """An OCI image layout with one image, as a tar that `ctr images import` reads."""
    write_images(archive, [Image(name, layers, settings)])


def write_images(archive: Path, images: Sequence[Image]) -> None:
    """The same with several images; a layer that some share is there once."""
    members = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
    manifests: list[dict[str, object]] = []
    for image in images:
        configuration = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Env": ["PATH=/bin"], **image.settings},
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in image.layers]},
            }
        ).encode()
        layer_type = "application/vnd.oci.image.layer.v1.tar"
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": _descriptor("application/vnd.oci.image.config.v1+json", configuration),
                "layers": [_descriptor(layer_type, layer) for layer in image.layers],
            }
        ).encode()
        manifests.append(
            {
                **_descriptor("application/vnd.oci.image.manifest.v1+json", manifest),
                # The name that containerd gives the image on import.
                "annotations": {"io.containerd.image.name": image.name},
            }
        )
        for blob in (configuration, manifest, *image.layers):
            members[f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}"] = blob
    members["index.json"] = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    with tarfile.open(archive, "w") as tar:
        for path, content in members.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _descriptor(media_type: str, content: bytes) -> dict[str, str | int]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
