# SPDX-License-Identifier: Apache-2.0
"""Releases the manifests of the super cluster:
`python packaging/manifests.py --images DIRECTORY --out DIRECTORY [--registry NAME]`.

The Helm chart as an archive, and the kustomize bases as another. Both name the images of IMAGES
(packaging/image.py) by their digests, below `--registry`. The archives have no links and no times: one commit
and the same images make the same bytes.
"""

import argparse
import gzip
import io
import json
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import image
import packages

from daemonkit.version import VERSION

_PACKAGING = packages.SOURCE / "packaging"
_CHART = _PACKAGING / "helm/vcnode"
_BASES = ("namespace", "crds", "syncer", "operator", "webhook", "webhook-cert-manager", "cluster")
# The bases with a Deployment.
_WITH_IMAGE = {
    "syncer": "vcnode-vc-syncer",
    "operator": "vcnode-vc-operator",
    "webhook": "vcnode-dnsconfig-webhook",
}


def main(argv: list[str] | None = None) -> int:
    """Write both archives. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="manifests.py", allow_abbrev=False)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--registry", default="", help="as given to image.py")
    arguments = parser.parse_args(argv)
    digests = json.loads((arguments.images / image.DIGESTS).read_text())
    release = VERSION
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, files in (
        (f"vcnode-{release}.tgz", chart(digests, arguments.registry, release)),
        (f"vcnode-kustomize-{release}.tgz", bases(digests, arguments.registry)),
    ):
        (arguments.out / name).write_bytes(_archive(dict(files)))
        sys.stdout.write(f"{arguments.out / name}\n")
    return 0


def chart(digests: dict[str, str], registry: str, release: str) -> Iterator[tuple[str, bytes]]:
    """Each file of the chart's archive, as `helm package` names it."""
    for path in _files(_CHART):
        text = path.read_text()
        if path.name == "Chart.yaml":
            text = re.sub(r"(?m)^((?:appV|v)ersion): .*$", rf"\1: {release}", text)
        if path.name == "values.yaml" and path.parent == _CHART:
            text = "".join(_with_digests(text.splitlines(keepends=True), digests, registry))
        yield f"vcnode/{path.relative_to(_CHART)}", text.encode()


def _with_digests(lines: list[str], digests: dict[str, str], registry: str) -> Iterator[str]:
    """The values, with the digest of each repository that is one of our images."""
    digest = ""
    for line in lines:
        key, _, value = line.strip().partition(": ")
        if key == "repository":
            digest = digests[value]
            yield line.replace(value, f"{registry}/{value}" if registry else value)
        elif key == "digest":
            yield line.replace('""', digest)
        else:
            yield line


def bases(digests: dict[str, str], registry: str) -> Iterator[tuple[str, bytes]]:
    """Each file of the bases, with the images in the kustomizations."""
    for name in _BASES:
        for path in _files(_PACKAGING / name):
            text = path.read_text()
            if path.name == "kustomization.yaml" and name in _WITH_IMAGE:
                ours = _WITH_IMAGE[name]
                place = f"{registry}/{ours}" if registry else ours
                text += (
                    f"images:\n  - {{name: {ours}, newName: {place}, digest: {json.dumps(digests[ours])}}}\n"
                )
            yield f"{name}/{path.relative_to(_PACKAGING / name)}", text.encode()


def _files(directory: Path) -> Iterator[Path]:
    """All files below, also in linked directories, by name."""
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), 9, mtime=0)


if __name__ == "__main__":
    sys.exit(main())
