# SPDX-License-Identifier: Apache-2.0
"""The files that vn-agent's configuration names, as its start will use them."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from daemonkit.run.start_check import (
    FileProblem,
    Severity,
    certificate_problems,
    directory_problem,
    kubeconfig_problems,
    scrape_problems,
    writable_problem,
)
from daemonkit.tls.contexts import TlsError, check_certificate
from tenancy.ownership import ContainerPolicy
from tenancy.registry import Bad
from vnagent.config import VnAgentConfiguration
from vnagent.core.jwks import JwksError, MissingLibraryError
from vnagent.saved_state import TENANTS_FILE
from vnagent.sources.files import PodListFile, SourceError, TenantDirectory
from vnagent.trust import kubelet_context, spiffe_trust


def start_problems(config: VnAgentConfiguration, now_s: float) -> Iterator[FileProblem]:
    """Each problem. Without its own certificates and sources it does not start. `now_s` is since 1970."""
    yield from _tls_problems(config, now_s)
    for key, path in _kubeconfigs(config).items():
        yield from kubeconfig_problems(key, path, now_s, Severity.FATAL)
    directory = config.tenants.directory
    if directory is not None:
        yield from _tenants_problems(config, directory)
    if config.pods.file is not None:
        yield from _pods_problems(config, config.pods.file)
    yield from _token_problems(config)
    yield from _unwritable(config)
    yield from scrape_problems(config.metrics, now_s)


def _tls_problems(config: VnAgentConfiguration, now_s: float) -> Iterator[FileProblem]:
    serving = config.serving
    certificate, key = serving.certificate_file, serving.key_file
    ours = {"serving.certificateFile": certificate, "serving.keyFile": key}
    check = partial(certificate_problems, now_s=now_s, severity=Severity.FATAL)
    yield from check(ours, lambda: check_certificate(certificate, key))
    kubelet, apiserver = config.kubelet, config.super_apiserver
    if kubelet is not None:
        theirs = {
            "kubelet.caFile": kubelet.ca_file,
            "kubelet.clientCertificateFile": kubelet.client_certificate_file,
            "kubelet.clientKeyFile": kubelet.client_key_file,
        }
        yield from check(theirs, lambda: kubelet_context(kubelet))
    if apiserver is not None:
        yield from _apiserver_problems(apiserver.kubeconfig_file, now_s)
    if config.spiffe is not None:
        yield from check({"spiffe.caFile": config.spiffe.ca_file}, lambda: spiffe_trust(config))


def _apiserver_problems(path: Path, now_s: float) -> Iterator[FileProblem]:
    key = "superApiserver.kubeconfigFile"
    found = tuple(kubeconfig_problems(key, path, now_s, Severity.FATAL))
    yield from found
    if any(each.severity is Severity.FATAL for each in found):
        return
    # Loads the parser of kubeconfigs, which other nodes do not need.
    from vnagent.upstream.apiserver import load_access

    try:
        load_access(path)
    except TlsError as error:
        text = str(error).removeprefix(f"{path}: ")
        yield FileProblem(key, path, text, "correct the kubeconfig", Severity.FATAL)


def _kubeconfigs(config: VnAgentConfiguration) -> dict[str, Path]:
    own = {"tenants.kubeconfigFile": config.tenants.kubeconfig_file}
    if config.pods_kubeconfig_file != config.tenants.kubeconfig_file:
        own["pods.kubeconfigFile"] = config.pods_kubeconfig_file
    return {key: path for key, path in own.items() if path is not None}


def _tenants_problems(config: VnAgentConfiguration, directory: Path) -> Iterator[FileProblem]:
    key = "tenants.directory"
    # A lost directory must not remove saved tenants: they are served, and /readyz has the cause.
    severity = Severity.ERROR if directory.is_dir() or _has_saved_tenants(config) else Severity.FATAL
    unreadable = directory_problem(key, directory, severity)
    if unreadable is not None:
        yield unreadable
        return
    try:
        found = TenantDirectory(directory, _no_clock).read().tenants
    except SourceError as error:
        yield FileProblem(key, directory, str(error), "leave only files of tenants in it")
        return
    for name, tenant in found.items():
        if isinstance(tenant, Bad):
            remedy = "repair or remove the file; `vcnode tenant list` shows all"
            yield FileProblem(key, directory / name, tenant.reason, remedy)


def _token_problems(config: VnAgentConfiguration) -> Iterator[FileProblem]:
    if not config.token_listeners:
        return
    # Its imports are for nodes with such a listener.
    from vnagent.token_ports import load_keys

    for number, each in enumerate(config.token_listeners):
        try:
            load_keys(each.jwks_file)
        except MissingLibraryError as error:
            remedy = "install the package vcnode-cryptography, and restart vn-agent"
            yield FileProblem("tokenListeners", None, f"{error}, so no token is verified", remedy)
            return
        except JwksError as error:
            # One tenant's keys must not stop the node: its tokens are refused.
            remedy = "write it anew: `kubectl get --raw /openid/v1/jwks` in the tenant"
            yield FileProblem(f"tokenListeners[{number}].jwksFile", each.jwks_file, str(error), remedy)


def _has_saved_tenants(config: VnAgentConfiguration) -> bool:
    state = config.state_directory
    return state is not None and (state / TENANTS_FILE).is_file()


def _pods_problems(config: VnAgentConfiguration, path: Path) -> Iterator[FileProblem]:
    severity = Severity.ERROR if path.is_file() else Severity.FATAL
    try:
        PodListFile(path, ContainerPolicy(config.foreign_containers), _no_clock).read()
    except SourceError as error:
        remedy = "write it anew: `kubectl get pods -A -o json`"
        yield FileProblem("pods.file", path, str(error), remedy, severity)


def _unwritable(config: VnAgentConfiguration) -> Iterator[FileProblem]:
    """The paths that the daemon cannot write to."""
    audit, socket = config.audit.path, config.status.socket
    for key, path in (("audit.file", audit), ("status.socket", socket)):
        if path is None:
            continue
        is_impossible = not path.parent.is_dir() or path.is_dir()
        severity = Severity.FATAL if is_impossible else Severity.ERROR
        problem = writable_problem(key, path, severity)
        if problem is not None:
            yield problem
    state = config.state_directory
    if state is not None and state.exists() and not state.is_dir():
        yield FileProblem("stateDirectory", state, "not a directory", "name a directory", Severity.FATAL)


def _no_clock() -> float:
    """The time of a read that confirms nothing."""
    return 0.0
