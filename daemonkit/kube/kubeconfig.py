# SPDX-License-Identifier: Apache-2.0
"""The address of an API server and our credentials for it, from a kubeconfig or a pod's service account.

A daemon is not kubectl: credentials that need a program, a browser or a person (exec plugins, auth providers,
passwords) are refused with the reason. So are settings that make the connection less safe (no verification,
plain HTTP to another machine). Unknown fields are ignored, as kubectl does.
"""

import base64
import binascii
import contextlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from daemonkit.config import yaml_values
from daemonkit.config.yaml_values import YamlError

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# As of a request's target and its Host field.
_PRINTABLE = re.compile(r"[!-~]++")
# A kubeconfig with embedded certificates is about 6 KB; one with hundreds of contexts still fits.
MAX_BYTES = 4 * 1024 * 1024
# Of one that another author wrote into an object: one cluster, with chains of certificates.
MAX_FOREIGN_BYTES = 64 << 10
# As DNS and TLS take names; with underscores, which resolvers take.
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\.?\Z){_LABEL}(?:\.{_LABEL})*\.?")
# What resolvers of C take for an address, whatever stands before it: 127.1, 0x7f.1, 2130706433.
_LAST_IS_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?")


class KubeconfigError(ValueError):
    """The kubeconfig cannot be used; the text has the reason and the place, and no secret."""


