# SPDX-License-Identifier: Apache-2.0
"""What a run of the ring leaves on the machine while it lives, and the removal of it afterwards.

Processes and mounts end with the run, by the kernel's hand. A directory, two network namespaces and
the control groups have names, and stay when the run itself was killed; the next run removes them. A
run holds a lock in its directory, so one that lives is never taken for one that died.
"""

from __future__ import annotations

import fcntl
import secrets
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.k8s.ring import cgroups, network
from tests.netns import NAMED

_LOCK = "lock"


def open_directory(stack: ExitStack, kind: str = "vck8s") -> tuple[Path, str]:
    """A directory of this run's own, and the prefix of its names; `stack` removes the directory.

    The names of all runs of a kind begin with `kind`.

    The path is short: the names of unix sockets end at 107 bytes, and that of a Kata shim's has a
    sandbox id of 64 in it.
    """
    _remove_dead_runs(kind)
    prefix = f"{kind}{secrets.token_hex(3)}"
    directory = Path(tempfile.gettempdir()) / prefix
    directory.mkdir(mode=0o700)
    stack.callback(shutil.rmtree, directory)
    lock = stack.enter_context((directory / _LOCK).open("w"))
    fcntl.flock(lock, fcntl.LOCK_EX)
    return directory, prefix


def _remove_dead_runs(kind: str) -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{kind}*/{_LOCK}"):
        with lock.open("w") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # it lives
            directory = lock.parent
            network.delete([path.name for path in NAMED.glob(f"{directory.name}-*")])
            cgroups.remove(directory.name)
            shutil.rmtree(directory)
