# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs and credentials, whole."""

import json

import pytest

from kubectl_vc.core.command import Scope
from kubectl_vc.core.kubeconfig import (
    AccessError,
    PluginCall,
    access_of,
    context_name,
    exec_credential,
    kubeconfig,
    merge_commands,
)
from kubectl_vc.core.view import Object, TenantView
from tests.unit.kubectl_vc.invocations import CERTIFICATE, encoded, virtual_cluster
from tests.unit.kubectl_vc.invocations import kubeconfig as operators

CALL = PluginCall(
    "kubectl-vc",
    Scope(kubeconfig="/k", context="super,1", as_user="ada", as_groups=("x", "y")),
    "/home/ada/a:/home/ada/b",
)
VIEW = TenantView(virtual_cluster())
ARGUMENTS = [
    "credential",
    "--context=super,1",
    "--as=ada",
    "--as-group=x",
    "--as-group=y",
    "--namespace=tenants",
    "acme",
]


def test_the_kubeconfig_has_an_exec_plugin_and_no_key() -> None:
    name = "tenants/acme@super,1"
    assert json.loads(kubeconfig(access_of(operators()), VIEW, CALL)) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": "https://10.0.0.9:6443",
                    "certificate-authority-data": encoded("authorities"),
                },
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "exec": {
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "command": "kubectl-vc",
                        "args": ARGUMENTS,
                        "env": [{"name": "KUBECONFIG", "value": "/home/ada/a:/home/ada/b"}],
                        "installHint": "kubectl-vc is not in PATH. Install it: kubectl krew install vc, or"
                        " the"
                        " package vcnode-tools.",
                        "interactiveMode": "IfAvailable",
                        "provideClusterInfo": False,
                    }
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }


def test_merging_quotes_arguments_for_kubectl() -> None:
    name = "tenants/acme@super,1"
    assert merge_commands(access_of(operators()), VIEW, CALL, "/tmp/ca.crt") == [  # noqa: S108 - a name
        [
            "set-cluster",
            name,
            "--server=https://10.0.0.9:6443",
            "--certificate-authority=/tmp/ca.crt",
            "--embed-certs=true",
        ],
        [
            "set-credentials",
            name,
            "--exec-api-version=client.authentication.k8s.io/v1",
            "--exec-command=kubectl-vc",
            "--exec-interactive-mode=IfAvailable",
            "--exec-arg=credential",
            '--exec-arg="--context=super,1"',
            "--exec-arg=--as=ada",
            "--exec-arg=--as-group=x",
            "--exec-arg=--as-group=y",
            "--exec-arg=--namespace=tenants",
            "--exec-arg=acme",
            "--exec-env=KUBECONFIG=/home/ada/a:/home/ada/b",
        ],
        ["set-context", name, f"--cluster={name}", f"--user={name}", "--namespace=default"],
    ]


def test_contexts_of_two_tenants_differ() -> None:
    others = [("b", "a"), ("a", "b"), ("a", "a")]
    views = [TenantView(virtual_cluster(name, namespace)) for namespace, name in others]
    assert [context_name(each, "s") for each in views] == ["b/a@s", "a/b@s", "a/a@s"]
    assert context_name(views[0], "") == "b/a"


def test_a_credential_ends_with_its_certificate() -> None:
    assert json.loads(exec_credential(access_of(operators()))) == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {
            "clientCertificateData": CERTIFICATE,
            "clientKeyData": "the key",
            "expirationTimestamp": "2026-12-01T08:31:20Z",
        },
    }


def with_user(**user: str) -> Object:
    config = operators()
    config["users"][0]["user"] |= user
    return config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "it has no context ''"),
        ({**operators(), "clusters": []}, "it has no cluster 'c'"),
        ({**operators(), "users": 7}, "it has no user 'u'"),
        (operators("http://10.0.0.9"), "its server is no https:// address"),
        (with_user(**{"client-key-data": ""}), "it has no key"),
        (with_user(**{"client-key-data": "??"}), "its client certificate or key is no base64"),
        (
            with_user(**{"client-certificate-data": encoded("none")}),
            "its client certificate cannot be read: expected exactly one element of type 0x30",
        ),
    ],
)
def test_unusable_kubeconfigs(config: Object, message: str) -> None:
    with pytest.raises(AccessError) as raised:
        exec_credential(access_of(config))
    assert str(raised.value) == message
