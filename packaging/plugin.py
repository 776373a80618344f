# SPDX-License-Identifier: Apache-2.0
"""Builds the kubectl plugin for krew: `python packaging/plugin.py DIRECTORY`.

`kubectl-vc` is one file, a zipapp of `kubectl_vc` and of what that imports of ours; it needs Python 3.11 and
kubectl. `kubectl-vc_VERSION.tar.gz` has it with its licence, and the file vc.yaml in the folder plugins is
the manifest for an index of krew (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/). One commit
makes the same bytes.
"""

import ast
import gzip
import hashlib
import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
PROGRAM = "kubectl-vc"
_ROOT = "kubectl_vc.__main__"
_START = b"#!/usr/bin/env python3\n"
_MAIN = "import sys\n\nfrom kubectl_vc.__main__ import main\n\nsys.exit(main())\n"
_RELEASES = "https://github.com/vcnode/vcnode/releases/download"
# The first time that a ZIP file can have: that of a build is of no use.
_TIME = (1980, 1, 1, 0, 0, 0)


def main(argv: list[str]) -> int:
    """Write all below the directory. Returns the exit code."""
    (target,) = map(Path, argv)
    (target / "plugins").mkdir(parents=True, exist_ok=True)
    program = zipapp()
    path = target / PROGRAM
    path.write_bytes(program)
    path.chmod(0o755)
    archive = tar({PROGRAM: program, "LICENSE": (SOURCE / "LICENSE").read_bytes()})
    name = f"{PROGRAM}_{version()}.tar.gz"
    (target / name).write_bytes(archive)
    (target / "plugins" / "vc.yaml").write_text(manifest(name, hashlib.sha256(archive).hexdigest()))
    return 0


def version() -> str:
    """That of all programs."""
    values: dict[str, str] = {}
    exec((SOURCE / "daemonkit/version.py").read_text(), values)  # noqa: S102 - our own file, of one constant
    return values["VERSION"]


def modules() -> dict[str, Path]:
    """What the plugin imports of ours, at its head or in functions, with the packages that hold it."""
    found: dict[str, Path] = {}
    pending = [_ROOT]
    while pending:
        name = pending.pop()
        path = _path(name)
        if name in found or path is None:
            continue
        found[name] = path
        pending += [name.rpartition(".")[0], *_imports(path)]
    return dict(sorted(found.items()))


def zipapp() -> bytes:
    """The program: a ZIP file behind the line that starts the interpreter."""
    content = io.BytesIO()
    content.write(_START)
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        files = {str(path.relative_to(SOURCE)): path.read_text() for path in modules().values()}
        for name, text in {"__main__.py": _MAIN, **files}.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def tar(files: dict[str, bytes]) -> bytes:
    """A compressed archive, without times and owners."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name == PROGRAM else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), 9, mtime=0)


def manifest(archive: str, digest: str) -> str:
    """Of krew; JSON is YAML."""
    platform = {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
        "uri": f"{_RELEASES}/v{version()}/{archive}",
        "sha256": digest,
        "bin": PROGRAM,
    }
    plugin = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "vc"},
        "spec": {
            "version": f"v{version()}",
            "homepage": "https://vcnode.io",
            "shortDescription": "Tenants with control planes of their own",
            "description": "Makes VirtualClusters in a super cluster of vcnode, gives out their kubeconfigs,"
            " upgrades, backs up and restores them, lets them sleep, and finds what is wrong.",
            "caveats": "It needs Python 3.11 or newer. For completion: ln -s kubectl-vc kubectl_complete-vc"
            " beside it in PATH.",
            "platforms": [platform],
        },
    }
    return f"{json.dumps(plugin, indent=2)}\n"


def _path(name: str) -> Path | None:
    """The file of a module of ours; None for any other."""
    base = SOURCE.joinpath(*name.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if name and path.is_file():
            return path
    return None


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
