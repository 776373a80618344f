# SPDX-License-Identifier: Apache-2.0
"""How many descriptors a daemon may have."""

import contextlib
import resource


def raise_limit() -> None:
    """To the hard limit: the usual soft one of 1024 is for programs that use select(2).

    What takes connections from outside has as many as its own bounds allow, and needs others besides.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
