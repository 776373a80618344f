# SPDX-License-Identifier: Apache-2.0
"""A directory of kubeconfigs as the source of tenants: `<cluster key>.kubeconfig`, for imports and labs.

`<cluster key>.release` beside it has the token of the held deletions that a person releases.
"""

from collections.abc import Callable
from pathlib import Path

from daemonkit import logs
from daemonkit.files.watched import FilesError, Watched
from daemonkit.kube import kubeconfig
from daemonkit.kube.kubeconfig import KubeconfigError
from daemonkit.ticks import next_tick
from syncer.core.tenant_cluster import TenantCluster
from syncer.sources.port import PublishTenants, Reachable, TenantState, Unusable
from tenancy import names

SUFFIX = ".kubeconfig"
RELEASE_SUFFIX = ".release"
# A token has 8 characters.
_MAX_RELEASE_BYTES = 256
POLL_S = 1.0

_log = logs.get(__name__)


class DirectorySource:
    """Publishes all tenants when a file changes. An unreadable directory changes nothing."""

    def __init__(self, directory: Path, super_server: Callable[[], str], publish: PublishTenants) -> None:
        self._watched = Watched.directory(directory, f"*{SUFFIX}")
        self._release_files = Watched.directory(
            directory, f"*{RELEASE_SUFFIX}", max_file_bytes=_MAX_RELEASE_BYTES
        )
        self._directory = directory
        self._super_server = super_server
        self._publish = publish
        self.has_synced = False
        self.problem = ""

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            self.poll()
            await next_tick(POLL_S)

    def poll(self) -> None:
        """Publish if anything has changed."""
        is_changed = any([self._watched.poll(), self._release_files.poll()])
        if not is_changed and self.has_synced:
            return
        try:
            content = self._watched.snapshot()
            releases = {path.stem: data for path, data in self._release_files.snapshot().items()}
        except FilesError as error:
            if str(error) != self.problem:
                _log.error("tenants' directory cannot be read, tenants stay as they are", reason=error)
            self.problem = str(error)
            return
        self.problem = ""
        found = {
            path.name: self._tenant(path, data, releases.get(key_of(path), b""))
            for path, data in content.items()
        }
        for path, problem in self._watched.problems.items():
            found[path.name] = Unusable(key_of(path), "CredentialsUnusable", problem)
        self.has_synced = True
        self._publish(found)

    def _tenant(self, path: Path, data: bytes, release: bytes) -> TenantState:
        key = key_of(path)
        refusal = names.check_key(key)
        if refusal is not None:
            return Unusable(key, "ClusterKeyRefused", refusal.reason)
        try:
            access = kubeconfig.parse(data, self._directory)
        except KubeconfigError as error:
            return Unusable(key, "CredentialsUnusable", f"{path.name}: {error}")
        if access.server == self._super_server():
            return Unusable(key, "CredentialsUnusable", f"{path.name}: leads to the super cluster itself")
        token = release.decode("ascii", "replace").strip()
        return Reachable(TenantCluster(key, "", key, "", release=token), access)


def key_of(path: Path) -> str:
    return path.name.removesuffix(SUFFIX)
