# SPDX-License-Identifier: Apache-2.0
"""The files that the configurations of dnsconfig and its webhook name, as their start will use them."""

from collections.abc import Iterator
from pathlib import Path

from daemonkit.files.watched import Watched
from daemonkit.run.start_check import (
    FileProblem,
    Severity,
    kubeconfig_problems,
    scrape_problems,
    socket_problem,
)
from dnsconfig.config import DnsConfigConfiguration
from dnsconfig.node_resolv_conf import read_node_dns
from dnsconfig.resolve.node_resolver import server_problem
from dnsconfig.resolve.waiting import PodWaiting

_SYSTEMD = "/run/systemd/resolve/resolv.conf"


def start_problems(config: DnsConfigConfiguration, now_s: float) -> Iterator[FileProblem]:
    """Each problem; none ends a start, as pods keep their resolvers meanwhile. `now_s` is since 1970."""
    yield from kubeconfig_problems("superCluster.kubeconfigFile", config.super_cluster.kubeconfig_file, now_s)
    yield from resolv_conf_problems(config.resolv_conf)
    bridge = socket_problem("bridge.socket", config.bridge.socket, "kata-bridge")
    if bridge is not None:
        yield bridge
    yield from scrape_problems(config.metrics, now_s)


def resolv_conf_problems(resolv_conf: str, *, needs_servers: bool = True) -> Iterator[FileProblem]:
    """Why pods would get no usable resolver from the node's file; empty `resolv_conf`: there is no file."""
    if not resolv_conf:
        return
    key, path = "resolvConf", Path(resolv_conf)
    resolver = read_node_dns(Watched.files([path]), path, ()).resolver
    remedy = "repair it, or name the file of the kubelet's resolvConf"
    if isinstance(resolver, PodWaiting):
        yield FileProblem(key, path, resolver.message.removeprefix(f"{path} cannot be used: "), remedy)
    elif needs_servers and (problem := server_problem(resolver)):
        if not resolver.servers:
            yield FileProblem(key, path, problem, remedy)
        else:
            remedy = f"name a file with the real servers, as {_SYSTEMD}, here and in the kubelet's resolvConf"
            yield FileProblem(key, path, problem, remedy, Severity.WARNING)
