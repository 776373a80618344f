# SPDX-License-Identifier: Apache-2.0
"""The TLS contexts for tenants and for the kubelet, built from the configured files."""

import ssl

from daemonkit.admission import client_hello
from daemonkit.tls.contexts import (
    TlsError,
    anonymous_server_context,
    check_authorities,
    client_context,
    pem_certificates,
    server_context,
)
from daemonkit.tls.openssl import Message, inspect
from tenancy import x509
from tenancy.registry import SpiffeTrust
from vnagent.config import Kubelet, VnAgentConfiguration
from vnagent.core import client_chain

_HELLOS = {Message.CLIENT_HELLO: client_hello.may_read}
_INSPECTED = {**_HELLOS, Message.CERTIFICATE: client_chain.accept}


def kubelet_context(kubelet: Kubelet) -> ssl.SSLContext:
    """The client side towards the kubelet. Raises TlsError."""
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


def tokens_context(config: VnAgentConfiguration) -> ssl.SSLContext | None:
    """The server side towards clients with bearer tokens: the same certificate, and none of the client's.
    None if no port for tokens is configured. Raises TlsError."""
    if not config.token_listeners:
        return None
    serving = config.serving
    context = anonymous_server_context(serving.certificate_file, serving.key_file)
    inspect(context, _HELLOS)
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
