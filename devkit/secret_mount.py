# SPDX-License-Identifier: Apache-2.0
"""A Secret as the kubelet mounts it: all files change at once, by the swap of one link."""

import shutil
from collections.abc import Mapping
from pathlib import Path


class SecretMount:
    """A directory of links to files of the newest version."""

    def __init__(self, directory: Path, files: Mapping[str, bytes]) -> None:
        self.directory = directory
        self._version = 0
        directory.mkdir()
        self.update(files)

    def update(self, files: Mapping[str, bytes]) -> None:
        """Replace all files, in the kubelet's order (AtomicWriter)."""
        data = self.directory / "..data"
        before = data.resolve() if data.exists() else None
        self._version += 1
        inside = self.directory / f"..2026_11_30_{self._version}"
        inside.mkdir()
        for name, content in files.items():
            (inside / name).write_bytes(content)
        link = self.directory / "..data_tmp"
        link.symlink_to(inside.name)
        link.rename(data)
        shown = {path.name: path for path in self.directory.iterdir() if not path.name.startswith("..")}
        for name in files.keys() - shown.keys():
            (self.directory / name).symlink_to(f"..data/{name}")
        for name in shown.keys() - files.keys():
            shown[name].unlink()
        if before is not None:
            shutil.rmtree(before)
