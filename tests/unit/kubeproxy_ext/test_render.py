# SPDX-License-Identifier: Apache-2.0
import io
import json
from typing import Any

import pytest

from kubeproxy_ext.render import main

GUEST = ["--node", "n1", "--tenant", "t1", "--pod-ip", "10.1.0.2", "--family", "ipv4", "--format", "iptables"]


def _service(name: str, namespace: str, ip: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {
            "clusterIP": ip,
            "clusterIPs": [ip],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        },
    }


def _slice(service: str, namespace: str, *endpoints: str) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service}-1",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [ip], "conditions": {"ready": True}} for ip in endpoints],
    }


def _namespace(name: str, tenant: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "annotations": {"tenancy.x-k8s.io/cluster": tenant}},
    }


def _list(*items: object) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


TWO_TENANTS = _list(
    _namespace("t1-shop", "t1"),
    _namespace("t2-shop", "t2"),
    _service("web", "t1-shop", "172.30.0.41", annotations={"tenancy.x-k8s.io/clusterIP": "10.96.0.9"}),
    _slice("web", "t1-shop", "10.1.0.4", "10.1.0.3"),
    _service("web", "t2-shop", "172.30.0.42", annotations={"tenancy.x-k8s.io/clusterIP": "10.96.0.9"}),
    _slice("web", "t2-shop", "10.2.0.3"),
    _service("blue", "t1-shop", "172.30.0.43", labels={"arktos.futurewei.com/network": "blue"}),
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "of no use"}, "spec": 7},
)


def _run(*arguments: str, objects: bytes = b"") -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = main(["--objects", "-", *arguments], io.BytesIO(objects), out, err)
    return code, out.getvalue(), err.getvalue()


def test_render_prints_the_ruleset_only() -> None:
    assert _run(*GUEST, "--service-cidr", "172.30.0.0/16", objects=TWO_TENANTS) == (
        0,
        """\
*filter
:VCN-SERVICES - [0:0]
-A OUTPUT -m conntrack --ctstate NEW -j VCN-SERVICES
-A VCN-SERVICES -m conntrack --ctstate DNAT -j RETURN
-A VCN-SERVICES -d 172.30.0.0/16 -j REJECT --reject-with icmp-port-unreachable
COMMIT
*nat
:VCN-SERVICES - [0:0]
:VCN-SVC-HHDFDQ4APVU6ZWQZ - [0:0]
-A OUTPUT -j VCN-SERVICES
-A VCN-SERVICES -d 172.30.0.41/32 -p tcp -m tcp --dport 80 -j VCN-SVC-HHDFDQ4APVU6ZWQZ
-A VCN-SERVICES -d 10.96.0.9/32 -p tcp -m tcp --dport 80 -j VCN-SVC-HHDFDQ4APVU6ZWQZ
-A VCN-SVC-HHDFDQ4APVU6ZWQZ -p tcp -m statistic --mode random --probability 0.5000000000 \
-j DNAT --to-destination 10.1.0.3:8080
-A VCN-SVC-HHDFDQ4APVU6ZWQZ -p tcp -j DNAT --to-destination 10.1.0.4:8080
COMMIT
""",
        "",
    )


def test_render_without_service_cidrs_has_no_catch_all() -> None:
    code, out, _ = _run(*GUEST, "--network", "blue", "--network", "green", objects=TWO_TENANTS)
    assert code == 0
    assert (
        out
        == """\
*filter
:VCN-SERVICES - [0:0]
-A OUTPUT -m conntrack --ctstate NEW -j VCN-SERVICES
-A VCN-SERVICES -m conntrack --ctstate DNAT -j RETURN
-A VCN-SERVICES -d 172.30.0.43/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
COMMIT
*nat
:VCN-SERVICES - [0:0]
-A OUTPUT -j VCN-SERVICES
COMMIT
"""
    )


def test_render_prints_nft() -> None:
    code, out, _ = _run(*GUEST[:-1], "nft", objects=TWO_TENANTS)
    assert code == 0
    assert out.startswith("add table ip vcnode\ndelete table ip vcnode\ntable ip vcnode {\n")
    assert "172.30.0.41 . tcp . 80 : goto VCN-SVC-HHDFDQ4APVU6ZWQZ," in out


def test_render_of_the_other_family_is_empty() -> None:
    code, out, _ = _run(*GUEST[:6], "--family", "ipv6", objects=TWO_TENANTS)
    assert code == 0
    assert "DNAT --to" not in out


def test_render_reports_problems_on_stderr() -> None:
    code, out, err = _run(*GUEST, objects=_list(_namespace("s", "t1"), _service("web", "s", "172.30.0.41.9")))
    assert code == 0
    assert out
    assert err.startswith("kubeproxy-ext render: left out of s/web: ")


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        (b"{", "the objects are not JSON: "),
        (b"", "the objects are not JSON: "),
        (b"[]", "the objects are not a v1 List "),
        (b'{"apiVersion": "v1", "kind": "ServiceList", "items": []}', "the objects are not a v1 List "),
        (b'{"apiVersion": "v1", "kind": "List"}', "items: expected an array of objects"),
        (_list("x"), "items[0]: expected an object"),
        (
            _list(_namespace("s", "t1"), {"apiVersion": "v1", "kind": "Service", "spec": {"ports": 7}}),
            "items[1]: Service ?: Expected `array | null`, got `int` - at `$.spec.ports`",
        ),
    ],
)
def test_render_refuses_unusable_objects(objects: bytes, expected: str) -> None:
    code, out, err = _run(*GUEST, objects=objects)
    assert (code, out) == (2, "")
    assert err.startswith(f"kubeproxy-ext render: {expected}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--pod-ip", "10.1.0"], "kubeproxy-ext render: not an IP address: '10.1.0'\n"),
        (
            ["--pod-ip", "10.1.0.2", "--service-cidr", "10.0.0.0/33"],
            "kubeproxy-ext render: not an address range: '10.0.0.0/33'\n",
        ),
    ],
)
def test_render_refuses_a_malformed_guest(arguments: list[str], expected: str) -> None:
    assert _run("--node", "n1", *arguments, objects=_list()) == (2, "", expected)


def test_render_reports_a_missing_file() -> None:
    out, err = io.StringIO(), io.StringIO()
    assert main(["--objects", "/nowhere/objects.json", *GUEST], io.BytesIO(), out, err) == 2
    assert (out.getvalue(), err.getvalue()) == (
        "",
        "kubeproxy-ext render: /nowhere/objects.json: No such file or directory\n",
    )


@pytest.mark.parametrize("arguments", [["--family", "ipv5"], ["--format", "pf"], ["--nod", "n1"], []])
def test_render_refuses_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        _run(*arguments)
    assert raised.value.code == 2
    assert "usage: kubeproxy-ext render" in capsys.readouterr().err


def test_render_takes_null_for_a_missing_field() -> None:
    service = _service("web", "t1-shop", "172.30.0.41", labels=None, annotations=None)
    service["spec"] |= {"type": None, "sessionAffinity": None, "ipFamilies": None}
    service["status"] = {"loadBalancer": {"ingress": [{"ip": None, "hostname": "x"}]}}
    code, out, err = _run(*GUEST, objects=_list(_namespace("t1-shop", "t1"), service))
    assert (code, err) == (0, "")
    assert "-d 172.30.0.41/32" in out


def test_render_refuses_deeply_nested_objects() -> None:
    assert _run(*GUEST, objects=b"[" * 100_000) == (
        2,
        "",
        "kubeproxy-ext render: the objects are nested too deeply\n",
    )
