# SPDX-License-Identifier: Apache-2.0
"""The files that kata-bridge's configuration names, as its start will use them."""

from collections.abc import Iterator

from daemonkit.run.start_check import (
    FileProblem,
    Severity,
    directory_problem,
    kubeconfig_problems,
    scrape_problems,
    socket_problem,
)
from kata_bridge.config import KataBridgeConfiguration, SandboxSources
from kata_bridge.sandboxes.file_source import GuestDirectory


def start_problems(config: KataBridgeConfiguration, now_s: float) -> Iterator[FileProblem]:
    """Each problem. Only the state directory ends a start. `now_s` is since 1970."""
    yield from _sandboxes_problems(config.sandboxes)
    if config.gate is not None and config.gate.super_cluster is not None:
        path = config.gate.super_cluster.kubeconfig_file
        yield from kubeconfig_problems("gate.superCluster.kubeconfigFile", path, now_s)
    if config.agent is not None:
        yield from _state_problems(config)
    yield from scrape_problems(config.metrics, now_s)


def _sandboxes_problems(sandboxes: SandboxSources) -> Iterator[FileProblem]:
    runtime = "the container runtime"
    if sandboxes.nri is not None:
        nri = socket_problem("sandboxes.nri.socket", sandboxes.nri.socket, f"{runtime}, with NRI enabled")
        if nri is not None:
            yield nri
    if sandboxes.cri is not None:
        cri = socket_problem("sandboxes.cri.socket", sandboxes.cri.socket, runtime)
        if cri is not None:
            yield cri
    directory = sandboxes.directory
    if directory is None:
        return
    key = "sandboxes.directory"
    unreadable = directory_problem(key, directory)
    if unreadable is not None:
        yield unreadable
        return
    guests = GuestDirectory(directory)
    guests.read()
    for name, problem in guests.problems.items():
        yield FileProblem(key, directory / name, problem, "repair or remove the file")


def _state_problems(config: KataBridgeConfiguration) -> Iterator[FileProblem]:
    # A large import, for nodes with such guests alone.
    from kata_bridge.guest_certificates import state_problem

    text = state_problem(config.state_directory)
    if text:
        message, _, remedy = text.partition("; ")
        remedy = remedy or "restore the directory, or remove it: guests then get new certificates"
        yield FileProblem("stateDirectory", config.state_directory, message, remedy, Severity.FATAL)
