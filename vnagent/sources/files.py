# SPDX-License-Identifier: Apache-2.0
"""Files as sources of tenants and pods: a directory of Tenant files, a PodList in a file.

Each is read whole when its content changes or when it is told to. What cannot be read leaves what was
published before.
"""

from pathlib import Path

from daemonkit import yaml_values
from daemonkit.files import FilesError, Watched
from daemonkit.tls import TlsError, check_authorities
from tenancy.document import TenantError, parse_tenant
from tenancy.ownership import ContainerPolicy, Owned
from tenancy.registry import Bad
from tenancy.tenant import Tenant
from vnagent.pages.page import PageError
from vnagent.pages.podlist import owned_pods

# A PodList of a node with 250 pods and all their status is 5 MB.
MAX_POD_LIST_BYTES = 64 << 20


class SourceError(Exception):
    """A source cannot be read at all; nothing may be concluded from it."""


class TenantDirectory:
    """`*.yaml` in one directory, a Tenant each. Hidden files and other names are not read."""

    def __init__(self, directory: Path) -> None:
        self._watched = Watched.directory(directory, "*.yaml")

    def changed(self) -> bool:
        return self._watched.poll()

    def read(self) -> dict[str, Tenant | Bad]:
        """All tenants by file name. Raises SourceError if the directory cannot be read."""
        try:
            content = self._watched.snapshot()
        except FilesError as error:
            raise SourceError(str(error)) from None
        found: dict[str, Tenant | Bad] = {path.name: _tenant(data) for path, data in content.items()}
        found |= {path.name: Bad(problem) for path, problem in self._watched.problems.items()}
        return found


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

    def __init__(self, path: Path, policy: ContainerPolicy) -> None:
        self._path = path
        self._policy = policy
        self._watched = Watched.files((path,), max_file_bytes=MAX_POD_LIST_BYTES)

    def changed(self) -> bool:
        return self._watched.poll()

    def read(self) -> tuple[tuple[Owned, ...], tuple[str, ...]]:
        """The tenants' pods in the list, and what is wrong with others. Raises SourceError."""
        data = self._watched.snapshot().get(self._path)
        if data is None:
            raise SourceError(self._watched.problems.get(self._path, "no such file"))
        try:
            return owned_pods(data, self._policy)
        except PageError as error:
            raise SourceError(str(error)) from None
