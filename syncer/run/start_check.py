# SPDX-License-Identifier: Apache-2.0
"""The files that vc-syncer's configuration names, as its start will use them.

An unusable kubeconfig of one tenant is a warning: the other tenants go on.
"""

from collections.abc import Iterator
from pathlib import Path

from daemonkit.run.start_check import (
    FileProblem,
    Severity,
    directory_problem,
    kubeconfig_problems,
    scrape_problems,
)
from syncer.config import SyncerConfiguration
from syncer.sources.directory import SUFFIX, key_of
from syncer.sources.port import overlap_message
from tenancy import names


def start_problems(config: SyncerConfiguration, now_s: float) -> Iterator[FileProblem]:
    """Each problem. Without its own API servers it does not start. `now_s` is since 1970."""
    own = {"superCluster.kubeconfigFile": config.super_cluster.kubeconfig_file}
    tenants = config.tenants
    if tenants.virtual_clusters is not None:
        own["tenants.virtualClusters.kubeconfigFile"] = tenants.virtual_clusters.kubeconfig_file
    for key, path in own.items():
        if path is not None:
            yield from kubeconfig_problems(key, path, now_s, Severity.FATAL)
    if tenants.directory is not None:
        yield from _tenants_problems(tenants.directory, now_s)
    yield from scrape_problems(config.metrics, now_s)


def _tenants_problems(directory: Path, now_s: float) -> Iterator[FileProblem]:
    key = "tenants.directory"
    unreadable = directory_problem(key, directory)
    if unreadable is not None:
        yield unreadable
        return
    paths = sorted(directory.glob(f"[!.]*{SUFFIX}"))
    overlapping = names.overlapping(map(key_of, paths))
    for path in paths:
        refusal = names.check_key(key_of(path))
        if refusal is None and key_of(path) in overlapping:
            refusal = names.Refused(overlap_message(key_of(path)))
        if refusal is not None:
            remedy = f"name the file <cluster key>{SUFFIX}"
            yield FileProblem(key, path, refusal.reason, remedy, Severity.WARNING)
            continue
        for each in kubeconfig_problems(key, path, now_s):
            yield FileProblem(each.key, each.path, each.message, each.remedy, Severity.WARNING)
