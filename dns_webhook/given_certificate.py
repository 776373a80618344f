# SPDX-License-Identifier: Apache-2.0
"""A certificate that another program issues, renews and has API servers trust, as cert-manager does."""

import asyncio
from collections.abc import Callable

from daemonkit import logs
from daemonkit.files.watched import Watched
from daemonkit.tls.contexts import TlsError
from dns_webhook.config import Serving

# cert-manager renews weeks before the end; a kubelet has the Secret in the pod a minute later.
POLL_S = 2.0

_log = logs.get(__name__)


class GivenCertificate:
    """Follows the two files. `show` makes connections use them, and raises TlsError.

    Files that cannot be used replace no certificate in use: another program may be halfway through writing
    them. Nothing is published, so it is ready at once; who issues the certificate writes `caBundle`.
    """

    is_published = True

    def __init__(self, serving: Serving, show: Callable[[], None]) -> None:
        self._show = show
        self._watched = Watched.files([serving.certificate_file, serving.key_file])
        self.problem = ""
        self.renewal_problem = ""

    def begin(self) -> None:
        """What the server starts with counts as seen."""
        self._watched.poll()

    async def run(self) -> None:
        """Follow the files, until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            self.poll()

    def poll(self) -> None:
        """Use the files if they changed. Blocks shortly."""
        if not self._watched.poll() and not self.renewal_problem:
            return
        try:
            self._show()
        except TlsError as error:
            if str(error) != self.renewal_problem:
                _log.error("cannot use the renewed certificate; the old one stays", reason=str(error))
            self.renewal_problem = str(error)
        else:
            self.renewal_problem = ""
            _log.info("certificate renewed")
