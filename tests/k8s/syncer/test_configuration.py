# SPDX-License-Identifier: Apache-2.0
"""ConfigMaps, Secrets and what the downward API shows: the tenant's own values, also when they change."""

from __future__ import annotations

import base64
from functools import partial

import pytest

from tests.k8s.syncer.shops import Shop, object_of, pod, pod_spec, service

pytestmark = pytest.mark.timeout(300)


_OF_API = "KUBERNETES_PORT_443_TCP_PROTO"


def _settings(word: str) -> tuple[dict[str, object], dict[str, object]]:
    secret = {"word": base64.b64encode(word.encode()).decode()}
    return (
        object_of("v1", "ConfigMap", "settings", data={"word": word}),
        object_of("v1", "Secret", "settings", data=secret),
    )


def test_changes_reach_a_running_pod(shops: tuple[Shop, Shop]) -> None:
    spec = pod_spec(
        volumes=[
            {"name": "plain", "configMap": {"name": "settings"}},
            {"name": "hidden", "secret": {"secretName": "settings"}},
            {
                "name": "both",
                "projected": {
                    "sources": [
                        {"configMap": {"name": "settings", "items": [{"key": "word", "path": "plain"}]}},
                        {"secret": {"name": "settings", "items": [{"key": "word", "path": "hidden"}]}},
                    ]
                },
            },
        ]
    )
    main = spec["containers"][0]
    main["volumeMounts"] = [{"name": name, "mountPath": f"/{name}"} for name in ("plain", "hidden", "both")]
    main["env"] = [{"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "word"}}}]
    script = "cat /plain/word; echo; cat /hidden/word; echo; cat /both/plain; echo; cat /both/hidden"
    for shop in shops:
        shop.apply(*_settings(f"first of {shop.tenant.key}"), pod("web", spec, labels={"app": "web"}))
    for shop in shops:
        shop.wait_running("app=web")
        expected = "\n".join([f"first of {shop.tenant.key}"] * 4)
        assert shop.sh("web", script).check().text == expected
        assert shop.sh("web", "echo $WORD").check().text == f"first of {shop.tenant.key}\n"
    one, other = shops
    one.apply(*_settings("second"))
    one.wait_output("web", script, "\n".join(["second"] * 4))
    assert other.sh("web", script).check().text == "\n".join([f"first of {other.tenant.key}"] * 4)


def test_deleted_and_created_again(shop: Shop) -> None:
    shop.apply(*_settings("first"))
    shop.wait("it is below", lambda: shop.in_super("configmaps", "settings") is not None)
    shop.kubectl("delete", "configmap/settings", "secret/settings").check()
    shop.wait_gone("configmaps", "settings")
    shop.wait_gone("secrets", "settings")
    shop.apply(*_settings("second"))

    def is_below() -> bool:
        found = shop.in_super("configmaps", "settings")
        return found is not None and found["data"] == {"word": "second"}

    shop.wait("the new one is below", is_below)


def test_binary_and_immutable_content(shop: Shop) -> None:
    blob = base64.b64encode(bytes(range(256)) * 100).decode()
    shop.apply(
        object_of("v1", "ConfigMap", "blob", binaryData={"blob": blob}, data={"a": "ä — 漢"}, immutable=True)
    )
    shop.wait("it is below", lambda: shop.in_super("configmaps", "blob") is not None)
    made = shop.in_super("configmaps", "blob")
    assert made is not None
    assert (made["binaryData"], made["data"], made["immutable"]) == ({"blob": blob}, {"a": "ä — 漢"}, True)


def test_downward_api_shows_the_tenants_names(shops: tuple[Shop, Shop]) -> None:
    fields = {
        "NAME": "metadata.name",
        "NAMESPACE": "metadata.namespace",
        "UID": "metadata.uid",
        "LABEL": "metadata.labels['app']",
        "ACCOUNT": "spec.serviceAccountName",
        "NODE": "spec.nodeName",
        "IP": "status.podIP",
    }
    in_files = ("metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels")
    spec = pod_spec(
        volumes=[
            {
                "name": "info",
                "downwardAPI": {
                    "items": [
                        {"path": path.rpartition(".")[2], "fieldRef": {"fieldPath": path}}
                        for path in in_files
                    ]
                },
            }
        ]
    )
    main = spec["containers"][0]
    main["env"] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
    ]
    main["volumeMounts"] = [{"name": "info", "mountPath": "/info"}]
    for shop in shops:
        shop.apply(pod("web", spec, labels={"app": "web"}))
    for shop in shops:
        (web,) = shop.wait_running("app=web")
        shown = shop.sh("web", "env").check().text.splitlines()
        expected = {
            "NAME": "web",
            "NAMESPACE": shop.namespace,
            "UID": web["metadata"]["uid"],
            "LABEL": "web",
            "ACCOUNT": "default",
            "NODE": web["spec"]["nodeName"],
            "IP": web["status"]["podIP"],
        }
        assert {line for line in shown if line.partition("=")[0] in fields} == {
            f"{name}={value}" for name, value in expected.items()
        }
        files = shop.sh("web", "cd /info; for f in name namespace uid labels; do cat $f; echo; done")
        lines = files.check().text.splitlines()
        assert lines[:3] == ["web", shop.namespace, web["metadata"]["uid"]]
        assert 'app="web"' in lines[3:]


def test_a_label_of_a_running_pod_reaches_its_file(shop: Shop) -> None:
    item = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    spec = pod_spec(volumes=[{"name": "info", "downwardAPI": {"items": [item]}}])
    spec["containers"][0]["volumeMounts"] = [{"name": "info", "mountPath": "/info"}]
    shop.apply(pod("web", spec, labels={"app": "web"}))
    shop.wait_running("app=web")
    shop.kubectl("label", "pod", "web", "tier=front").check()
    shop.wait_output("web", "cat /info/labels", 'tier="front"')
    shop.kubectl("label", "pod", "web", "tier-").check()
    shop.wait("the label is gone", lambda: "tier" not in shop.sh("web", "cat /info/labels").check().text)


def test_env_from_comes_before_service_variables(shop: Shop) -> None:
    """As the kubelet has it: `env` before `envFrom` before what Services give."""
    # The syncer gives pods the API server's variables, and the kubelet those of other Services.
    data = {"REDIS_PORT": "by a ConfigMap", "HOST": "prefixed", _OF_API: "by a ConfigMap"}
    shop.apply(
        service("redis", "redis", 6379),
        object_of("v1", "ConfigMap", "settings", data=data),
        object_of("v1", "Secret", "settings", stringData={"REDIS_SERVICE_PORT": "by a Secret"}),
    )
    for resource, name in (("services", "redis"), ("configmaps", "settings"), ("secrets", "settings")):
        shop.wait(f"{name} is below", partial(shop.in_super, resource, name))
    spec = pod_spec()
    main = spec["containers"][0]
    main["envFrom"] = [
        {"configMapRef": {"name": "settings"}},
        {"prefix": "REDIS_SERVICE_", "configMapRef": {"name": "settings"}},
        {"secretRef": {"name": "settings"}},
    ]
    main["env"] = [{"name": "REDIS_PORT_6379_TCP_PROTO", "value": "by env"}]
    shop.apply(pod("web", spec, labels={"app": "web"}))
    shop.wait_running("app=web")
    shown = dict(line.split("=", 1) for line in shop.sh("web", "env").check().text.splitlines())
    below = shop.in_super("services", "redis")
    assert below is not None
    # The one that kube-proxy serves.
    address = below["spec"]["clusterIP"]
    assert shown[_OF_API] == "by a ConfigMap"
    assert {name: each for name, each in shown.items() if name.startswith("REDIS_")} == {
        "REDIS_PORT": "by a ConfigMap",
        "REDIS_SERVICE_PORT": "by a Secret",
        "REDIS_SERVICE_HOST": "prefixed",
        "REDIS_SERVICE_REDIS_PORT": "by a ConfigMap",
        f"REDIS_SERVICE_{_OF_API}": "by a ConfigMap",
        "REDIS_PORT_6379_TCP_PROTO": "by env",
        "REDIS_SERVICE_PORT_HTTP": "6379",
        "REDIS_PORT_6379_TCP": f"tcp://{address}:6379",
        "REDIS_PORT_6379_TCP_PORT": "6379",
        "REDIS_PORT_6379_TCP_ADDR": address,
    }


def test_unknown_fields_survive(shop: Shop) -> None:
    """Whatever the apiserver stored of a pod is in the super cluster too."""
    spec = pod_spec(
        hostname="inside",
        terminationGracePeriodSeconds=7,
        shareProcessNamespace=True,
        dnsPolicy="None",
        dnsConfig={"nameservers": ["192.0.2.1"], "searches": ["example.org"]},
        hostAliases=[{"ip": "192.0.2.7", "hostnames": ["seven.example.org"]}],
        topologySpreadConstraints=[
            {
                "maxSkew": 5,
                "minDomains": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
                "matchLabelKeys": ["pod-template-hash"],
            }
        ],
    )
    main = spec["containers"][0]
    main["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    main["startupProbe"] = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    shop.apply(pod("web", spec, labels={"app": "web", "pod-template-hash": "abc"}))
    shop.wait_running("app=web")
    made = shop.in_super("pods", "web")
    assert made is not None
    for field in ("hostname", "terminationGracePeriodSeconds", "shareProcessNamespace", "dnsConfig"):
        assert made["spec"][field] == spec[field], field
    spread = made["spec"]["topologySpreadConstraints"][0]
    assert (spread["maxSkew"], spread["minDomains"]) == (5, 1)
    below = made["spec"]["containers"][0]
    assert below["resizePolicy"] == main["resizePolicy"]
    assert below["startupProbe"]["exec"] == {"command": ["true"]}
    assert shop.sh("web", "hostname").check().text == "inside\n"
    assert "seven.example.org" in shop.sh("web", "cat /etc/hosts").check().text
