# SPDX-License-Identifier: Apache-2.0
"""The super API server as the server upstream: its address and vn-agent's credential, from a kubeconfig.

This module loads the parser of kubeconfigs: import it only where `superApiserver` is configured.
"""

import asyncio
import ipaddress
import re
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from daemonkit.config.ip_addresses import is_address
from daemonkit.kube import kubeconfig
from daemonkit.kube.credentials import token_of
from daemonkit.kube.kubeconfig import Access
from daemonkit.tls.contexts import TlsError, client_context
from tenancy.names import is_pod_name

# Of a server's URL without one (RFC 9110, 4.2.2).
DEFAULT_PORT = 443
# Both stand in each request as they are.
_AUTHORITY = re.compile(r"[A-Za-z0-9._:\[\]-]{1,300}")
_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]++)*+")


@dataclass(frozen=True, slots=True)
class ApiserverAccess:
    """One way into the API server. `host` is an IP address or a DNS name, and `path` is before each path.

    `files` are what a new reading depends on, the kubeconfig among them.
    """

    host: str
    port: int
    path: str
    server_name: str
    authority: str
    context: ssl.SSLContext = field(repr=False)
    token: str | None = field(repr=False)
    files: tuple[Path, ...]

    @property
    def is_name(self) -> bool:
        """Whether `host` has to be resolved."""
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return True
        return False


def load_access(path: Path) -> ApiserverAccess:
    """Read the kubeconfig and the files that it names. Raises TlsError; the text has no secret."""
    try:
        access = kubeconfig.load(path)
        token = token_of(access)
    except OSError as error:
        raise TlsError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        text = str(error)
        raise TlsError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    server = urlsplit(access.server)
    host = server.hostname
    if server.scheme != "https" or host is None:
        raise TlsError(f"{path}: the server is not https: requests would show the credential")
    if not _AUTHORITY.fullmatch(server.netloc) or not _PATH.fullmatch(server.path):
        raise TlsError(f"{path}: the server's URL has characters that requests cannot have")
    name = access.server_name or host
    for each in (host, name):
        if not is_address(each) and not is_pod_name(each.lower()):
            raise TlsError(f"{path}: {each!r} is no DNS name or IP address")
    return ApiserverAccess(
        host,
        server.port or DEFAULT_PORT,
        server.path,
        name,
        server.netloc,
        _context(path, access, token),
        token,
        (path, *access.files),
    )


def _context(path: Path, access: Access, token: str | None) -> ssl.SSLContext:
    """TLS that verifies the server by the kubeconfig's authority alone."""
    authority = access.ca_pem or access.ca_file
    if authority is None:
        raise TlsError(f"{path}: no certificate-authority: the API server has to be verified")
    certificate = access.certificate_pem or access.certificate_file
    if certificate is None and token is None:
        raise TlsError(f"{path}: neither a client certificate nor a token")
    return client_context(authority, certificate, access.key_pem or access.key_file)


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """The IP addresses of a DNS name, in the order of the resolver (RFC 6724). Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(each[4][0]) for each in found))
