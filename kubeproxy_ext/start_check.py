# SPDX-License-Identifier: Apache-2.0
"""The files that kubeproxy-ext's configuration names, as its start will use them."""

from collections.abc import Iterator

from daemonkit.run.start_check import FileProblem, kubeconfig_problems, scrape_problems, socket_problem
from kubeproxy_ext.config import KubeproxyExtConfiguration


def start_problems(config: KubeproxyExtConfiguration, now_s: float) -> Iterator[FileProblem]:
    """Each problem; none ends a start, as guests keep their rules meanwhile. `now_s` is since 1970."""
    yield from kubeconfig_problems("superCluster.kubeconfigFile", config.super_cluster.kubeconfig_file, now_s)
    bridge = socket_problem("bridge.socket", config.bridge.socket, "kata-bridge")
    if bridge is not None:
        yield bridge
    yield from scrape_problems(config.metrics, now_s)
