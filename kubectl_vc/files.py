# SPDX-License-Identifier: Apache-2.0
"""Files that only their owner reads."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator


def write_private(path: str, content: str) -> None:
    """Replace or make a file of mode 0600, whole or not at all. Raises OSError.

    What is no regular file, such as /dev/stdout, is written as it is.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113 - pathlib loads slowly
        with open(path, "w", encoding="utf-8") as other:  # noqa: PTH123 - as above
            other.write(content)
        return
    target = os.path.realpath(path)
    descriptor, scratch = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".kubectl-vc-")  # noqa: PTH120 - as above
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(scratch, target)  # noqa: PTH105 - as above
    except BaseException:
        os.unlink(scratch)  # noqa: PTH108 - as above
        raise


@contextlib.contextmanager
def private_directory() -> Iterator[str]:
    """A directory of mode 0700, removed at the end."""
    made = tempfile.mkdtemp(prefix="kubectl-vc-")
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
