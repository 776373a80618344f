# SPDX-License-Identifier: Apache-2.0
"""Writes one image as an OCI archive: the same layers and settings make the same bytes.

https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md
"""

import datetime as dt
import gzip
import hashlib
import io
import json
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True, slots=True)
class LayerBlob:
    """One layer: `diff_id` is the digest of the tar in `blob`."""

    blob: bytes
    diff_id: str


def layer(root: Path) -> LayerBlob:
    """All below `root`, in the order of names, owned by root, without times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            entry = tar.gettarinfo(path, str(path.relative_to(root)))
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            if entry.islnk():
                raise ValueError(f"{path}: a hard link")
            if entry.isreg():
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
    return LayerBlob(gzip.compress(buffer.getvalue(), 6, mtime=0), _digest(buffer.getvalue()))


def read_layer(blob: bytes) -> LayerBlob:
    """A layer that was made before."""
    return LayerBlob(blob, _digest(gzip.decompress(blob)))


def write(
    archive: Path, name: str, tag: str, layers: list[LayerBlob], settings: dict[str, object], made_at: int
) -> str:
    """Write the archive, and return the digest of the image's manifest.

    `name` has no tag. containerd imports it as NAME:TAG and as NAME@DIGEST, by which manifests name it.
    """
    created = dt.datetime.fromtimestamp(made_at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = _json(
        {
            "created": created,
            "architecture": ARCHITECTURES[os.uname().machine],
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in layers]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [_descriptor(_LAYER, each.blob) for each in layers],
        }
    )
    digest = _digest(manifest)
    images = []
    for reference in (f"{name}:{tag}", f"{name}@{digest}"):
        notes = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
        images.append({**_descriptor(_MANIFEST, manifest), "annotations": notes})
    members = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
    members["index.json"] = _json({"schemaVersion": 2, "manifests": images})
    for blob in (config, manifest, *(each.blob for each in layers)):
        members[f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}"] = blob
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as tar:
        for path, content in sorted(members.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return digest


def _descriptor(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
