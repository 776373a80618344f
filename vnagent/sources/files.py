# SPDX-License-Identifier: Apache-2.0
"""Files as sources of tenants and pods: a directory of Tenant files, a PodList in a file.

Each is read as a whole when its content changes or on request. A failed read leaves the published objects,
and confirms them no longer.
"""

import time
from collections.abc import Callable
from pathlib import Path

from daemonkit import os_errors
from daemonkit.config import yaml_values
from daemonkit.files.watched import FilesError, Watched, signature
from daemonkit.remedies import Hop, HopKind
from daemonkit.tls.contexts import TlsError, check_authorities
from tenancy.document import TenantError, parse_tenant
from tenancy.ownership import ContainerPolicy, Owned
from tenancy.registry import Bad
from tenancy.tenant import Tenant
from vnagent.pages.page import PageError
from vnagent.pages.podlist import owned_pods
from vnagent.sources.port import Confirmation
from vnagent.tenants.reading import TenantsReading

# A PodList of a node with 250 pods and all their status is 5 MB.
MAX_POD_LIST_BYTES = 64 << 20
# `acme.yaml.removed` beside no `acme.yaml` confirms that the tenant was removed and the file not lost.
REMOVED_SUFFIX = ".removed"
DIRECTORY = Hop(HopKind.FILE, "tenants.directory", "the directory and its files")
_POD_LIST = Hop(HopKind.FILE, "pods.file", "the file")


class SourceError(Exception):
    """A source cannot be read; the published objects stay."""


class TenantDirectory:
    """`*.yaml` in one directory, a Tenant each. Hidden files and other names are not read."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._watched = Watched.directory(directory, "*.yaml")
        self._removed = Watched.directory(directory, f"*.yaml{REMOVED_SUFFIX}")
        self._outdated: set[tuple[str, object]] = set()
        self.confirmation = Confirmation(clock)

    def poll(self) -> bool:
        is_changed = any([self._watched.poll(), self._removed.poll()])
        if not is_changed:
            self.confirmation.confirm_unchanged()
        return is_changed

    def read(self) -> TenantsReading:
        """All tenants by file name. Raises SourceError if the directory cannot be read."""
        try:
            # Before the files: a marker is written after its file was removed.
            markers = {path.stem: signature(path) for path in self._removed.snapshot()}
            content = self._watched.snapshot()
        except FilesError as error:
            self.confirmation.fail(DIRECTORY.fault(os_errors.describe_text(str(error))[1], str(error)))
            raise SourceError(str(error)) from None
        found: dict[str, Tenant | Bad] = {path.name: _tenant(data) for path, data in content.items()}
        found |= {path.name: Bad(problem) for path, problem in self._watched.problems.items()}
        # A marker beside its file is of an earlier removal, and does not confirm a later one.
        known = {(name, seen) for name, seen in markers.items() if name in found}
        self._outdated = known | (self._outdated & markers.items())
        return TenantsReading(found, frozenset(name for name, _ in markers.items() - self._outdated))


def _tenant(data: bytes) -> Tenant | Bad:
    try:
        tenant = parse_tenant(yaml_values.decode(data.decode()))
        check_authorities(tenant.authorities)
    except UnicodeDecodeError:
        return Bad("not UTF-8")
    except (yaml_values.YamlError, TenantError, TlsError) as error:
        return Bad(str(error))
    return tenant


class PodListFile:
    """A v1 PodList as `kubectl get pods -A -o json` prints it."""

    def __init__(
        self, path: Path, policy: ContainerPolicy, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._policy = policy
        self._watched = Watched.files((path,), max_file_bytes=MAX_POD_LIST_BYTES)
        self.confirmation = Confirmation(clock)

    def poll(self) -> bool:
        is_changed = self._watched.poll()
        if not is_changed:
            self.confirmation.confirm_unchanged()
        return is_changed

    def read(self) -> tuple[tuple[Owned, ...], tuple[str, ...]]:
        """The tenants' pods in the list, and the problems of others. Raises SourceError."""
        try:
            data = self._watched.snapshot().get(self._path)
            if data is None:
                raise SourceError(self._watched.problems.get(self._path, "no such file"))
            return owned_pods(data, self._policy)
        except (PageError, SourceError) as error:
            cause = os_errors.describe_text(str(error))[1]
            self.confirmation.fail(_POD_LIST.fault(cause, str(error), str(self._path)))
            raise SourceError(str(error)) from None
