# SPDX-License-Identifier: Apache-2.0
"""Asks the servers that daemons ask, with the daemons' credentials: the kubelet, API servers; and vn-agent.

Only GET requests, each on a connection of its own; bodies are not read. Each probe takes `TIMEOUT_S` at most.
"""

import email.utils
import http.client
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509

from daemonkit.kube.credentials import Credentials, CredentialsError
from daemonkit.kube.kubeconfig import load
from daemonkit.os_errors import describe
from daemonkit.remedies import Cause
from daemonkit.tls.contexts import TlsError, client_context, pem_certificates, unverified_client_context
from vcnode.core.doctor_facts import PeerAnswer, ServedCertificate

TIMEOUT_S = 3.0


def ask(
    peer: PeerAnswer,
    address: tuple[str, int],
    context: ssl.SSLContext | None,
    paths: Iterable[str],
    *,
    server_name: str = "",
    headers: Mapping[str, str] | None = None,
) -> PeerAnswer:
    """`peer` with the status code of each path and its clock, or with the cause of a failure."""
    deadline = time.monotonic() + TIMEOUT_S
    codes: list[tuple[str, int]] = []
    skew_s: float | None = None
    try:
        for path in paths:
            with _connected(address, context, server_name or address[0], deadline) as connection:
                code, ahead_s = _get(connection, address, path, headers or {}, deadline)
            codes.append((path.partition("?")[0], code))
            skew_s = ahead_s if skew_s is None else skew_s
    except OSError as error:
        problem, cause = describe(error)
        return replace(peer, cause=cause, problem=problem, codes=tuple(codes), skew_s=skew_s)
    except http.client.HTTPException:
        problem = "the answer is not HTTP"
        return replace(peer, cause=Cause.MALFORMED, problem=problem, codes=tuple(codes), skew_s=skew_s)
    return replace(peer, codes=tuple(codes), skew_s=skew_s)


def handshake_problem(address: tuple[str, int]) -> str:
    """Why no TLS server answers there; empty if one does, with any certificate."""
    deadline = time.monotonic() + TIMEOUT_S
    try:
        with _connected(address, unverified_client_context(), address[0], deadline):
            return ""
    except OSError as error:
        return describe(error)[0]


def _connected(
    address: tuple[str, int], context: ssl.SSLContext | None, server_name: str, deadline: float
) -> socket.socket:
    connection = socket.create_connection(address, timeout=_left_s(deadline))
    try:
        connection.settimeout(_left_s(deadline))
        return connection if context is None else context.wrap_socket(connection, server_hostname=server_name)
    except BaseException:
        connection.close()
        raise


def _get(
    connection: socket.socket,
    address: tuple[str, int],
    path: str,
    headers: Mapping[str, str],
    deadline: float,
) -> tuple[int, float | None]:
    """The status code, and how much the server's clock is ahead of ours."""
    host = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    lines += (f"{name}: {value}" for name, value in headers.items())
    connection.settimeout(_left_s(deadline))
    connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
    response = http.client.HTTPResponse(connection, method="GET")
    try:
        response.begin()
        return response.status, _ahead_s(response.getheader("Date"))
    finally:
        response.close()


def _ahead_s(date: str | None) -> float | None:
    # RFC 9110, 6.6.1: whole seconds, so an equal clock seems up to a second behind.
    try:
        at = email.utils.parsedate_to_datetime(date or "")
        return at.timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return None


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def ask_api_server(daemon: str, key: str, kubeconfig: Path, paths: Iterable[str]) -> PeerAnswer | None:
    """The API server of a kubeconfig. None if the kubeconfig cannot be used: the check of files has that."""
    try:
        current = Credentials(lambda: load(kubeconfig)).current()
    except CredentialsError:
        return None
    parts = urlsplit(current.access.server)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    headers = {"Accept": "application/json"}
    if current.token is not None:
        headers["Authorization"] = f"Bearer {current.token}"
    return ask(
        PeerAnswer(daemon, f"{host}:{port}", key),
        (host, port),
        current.tls,
        [f"{parts.path}{path}" for path in paths],
        server_name=current.access.server_name or "",
        headers=headers,
    )


def served_certificate(address: tuple[str, int], file: Path, ca_file: Path | None) -> ServedCertificate:
    """What vn-agent shows at `address`, against its file, the address, and a CA that tenants trust."""
    where = "127.0.0.1" if address[0] in ("0.0.0.0", "::") else address[0]  # noqa: S104 - any address
    found = ServedCertificate(f"{where}:{address[1]}", str(file))
    deadline = time.monotonic() + TIMEOUT_S
    try:
        with _connected((where, address[1]), unverified_client_context(), where, deadline) as connection:
            assert isinstance(connection, ssl.SSLSocket)  # noqa: S101 - it has a context
            shown = connection.getpeercert(binary_form=True) or b""
    except OSError as error:
        return replace(found, problem=describe(error)[0])
    try:
        of_file = pem_certificates(file.read_bytes())[0]
    except (OSError, TlsError):
        of_file = shown  # the check of files has that
    missing = "" if where != address[0] or _has_address(shown, where) else where
    found = replace(found, is_current=shown == of_file, missing_name=missing)
    return found if ca_file is None else _verified_by(found, (where, address[1]), ca_file, deadline)


def _verified_by(
    found: ServedCertificate, address: tuple[str, int], ca_file: Path, deadline: float
) -> ServedCertificate:
    try:
        context = client_context(ca_file)
        context.check_hostname = False  # by which address tenants dial is `missing_name`'s part
        with _connected(address, context, address[0], deadline):
            return found
    except TlsError as error:
        return replace(found, untrusted=str(error))
    except OSError as error:
        return replace(found, untrusted=describe(error)[0])


def _has_address(der: bytes, address: str) -> bool:
    try:
        names = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (ValueError, x509.ExtensionNotFound):
        return False
    return address in map(str, names.value.get_values_for_type(x509.IPAddress))
