# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs of tenants: an exec plugin asks for a credential of 24 hours, so that no file has a key."""

import base64
import binascii
import datetime as dt
import json
from typing import NamedTuple

from kubectl_vc.core.command import CREDENTIAL, Scope
from kubectl_vc.core.view import Object, TenantView, objects, printed_time, text
from tenancy import x509

_EXEC_VERSION = "client.authentication.k8s.io/v1"
# The plugin may ask for the person's own credential of the super cluster, which may ask for a password.
_INTERACTIVE = "IfAvailable"
_INSTALL_HINT = "kubectl-vc is not in PATH. Install it: kubectl krew install vc, or the package vcnode-tools."
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class TenantAccess(NamedTuple):
    """What the operator's Secret has: the address, and base64 of PEM."""

    server: str
    authorities: str
    certificate: str
    key: str


class AccessError(ValueError):
    """The Secret has no kubeconfig that can be used; the text says what is wrong."""


class PluginCall(NamedTuple):
    """How kubeconfigs start the plugin, so that it asks the same super cluster again: never by the current
    context, which may lead to the tenant itself. `config_files` is a value of KUBECONFIG."""

    program: str
    scope: Scope
    config_files: str


def access_of(config: Object) -> TenantAccess:
    """Of a kubeconfig, as JSON has it. Raises AccessError."""
    context = _named(config, "contexts", "context", text(config, "current-context"))
    cluster = _named(config, "clusters", "cluster", text(context, "cluster"))
    user = _named(config, "users", "user", text(context, "user"))
    found = TenantAccess(
        text(cluster, "server"),
        text(cluster, "certificate-authority-data"),
        text(user, "client-certificate-data"),
        text(user, "client-key-data"),
    )
    if not found.server.startswith("https://"):
        raise AccessError("its server is no https:// address")
    if missing := [name for name, value in zip(found._fields, found, strict=True) if not value]:
        raise AccessError(f"it has no {missing[0]}")
    return found


def exec_credential(access: TenantAccess) -> str:
    """What kubectl reads from the plugin: an ExecCredential. Raises AccessError."""
    certificate = _decoded(access.certificate)
    status = {
        "clientCertificateData": certificate,
        "clientKeyData": _decoded(access.key),
        "expirationTimestamp": printed_time(not_after(certificate)),
    }
    return f"{json.dumps({'apiVersion': _EXEC_VERSION, 'kind': 'ExecCredential', 'status': status})}\n"


def not_after(pem: str) -> dt.datetime:
    """The end of the first certificate. Raises AccessError."""
    body = pem.partition(_BEGIN)[2].partition(_END)[0]
    try:
        seconds = x509.validity(base64.b64decode("".join(body.split()), validate=True))[1]
    except (binascii.Error, x509.CertificateError) as error:
        raise AccessError(f"its client certificate cannot be read: {error}") from None
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def context_name(view: TenantView, super_context: str) -> str:
    """`NAMESPACE/NAME@SUPER`: no two tenants of one person have the same."""
    return f"{view.path}@{super_context}" if super_context else view.path


def kubeconfig(access: TenantAccess, view: TenantView, call: PluginCall) -> str:
    """A whole file. JSON is YAML, and needs no library."""
    name = context_name(view, call.scope.context)
    cluster = {"server": access.server, "certificate-authority-data": access.authorities}
    plugin = {
        "apiVersion": _EXEC_VERSION,
        "command": call.program,
        "args": _arguments(view, call.scope),
        "env": [{"name": "KUBECONFIG", "value": call.config_files}],
        "installHint": _INSTALL_HINT,
        "interactiveMode": _INTERACTIVE,
        "provideClusterInfo": False,
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"exec": plugin}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    return f"{json.dumps(config, indent=2)}\n"


def merge_commands(
    access: TenantAccess, view: TenantView, call: PluginCall, authorities_file: str
) -> list[list[str]]:
    """Words of `kubectl config` that put the same into the person's own kubeconfig.

    They leave its current context as it is.
    """
    name = context_name(view, call.scope.context)
    cluster = [
        f"--server={access.server}",
        f"--certificate-authority={authorities_file}",
        "--embed-certs=true",
    ]
    user = [
        f"--exec-api-version={_EXEC_VERSION}",
        f"--exec-command={call.program}",
        f"--exec-interactive-mode={_INTERACTIVE}",
        *(f"--exec-arg={_quoted(word)}" for word in _arguments(view, call.scope)),
        f"--exec-env=KUBECONFIG={call.config_files}",
    ]
    context = [f"--cluster={name}", f"--user={name}", "--namespace=default"]
    return [
        ["set-cluster", name, *cluster],
        ["set-credentials", name, *user],
        ["set-context", name, *context],
    ]


def _arguments(view: TenantView, scope: Scope) -> list[str]:
    # The file is in KUBECONFIG of the plugin.
    flags = scope._replace(kubeconfig="").flags()
    return [CREDENTIAL, *flags, f"--namespace={view.namespace}", view.name]


def _quoted(word: str) -> str:
    """kubectl reads these flags as lines of CSV (pflag, StringSlice)."""
    if not any(char in word for char in ',"\n'):
        return word
    inner = word.replace('"', '""')
    return f'"{inner}"'


def _named(config: Object, list_name: str, kind: str, name: str) -> Object:
    found = next((each for each in objects(config, list_name) if text(each, "name") == name), {})
    value = found.get(kind)
    if not isinstance(value, dict):
        raise AccessError(f"it has no {kind} {name!r}")
    return value


def _decoded(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode("ascii")
    except ValueError:
        raise AccessError("its client certificate or key is no base64") from None
