# SPDX-License-Identifier: Apache-2.0
"""One call of the plugin between a fake API server and a fake terminal, at fixed times."""

import base64
import datetime as dt
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from devkit.fake_kubectl import FakeKubectl
from kubectl_vc.arguments import parse
from kubectl_vc.core.faults import PluginError
from kubectl_vc.core.view import Object
from kubectl_vc.invocation import Invocation

NOW = dt.datetime(2026, 11, 30, 12, 0, 0, tzinfo=dt.UTC)
ENVIRONMENT = {"HOME": "/home/ada", "PATH": "/nowhere"}


class Ended(NamedTuple):
    """What one call printed and returned; `code` is None if it raised PluginError, whose text is `error`."""

    code: int | None
    out: str
    err: str
    error: str = ""


def call(
    verb: Callable[[Invocation], int],
    words: str,
    api: FakeKubectl,
    typed: str = "",
    environment: Mapping[str, str] = ENVIRONMENT,
) -> Ended:
    """Run the verb that `words` name."""
    out, err = io.StringIO(), io.StringIO()
    invocation = Invocation(
        parse(words.split()),
        api,
        lambda _flags, _more: api,
        out,
        err,
        io.StringIO(typed),
        environment,
        "/opt/bin/kubectl-vc",
        now=lambda: NOW,
        monotonic=lambda: 100.0,
    )
    try:
        code = verb(invocation)
    except PluginError as error:
        return Ended(None, out.getvalue(), err.getvalue(), str(error))
    return Ended(code, out.getvalue(), err.getvalue())


def virtual_cluster(name: str = "acme", namespace: str = "tenants", **fields: Any) -> Object:
    """A VirtualCluster; `fields` are merged into its `spec`, `status` and `metadata`."""
    made: Object = {
        "apiVersion": "tenancy.x-k8s.io/v1alpha1",
        "kind": "VirtualCluster",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-of-{name}",
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": "2026-11-30T09:30:00Z",
        },
        "spec": {"clusterVersionName": "v1.34"},
        "status": {},
    }
    for key, value in fields.items():
        made[key] |= value
    return made


def running(name: str = "acme", *conditions: Object, namespace: str = "tenants", **status: Any) -> Object:
    """One that serves, with further conditions and fields of its status."""
    whole = {
        "phase": "Running",
        "observedGeneration": 1,
        "clusterVersion": "v1.34",
        "clusterNamespace": f"{namespace}-{name}",
        "conditions": [condition("Ready"), condition("UpToDate"), *conditions],
        **status,
    }
    return virtual_cluster(name, namespace, status=whole)


def condition(type_: str, status: str = "True", reason: str = "", message: str = "") -> Object:
    """A condition as the operator writes it."""
    return {"type": type_, "status": status, "reason": reason, "message": message}


def secret(config: Object | None = None, name: str = "acme", namespace: str = "tenants") -> Object:
    """The Secret with the tenant's kubeconfig."""
    data = base64.b64encode(json.dumps(config or kubeconfig()).encode()).decode()
    return {"metadata": {"name": f"{name}-kubeconfig", "namespace": namespace}, "data": {"value": data}}


def kubeconfig(server: str = "https://10.0.0.9:6443") -> Object:
    """As the operator writes it."""
    return {
        "current-context": "acme",
        "contexts": [{"name": "acme", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": server, "certificate-authority-data": encoded("authorities")}}
        ],
        "users": [
            {
                "name": "u",
                "user": {
                    "client-certificate-data": encoded(CERTIFICATE),
                    "client-key-data": encoded("the key"),
                },
            }
        ],
    }


def encoded(text: str) -> str:
    """Base64."""
    return base64.b64encode(text.encode()).decode()


# Of CN=tenant, until 2026-12-01T08:31:20Z. Made by openssl; nobody has its key.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBdjCCAR2gAwIBAgIUeQKaU3eXNAjfhaHfRhESXSfPCsYwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGdGVuYW50MB4XDTI2MTEzMDA4MzEyMFoXDTI2MTIwMTA4MzEy
MFowETEPMA0GA1UEAwwGdGVuYW50MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
AixJIejmmaS7y3pawjpFVdbmDUvmd8sbvNEcNafKzaHwKy1BJYJsmr8SmrDs0UIb
RRcLGh4Pth3UmxD8387zlKNTMFEwHQYDVR0OBBYEFAKbhr98mDlFZMXPcCryqUi3
YkAvMB8GA1UdIwQYMBaAFAKbhr98mDlFZMXPcCryqUi3YkAvMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgBC/nl7m6oYx83XoDT05LJRmMjn9CHHtM
6AqAx51HgyQCIG/JmUmg3xu+w4NM4SZ1htssJ7dxf1CKqVlrGeamnQ2W
-----END CERTIFICATE-----
"""
