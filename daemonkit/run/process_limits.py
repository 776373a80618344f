# SPDX-License-Identifier: Apache-2.0
"""What a daemon's process asks of the kernel and of the C library when it starts."""

import contextlib
import ctypes
import resource

# malloc.h of glibc.
_M_MMAP_THRESHOLD = -3
LARGE_BYTES = 64 << 10


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard one: the usual 1024 is for programs that use select(2).

    A daemon's own bounds limit the connections it takes, and it needs descriptors for other things.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def return_large_blocks() -> bool:
    """Have blocks of `LARGE_BYTES` or more returned to the kernel when they are freed. Call it first.

    glibc does that until the first such block is freed. Then it raises its threshold (mallopt(3)) and takes
    blocks of that size from the heap, where small ones settle behind them: a list's page or a rendered
    document of some hundred KB stays resident for ever. False if another C library refuses.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES))
    except (AttributeError, OSError):
        return False


def return_free_pages() -> bool:
    """Return to the kernel the pages of the heap that are free (malloc_trim(3)). Call it after a burst.

    glibc itself does that at the heap's end alone. It takes half a millisecond, and as much for each MB that
    is returned. False if another C library has no such call.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return False
    return True
