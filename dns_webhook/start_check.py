# SPDX-License-Identifier: Apache-2.0
"""The files that the webhook's configuration names, as its start will use them."""

from collections.abc import Iterator
from pathlib import Path

from daemonkit.run.start_check import (
    FileProblem,
    Severity,
    certificate_problems,
    date_problems,
    kubeconfig_problems,
    read_at_most,
    scrape_problems,
    writable_problem,
)
from daemonkit.tls.contexts import anonymous_server_context
from dns_webhook.config import DnsWebhookConfiguration
from dns_webhook.credentials import CredentialsError, read_state
from dnsconfig.start_check import resolv_conf_problems


def start_problems(config: DnsWebhookConfiguration, now_s: float) -> Iterator[FileProblem]:
    """Each problem. Only the state directory and the certificate end a start. `now_s` is since 1970."""
    yield from kubeconfig_problems("superCluster.kubeconfigFile", config.super_cluster.kubeconfig_file, now_s)
    # A pod of class CLUSTER gets the node's search list only; the other classes are the kubelet's.
    yield from resolv_conf_problems(config.resolv_conf, needs_servers=False)
    if config.serving is not None:
        serving = config.serving
        files = {"serving.certificateFile": serving.certificate_file, "serving.keyFile": serving.key_file}
        yield from certificate_problems(
            files,
            lambda: anonymous_server_context(serving.certificate_file, serving.key_file),
            now_s,
            Severity.FATAL,
        )
    elif config.state_directory is not None:
        yield from _state_problems(config.state_directory, now_s)
    yield from scrape_problems(config.metrics, now_s)


def _state_problems(directory: Path, now_s: float) -> Iterator[FileProblem]:
    key = "stateDirectory"
    # Not `daemonkit.files.directories`: in a pod it is a volume that the kubelet gives to a group.
    unwritable = writable_problem(key, directory / "tls.pem", Severity.FATAL) if directory.exists() else None
    if unwritable is not None:
        yield unwritable
        return
    try:
        read_state(directory)
    except CredentialsError as error:
        message, _, remedy = str(error).removeprefix(f"{directory}: ").partition("; ")
        yield FileProblem(key, directory, message, remedy, Severity.FATAL)
        return
    # Renewed at the start, so an expired one is no problem for long.
    for each in date_problems(key, directory / "tls.pem", read_at_most(directory / "tls.pem"), now_s):
        yield FileProblem(each.key, each.path, each.message, "the start renews it", Severity.WARNING)
