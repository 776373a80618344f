# SPDX-License-Identifier: Apache-2.0
"""The TLS contexts for tenants and for the kubelet, built from the configured files."""

import ssl
from collections.abc import Callable
from pathlib import Path

from daemonkit.admission import client_hello
from daemonkit.tls.contexts import (
    TlsError,
    check_authorities,
    check_certificate,
    client_context,
    pem_certificates,
    server_context,
)
from daemonkit.tls.openssl import Message, inspect
from tenancy import x509
from tenancy.registry import SpiffeTrust
from vnagent.config import VnAgentConfiguration
from vnagent.core import client_chain
from vnagent.saved_state import TENANTS_FILE

_INSPECTED = {Message.CLIENT_HELLO: client_hello.may_read, Message.CERTIFICATE: client_chain.accept}


def kubelet_context(config: VnAgentConfiguration) -> ssl.SSLContext:
    """The client side towards the kubelet. Raises TlsError."""
    kubelet = config.kubelet
    return client_context(kubelet.ca_file, kubelet.client_certificate_file, kubelet.client_key_file)


def tenants_context(config: VnAgentConfiguration, authorities: tuple[bytes, ...]) -> ssl.SSLContext | None:
    """The server side towards tenants. It trusts all their authorities; the identity of a client is
    decided later. None without an authority, as no tenant could be served. Raises TlsError."""
    if not authorities:
        return None
    serving = config.serving
    context = server_context(serving.certificate_file, serving.key_file, authorities)
    inspect(context, _INSPECTED)
    return context


def spiffe_trust(config: VnAgentConfiguration) -> SpiffeTrust | None:
    """The super cluster's own authority, if it is configured. Raises TlsError."""
    spiffe = config.spiffe
    if spiffe is None:
        return None
    try:
        authorities = pem_certificates(spiffe.ca_file.read_bytes())
        check_authorities(authorities)
        for der in authorities:
            x509.canonical_subject(der)
            x509.subject_key_identifier(der)
    except OSError as error:
        raise TlsError(f"{spiffe.ca_file}: {error.strerror}") from None
    except (TlsError, x509.CertificateError) as error:
        raise TlsError(f"{spiffe.ca_file}: {error}") from None
    return SpiffeTrust(authorities, spiffe.trust_domain)


def problems(config: VnAgentConfiguration) -> list[str]:
    """The problems of the configured files that keep the daemon from starting."""
    kubelet, serving = config.kubelet, config.serving
    ours = {"serving.certificateFile": serving.certificate_file, "serving.keyFile": serving.key_file}
    theirs = {
        "kubelet.caFile": kubelet.ca_file,
        "kubelet.clientCertificateFile": kubelet.client_certificate_file,
        "kubelet.clientKeyFile": kubelet.client_key_file,
    }
    found = _unusable("serving", ours, lambda: check_certificate(serving.certificate_file, serving.key_file))
    found += _unusable("kubelet", theirs, lambda: kubelet_context(config))
    if config.spiffe is not None:
        found += _unusable("spiffe", {"spiffe.caFile": config.spiffe.ca_file}, lambda: spiffe_trust(config))
    found += _kubeconfig_problems(config)
    directory = config.tenants.directory
    # A lost directory must not remove saved tenants: they are served, and /readyz has the cause.
    if directory is not None and not directory.is_dir() and not _has_saved_tenants(config):
        found.append(f"tenants.directory: {directory} is not a directory")
    if config.pods.file is not None and not config.pods.file.is_file():
        found.append(f"pods.file: {config.pods.file} is not a file")
    return found + _unwritable(config)


def _has_saved_tenants(config: VnAgentConfiguration) -> bool:
    state = config.state_directory
    return state is not None and (state / TENANTS_FILE).is_file()


def _unwritable(config: VnAgentConfiguration) -> list[str]:
    """The paths that the daemon cannot write to."""
    found = []
    audit, state, status = config.audit.path, config.state_directory, config.status.socket
    for key, path in (("audit.file", audit), ("status.socket", status)):
        if path is None:
            continue
        if not path.parent.is_dir() or path.is_dir():
            found.append(f"{key}: {path} is a directory, or in none")
    if state is not None and state.exists() and not state.is_dir():
        found.append(f"stateDirectory: {state} is not a directory")
    return found


def _unusable(what: str, files: dict[str, Path], use: Callable[[], object]) -> list[str]:
    """The unreadable files, each by its key; if there are none, the problem of using them together."""
    found = []
    for key, path in files.items():
        try:
            path.open("rb").close()
        except OSError as error:
            found.append(f"{key}: {path}: {error.strerror}")
    if not found:
        try:
            use()
        except TlsError as error:
            found.append(f"{what}: {error}")
    return found


def _kubeconfig_problems(config: VnAgentConfiguration) -> list[str]:
    paths = {config.tenants.kubeconfig_file, config.pods_kubeconfig_file} - {None}
    if not paths:
        return []
    # A large import, for nodes that watch the super cluster alone.
    from daemonkit.kube import kubeconfig

    found = []
    for path in filter(None, paths):
        try:
            kubeconfig.load(path)
        except (kubeconfig.KubeconfigError, OSError) as error:
            found.append(f"{path}: {error}")
    return found
