# SPDX-License-Identifier: Apache-2.0
"""Waits for the kernel's random pool, and says so.

TLS takes its first random bytes from getrandom(2), which blocks until the kernel has gathered enough of
them. A VM without a source of randomness may wait for minutes after boot, and the agent would do so
within OpenSSL, without a word.
"""

import os
from collections.abc import Callable

from daemonkit import logs

_log = logs.get(__name__)


def wait_until_ready(getrandom: Callable[[int, int], bytes] = os.getrandom) -> None:
    """Return when TLS will not wait any more. Signals are handled meanwhile."""
    try:
        getrandom(1, os.GRND_NONBLOCK)
    except BlockingIOError:
        _log.warning(
            "waiting for the guest kernel's random pool, which TLS needs: give the VM a virtio-rng device"
        )
        getrandom(1, 0)
        _log.info("the guest kernel's random pool is ready")
    except OSError as error:
        # A kernel without the call, or a seccomp profile: TLS has other ways, or an error of its own.
        _log.debug("cannot look at the random pool", error=error)
