# SPDX-License-Identifier: Apache-2.0
"""Reads the directory of keys: a mounted Secret, or plain files.

Not `daemonkit.files.watched`, which is for many and large files, and takes 1.1 MB of a process that has 7.
The kubelet swaps `..data` to a new directory; all files are read through one descriptor of it, so that
they are of one version of the Secret.
"""

import os
import stat
from contextlib import suppress

from vc_signer.core.key_set import MAX_KEYS, PUBLIC_SUFFIX, SIGNING_FILE, KeySetError

MAX_FILE_BYTES = 16 << 10
_DATA = "..data"
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def read(directory: str) -> dict[str, bytes]:
    """The files of keys by their names. Raises `KeySetError` for one that cannot be read."""
    name = directory
    try:
        descriptor = _open(directory)
        try:
            files: dict[str, bytes] = {}
            with os.scandir(descriptor) as entries:
                names = sorted(entry.name for entry in entries if _is_of_keys(entry.name))
            for name in names:
                if len(files) > MAX_KEYS:
                    raise KeySetError(f"{directory}: more than {MAX_KEYS} keys: remove those that expired")
                files[name] = _read(name, descriptor)
            return files
        finally:
            os.close(descriptor)
    except OSError as error:
        raise KeySetError(f"{name}: {error.strerror}") from None


def _open(directory: str) -> int:
    with suppress(FileNotFoundError):
        return os.open(f"{directory}/{_DATA}", _FLAGS | os.O_DIRECTORY)
    return os.open(directory, _FLAGS | os.O_DIRECTORY)


def _is_of_keys(name: str) -> bool:
    """Hidden files are editors' and the kubelet's."""
    return name == SIGNING_FILE or (name.endswith(PUBLIC_SUFFIX) and not name.startswith("."))


def _read(name: str, directory: int) -> bytes:
    descriptor = os.open(name, _FLAGS, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise KeySetError(f"{name}: not a regular file")
        data = os.read(descriptor, MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise KeySetError(f"{name}: larger than {MAX_FILE_BYTES} bytes")
    return data