@dataclass(frozen=True, slots=True)
class Access:
    """One way into one API server.

    Of each pair of a value and a file at most one is set; files are read again when they change.
    `server` has no trailing slash. `server_name` is what the certificate must be for, if not the
    host of `server`. `is_foreign`: who says where it leads may reach less than the process that dials.
    """

    server: str
    ca_pem: bytes | None = None
    ca_file: Path | None = None
    certificate_pem: bytes | None = None
    certificate_file: Path | None = None
    key_pem: bytes | None = None
    key_file: Path | None = None
    token: str | None = None
    token_file: Path | None = None
    server_name: str | None = None
    namespace: str = "default"
    is_foreign: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that this access depends on."""
        every = (self.ca_file, self.certificate_file, self.key_file, self.token_file)
        return tuple(path for path in every if path is not None)

    def __repr__(self) -> str:
        # Never the default: it would print keys and tokens.
        return f"Access(server={self.server!r})"


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _User(msgspec.Struct, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    as_: str = msgspec.field(name="as", default="")
    exec_: Any = msgspec.field(name="exec", default=None)
    auth_provider: Any = None


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


def load(path: Path | str) -> Access:
    """Read a kubeconfig file. Raises KubeconfigError, also when the file cannot be read."""
    file = Path(path)
    try:
        text = file.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{file}: {error.strerror}") from None
    return parse(text, file.parent)


def parse(text: bytes | str, directory: Path) -> Access:
    """Read a kubeconfig; relative paths in it are relative to `directory`, as kubectl has it.

    Raises KubeconfigError.
    """
    if len(text) > MAX_BYTES:
        raise KubeconfigError(f"more than {MAX_BYTES} bytes")
    try:
        whole = _decoded(text.encode() if isinstance(text, str) else text)
    except yaml.YAMLError as error:
        # Only the place: the text of the error quotes the file.
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark is not None else ""
        raise KubeconfigError(f"not YAML{place}") from None
    except (msgspec.ValidationError, RecursionError, ValueError) as error:
        raise KubeconfigError(f"not a kubeconfig: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError):
        # PyYAML's constructors raise them for a tag that its value does not fit, such as `!!bool x`.
        raise KubeconfigError("not a kubeconfig: a tag that its value does not fit") from None
    return _access_of(whole, directory)


def _access_of(whole: _Kubeconfig, directory: Path) -> Access:
    name = whole.current_context
    context = next((c.context for c in whole.contexts or () if c.name == name), None)
    if not name or context is None:
        raise KubeconfigError(f"current-context {name!r} is not among contexts")
    cluster = next((c.cluster for c in whole.clusters or () if c.name == context.cluster), None)
    if cluster is None:
        raise KubeconfigError(f"context {name!r}: cluster {context.cluster!r} is not there")
    user = next((u.user for u in whole.users or () if u.name == context.user), None)
    if user is None and context.user:
        raise KubeconfigError(f"context {name!r}: user {context.user!r} is not there")
    return _access(cluster, user or _User(), context.namespace or "default", directory)


def parse_foreign(text: bytes) -> Access:
    """Read a kubeconfig that another author wrote into an object. Raises KubeconfigError.

    It may have MAX_FOREIGN_BYTES, and of YAML what `yaml_values` reads: PyYAML's own loader takes minutes for
    aliases and merged keys of some KB, and nothing interrupts it. What `parse` reads of it is the same.
    """
    remedy = "write it with `kubectl config view --raw --flatten --minify`"
    if len(text) > MAX_FOREIGN_BYTES:
        raise KubeconfigError(f"more than {MAX_FOREIGN_BYTES} bytes; {remedy}")
    if b"<<" in text:
        raise KubeconfigError(f"merged keys are not read; {remedy}")
    try:
        whole = msgspec.convert(yaml_values.decode(text), _Kubeconfig)
    except YamlError as error:
        raise KubeconfigError(f"{error}; {remedy}") from None
    except (msgspec.ValidationError, ValueError) as error:
        raise KubeconfigError(f"not a kubeconfig: {error}; {remedy}") from None
    return _access_of(whole, Path("/"))


def _decoded(text: bytes) -> _Kubeconfig:
    """The values of the text, which may have all of YAML 1.1 and most often has only the core schema.

    PyYAML's own loader is thirty times as slow as libyaml, and a start of vc-syncer reads a kubeconfig for
    each tenant. It reads what `yaml_values` refuses or reads otherwise: aliases, tags, merged keys, `yes` as
    true.
    """
    if b"<<" not in text:
        with contextlib.suppress(YamlError, msgspec.ValidationError, ValueError):
            return msgspec.convert(yaml_values.decode(text), _Kubeconfig)
    return msgspec.convert(yaml.safe_load(text), _Kubeconfig)


def in_cluster(environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT_DIRECTORY) -> Access:
    """The access that a pod has by its service account. Raises KubeconfigError outside of a pod."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise KubeconfigError("not in a cluster: KUBERNETES_SERVICE_HOST and _PORT are not set")
    return Access(
        server=server_url(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"),
        ca_file=directory / "ca.crt",
        token_file=directory / "token",
    )


def server_url(url: str) -> str:
    """Check and normalise the URL of an API server. Raises KubeconfigError.

    VirtualCluster writes a DNS name within brackets, as if it were an IPv6 address
    (pkg/controller/kubeconfig/kubeconfig.go): they are taken off.
    """
    url = url.strip()
    if not _PRINTABLE.fullmatch(url):
        raise KubeconfigError("server is not a URL: it has a character other than printable ASCII")
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "https", scheme
    authority, slash, path = rest.partition("/")
    if authority.startswith("["):
        inner, bracket, port = authority[1:].partition("]")
        if bracket and not _is_ipv6(inner):
            authority = inner + port
    try:
        parts = urlsplit(f"{scheme}://{authority}{slash}{path}")
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise KubeconfigError(f"server is not a URL: {error}") from None
    if not host or parts.query or parts.fragment or parts.username is not None:
        raise KubeconfigError("server is not the URL of an API server")
    if not _is_host(host):
        raise KubeconfigError("the server's host is no DNS name and no IP address in its usual form")
    if parts.scheme not in ("https", "http"):
        raise KubeconfigError(f"server has the scheme {parts.scheme!r}, not https")
    if parts.scheme == "http" and not _is_loopback(host):
        raise KubeconfigError("plain http is for loopback only: credentials would travel openly")
    return parts.geturl().rstrip("/")


def _access(cluster: _Cluster, user: _User, namespace: str, directory: Path) -> Access:
    refusals = {
        "insecure-skip-tls-verify: the server has to be verified": (cluster.insecure_skip_tls_verify),
        "proxy-url: proxies are not supported": bool(cluster.proxy_url),
        "exec: credential plugins are not run by a daemon; use a certificate or a token file": (
            user.exec_ is not None
        ),
        "auth-provider: not supported; use a certificate or a token file": (user.auth_provider is not None),
        "username and password: not supported": bool(user.username or user.password),
        "as: impersonation is not supported": bool(user.as_),
    }
    reasons = [reason for reason, applies in refusals.items() if applies]
    if reasons:
        raise KubeconfigError("; ".join(reasons))
    if not cluster.server:
        raise KubeconfigError("cluster has no server")
    # Data wins over the file, and tokenFile over token, as in client-go (tools/clientcmd).
    ca_pem = _data("certificate-authority-data", cluster.certificate_authority_data)
    certificate_pem = _data("client-certificate-data", user.client_certificate_data)
    key_pem = _data("client-key-data", user.client_key_data)
    has_certificate = bool(certificate_pem or user.client_certificate)
    if has_certificate != bool(key_pem or user.client_key):
        raise KubeconfigError("a client certificate needs its key, and a key its certificate")
    if cluster.tls_server_name and not _is_host(cluster.tls_server_name):
        raise KubeconfigError("tls-server-name is no DNS name and no IP address")
    token_file = _file(user.token_file, directory)
    return Access(
        server=server_url(cluster.server),
        ca_pem=ca_pem,
        ca_file=None if ca_pem else _file(cluster.certificate_authority, directory),
        certificate_pem=certificate_pem,
        certificate_file=None if certificate_pem else _file(user.client_certificate, directory),
        key_pem=key_pem,
        key_file=None if key_pem else _file(user.client_key, directory),
        token=None if token_file else user.token or None,
        token_file=token_file,
        server_name=cluster.tls_server_name or None,
        namespace=namespace,
    )


def _data(field: str, text: str) -> bytes | None:
    if not text:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise KubeconfigError(f"{field} is not base64") from None


def _file(path: str, directory: Path) -> Path | None:
    return directory / path if path else None


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.partition("%")[0]).version == 6
    except ValueError:
        return False


def _is_host(text: str) -> bool:
    """Whether resolvers and TLS take it, and it cannot be an address that is written in another way."""
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return bool(_HOST_NAME.fullmatch(text)) and not _LAST_IS_NUMBER.fullmatch(text)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
