# SPDX-License-Identifier: Apache-2.0
"""The state directory, before anything is in it. Apart from what fills it, which is not always needed."""

import contextlib
from pathlib import Path


class CredentialsError(Exception):
    """The state directory cannot be used, or a sandbox has no usable name; says which and why."""


def private_directory(path: Path) -> None:
    """Make the directory if need be; whatever it was before, only its owner enters it. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    path.chmod(0o700)
