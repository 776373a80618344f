# SPDX-License-Identifier: Apache-2.0
"""The files that vc-syncer's configuration names, as its start will use them.

An unusable kubeconfig of one tenant is a warning: the other tenants go on.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from daemonkit.run import memory_limit
from daemonkit.run.memory_limit import MemoryLimit
from daemonkit.run.start_check import (
    FileProblem,
    Severity,
    directory_problem,
    kubeconfig_problems,
    scrape_problems,
)
from syncer.config import SyncerConfiguration
from syncer.core.memory import MIN_LIMIT_BYTES, chosen_limit_bytes, limit_for, room
from syncer.sources.directory import SUFFIX, key_of
from syncer.sources.port import overlap_message
from tenancy import names

_TENANTS = f"[!.]*{SUFFIX}"


def start_problems(
    config: SyncerConfiguration, now_s: float, limit: Callable[[], MemoryLimit | None] = memory_limit.find
) -> Iterator[FileProblem]:
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
    yield from _memory_problems(config, limit())


def _memory_problems(config: SyncerConfiguration, found: MemoryLimit | None) -> Iterator[FileProblem]:
    """Where the limit is too small for the process, or for the tenants that are known."""
    configured, key = config.max_memory_bytes, "maxMemoryBytes"
    if found is not None and configured is not None and found.size_bytes < configured:
        message = (
            f"{configured >> 20} MiB are more than the {found.size_bytes >> 20} MiB of the process' cgroup: "
            "the kernel ends it before a tenant has to wait"
        )
        yield FileProblem(key, found.path, message, "leave the key out, or lower it", Severity.WARNING)
    size_bytes = chosen_limit_bytes(configured, None if found is None else found.size_bytes)
    path = None if found is None or configured is not None else found.path
    if size_bytes < MIN_LIMIT_BYTES:
        message = (
            f"{size_bytes >> 20} MiB are too little: the process takes {MIN_LIMIT_BYTES >> 20} MiB "
            "before a tenant has to wait"
        )
        yield FileProblem(key, path, message, "raise the limit of the cgroup", Severity.WARNING)
    directory = config.tenants.directory
    count = 0 if directory is None or not directory.is_dir() else sum(1 for _ in directory.glob(_TENANTS))
    if count > room(size_bytes):
        message = f"{size_bytes >> 20} MiB have room for {room(size_bytes)} tenants, and there are {count}"
        remedy = (
            f"raise the limit to {(limit_for(count) >> 20) + 1} MiB, or divide the tenants among replicas"
        )
        yield FileProblem(key, path, message, remedy, Severity.WARNING)


def _tenants_problems(directory: Path, now_s: float) -> Iterator[FileProblem]:
    key = "tenants.directory"
    unreadable = directory_problem(key, directory)
    if unreadable is not None:
        yield unreadable
        return
    paths = sorted(directory.glob(_TENANTS))
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
