# SPDX-License-Identifier: Apache-2.0
"""The authority of vn-agents' serving certificates, in a file that other programs change."""

from pathlib import Path

from daemonkit import logs
from daemonkit.files.watched import Watched
from daemonkit.tls.contexts import TlsError, check_authorities, pem_certificates

# A kubelet has a changed ConfigMap in the pod after a minute.
POLL_S = 2.0

_log = logs.get(__name__)


class NodesAuthority:
    """`pem` is the last content that could be used. Raises OSError if there is none at the start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._watched = Watched.files([path])
        self.pem = path.read_bytes()
        self.problem = ""
        # What is used already is no change.
        self._watched.poll()

    def poll(self) -> bool:
        """Whether another authority is to be used from now on. A file that cannot be used replaces none:
        another program may be halfway through writing it. Blocks shortly."""
        if not self._watched.poll():
            return False
        found = self._watched.snapshot().get(self._path)
        try:
            self.problem = self._watched.problems.get(self._path, "") or (
                "does not exist" if found is None else ""
            )
            if found is not None and not self.problem:
                check_authorities(pem_certificates(found))
        except TlsError as error:
            self.problem = str(error)
        if found is None or self.problem:
            _log.error(
                "cannot use the changed authority of nodes; the old one stays",
                file=self._path,
                reason=self.problem,
            )
            return False
        is_new, self.pem = found != self.pem, found
        return is_new
