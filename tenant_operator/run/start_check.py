# SPDX-License-Identifier: Apache-2.0
"""The files that vc-operator's configuration names, as its start will use them."""

from collections.abc import Iterator

from daemonkit.run.start_check import (
    FileProblem,
    Severity,
    certificate_problems,
    kubeconfig_problems,
    scrape_problems,
)
from daemonkit.tls.contexts import check_authorities, pem_certificates
from tenant_operator.config import OperatorConfiguration


def start_problems(config: OperatorConfiguration, now_s: float) -> Iterator[FileProblem]:
    """Each problem. Without the super cluster's API server it does not start. `now_s` is since 1970."""
    path = config.super_cluster.kubeconfig_file
    if path is not None:
        yield from kubeconfig_problems("superCluster.kubeconfigFile", path, now_s, Severity.FATAL)
    authority = config.nodes.serving_ca_file

    def use() -> None:
        check_authorities(pem_certificates(authority.read_bytes()))

    yield from certificate_problems({"nodes.servingCaFile": authority}, use, now_s, Severity.FATAL)
    yield from scrape_problems(config.metrics, now_s)
