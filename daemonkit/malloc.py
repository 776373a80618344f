# SPDX-License-Identifier: Apache-2.0
"""What the C library's allocator does with large blocks that are freed."""

import ctypes

# malloc.h of glibc.
_M_MMAP_THRESHOLD = -3
LARGE_BYTES = 64 << 10


def return_large_blocks() -> bool:
    """Have each block of `LARGE_BYTES` or more go back to the kernel when it is freed.

    glibc does so by itself until it has seen one freed; then it takes blocks of that size from the
    heap (mallopt(3): the threshold is dynamic), where small ones settle behind them, and a page of a
    list or a rendered document of some hundred KB is in the resident set for ever. Tells whether the
    allocator took it: another C library has none of this. Call it before anything is allocated.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES))
    except (AttributeError, OSError):
        return False
