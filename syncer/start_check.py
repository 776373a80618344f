# SPDX-License-Identifier: Apache-2.0
"""What of a configuration's files would fail the start: for `--check-config`.

A tenant's own kubeconfig is not looked at: one that cannot be used holds up nobody else.
"""

from collections.abc import Iterator
from pathlib import Path

from daemonkit.kube.credentials import Credentials, CredentialsError
from daemonkit.kube.kubeconfig import load
from syncer.config import SyncerConfiguration


def start_problems(config: SyncerConfiguration) -> Iterator[str]:
    """Each with the path of its key. Nothing is written and nothing connected."""
    yield from _kubeconfig_problems("superCluster.kubeconfigFile", config.super_cluster.kubeconfig_file)
    tenants = config.tenants
    if tenants.virtual_clusters is not None:
        meta = tenants.virtual_clusters.kubeconfig_file
        yield from _kubeconfig_problems("tenants.virtualClusters.kubeconfigFile", meta)
    if tenants.directory is not None:
        yield from _directory_problems("tenants.directory", tenants.directory)


def _kubeconfig_problems(key: str, path: Path | None) -> Iterator[str]:
    if path is None:
        return
    try:
        Credentials(lambda: load(path))
    except CredentialsError as error:
        text = str(error)
        yield f"{key}: {text}" if str(path) in text else f"{key}: {path}: {text}"


def _directory_problems(key: str, path: Path) -> Iterator[str]:
    try:
        for _ in path.iterdir():
            break
    except OSError as error:
        yield f"{key}: {path}: {error.strerror}"
