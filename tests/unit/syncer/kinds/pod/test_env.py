# SPDX-License-Identifier: Apache-2.0
"""Variables of a super pod's containers (upstream's `envvars` TestFromServices, and its mutators)."""

from typing import Any

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.kinds.pod.env import MAX_VALUE_CHARS, SourceKeys, service_variables
from tests.pump import steps
from tests.unit.syncer.kinds.pod.pods import UID, brief, created, plan, pod, service, view
from tests.unit.syncer.kinds.pod.test_sync import API_VARIABLES


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            service("links", "web-api", "1.2.3.4", {"name": "admin-ui", "port": 80}, {"port": 81}),
            {
                "WEB_API_SERVICE_HOST": "1.2.3.4",
                "WEB_API_SERVICE_PORT": "80",
                "WEB_API_SERVICE_PORT_ADMIN_UI": "80",
                "WEB_API_PORT": "tcp://1.2.3.4:80",
                "WEB_API_PORT_80_TCP": "tcp://1.2.3.4:80",
                "WEB_API_PORT_80_TCP_PROTO": "tcp",
                "WEB_API_PORT_80_TCP_PORT": "80",
                "WEB_API_PORT_80_TCP_ADDR": "1.2.3.4",
                "WEB_API_PORT_81_TCP": "tcp://1.2.3.4:81",
                "WEB_API_PORT_81_TCP_PROTO": "tcp",
                "WEB_API_PORT_81_TCP_PORT": "81",
                "WEB_API_PORT_81_TCP_ADDR": "1.2.3.4",
            },
            id="two ports",
        ),
        pytest.param(
            service(
                "links", "d", "1.2.3.4", {"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}
            ),
            {
                "D_SERVICE_HOST": "1.2.3.4",
                "D_SERVICE_PORT": "53",
                "D_PORT": "udp://1.2.3.4:53",
                "D_PORT_53_UDP": "udp://1.2.3.4:53",
                "D_PORT_53_UDP_PROTO": "udp",
                "D_PORT_53_UDP_PORT": "53",
                "D_PORT_53_UDP_ADDR": "1.2.3.4",
                "D_PORT_53_TCP": "tcp://1.2.3.4:53",
                "D_PORT_53_TCP_PROTO": "tcp",
                "D_PORT_53_TCP_PORT": "53",
                "D_PORT_53_TCP_ADDR": "1.2.3.4",
            },
            id="two protocols of one port",
        ),
        pytest.param(
            service("links", "s", "2001:db8::1", {"port": 7, "protocol": "SCTP"}),
            {
                "S_SERVICE_HOST": "2001:db8::1",
                "S_SERVICE_PORT": "7",
                "S_PORT": "sctp://[2001:db8::1]:7",
                "S_PORT_7_SCTP": "sctp://[2001:db8::1]:7",
                "S_PORT_7_SCTP_PROTO": "sctp",
                "S_PORT_7_SCTP_PORT": "7",
                "S_PORT_7_SCTP_ADDR": "2001:db8::1",
            },
            id="SCTP over IPv6",
        ),
        pytest.param(service("links", "headless", "None", {"port": 1}), {}, id="headless"),
        pytest.param(service("links", "external", "", {"port": 1}), {}, id="without an address"),
    ],
)
def test_variables_of_a_service(found: Object, expected: dict[str, str]) -> None:
    assert service_variables([found], 100) == expected


def env_of(spec: Object, *services: Object, **meta: Any) -> list[Object]:
    found: list[Object] = created(pod(spec, **meta), view(*services))["spec"]["containers"][0]["env"]
    return found


WEB = service("plain", "web", "1.2.3.4", {"port": 80})
OTHER = service("other", "db", "1.2.3.5", {"port": 80})


def test_services_of_the_namespace_alone_are_linked() -> None:
    names = {each["name"] for each in env_of({}, WEB, OTHER)}
    assert {"WEB_SERVICE_HOST", "KUBERNETES_SERVICE_HOST"} <= names
    assert "DB_SERVICE_HOST" not in names
    assert env_of({"enableServiceLinks": False}, WEB) == API_VARIABLES


def test_the_api_server_wins_over_a_service_of_its_name() -> None:
    own = service("plain", "kubernetes", "1.2.3.4", {"name": "https", "port": 443})
    assert env_of({}, own) == API_VARIABLES


def test_init_containers_have_them_too() -> None:
    found = created(pod({"initContainers": [{"name": "i", "image": "i:1", "restartPolicy": "Always"}]}))
    assert found["spec"]["initContainers"] == [
        {"name": "i", "image": "i:1", "restartPolicy": "Always", "env": API_VARIABLES}
    ]


def test_too_many_links_are_left_to_the_kubelet() -> None:
    services = [service("plain", f"s{number}", "1.2.3.4", {"port": 80}) for number in range(800)]
    assert env_of({}, *services) == API_VARIABLES


def test_the_containers_own_variables_come_first_and_win() -> None:
    own = [{"name": "Z", "value": "1"}, {"name": "KUBERNETES_SERVICE_HOST", "value": "mine"}]
    found = env_of({"containers": [{"name": "c", "image": "app:1", "env": own}]})
    assert found == own + [each for each in API_VARIABLES if each["name"] != "KUBERNETES_SERVICE_HOST"]


def test_a_variable_that_is_referred_to_stands_before() -> None:
    """The kubelet expands from entries before it, and else from its own `kubernetes`: the super cluster's."""
    own = [{"name": "URL", "value": "https://$(KUBERNETES_SERVICE_HOST):$(OTHER)"}]
    found = env_of({"containers": [{"name": "c", "image": "app:1", "env": own}]})
    assert found[:2] == [{"name": "KUBERNETES_SERVICE_HOST", "value": "kubernetes"}, own[0]]
    assert len(found) == len(API_VARIABLES) + 1


def _env_with_source(own: list[Object], *sources: Object, data: Object) -> list[Object]:
    container = {"name": "c", "image": "app:1", "env": own, "envFrom": list(sources)}
    held = {"kind": "ConfigMap", "metadata": {"namespace": "plain", "name": "m"}, "data": data}
    seen = view(WEB, tenant_objects=(held, {**held, "kind": "Secret"}))
    found: list[Object] = created(pod({"containers": [container]}), seen)["spec"]["containers"][0]["env"]
    return found


_MAP = {"configMapRef": {"name": "m"}}
_HOST = "KUBERNETES_SERVICE_HOST"


@pytest.mark.parametrize(
    ("own", "sources", "data", "expected"),
    [
        pytest.param([], [_MAP], {"WEB_PORT": "x"}, API_VARIABLES, id="other Services are the kubelet's"),
        pytest.param([], [{"configMapRef": {"name": "none"}}], {}, API_VARIABLES, id="no such map"),
        pytest.param(
            [],
            [_MAP],
            {_HOST: "mine"},
            [each for each in API_VARIABLES if each["name"] != _HOST],
            id="of the API server's too",
        ),
        pytest.param(
            [],
            [{"secretRef": {"name": "m"}, "prefix": "KUBERNETES_"}],
            {"SERVICE_HOST": "mine"},
            [each for each in API_VARIABLES if each["name"] != _HOST],
            id="with a prefix",
        ),
        pytest.param(
            [{"name": "URL", "value": f"https://$({_HOST})"}],
            [_MAP],
            {_HOST: "mine"},
            [
                {"name": "URL", "value": f"https://$({_HOST})"},
                *(each for each in API_VARIABLES if each["name"] != _HOST),
            ],
            id="and of what is expanded",
        ),
    ],
)
def test_env_from_comes_before_service_variables(
    own: list[Object], sources: list[Object], data: Object, expected: list[Object]
) -> None:
    """The order of the kubelet: `env`, then `envFrom`, then Services (makeEnvironmentVariables)."""
    assert _env_with_source(own, *sources, data=data) == expected


def test_a_reference_before_its_own_definition() -> None:
    """The kubelet would expand it from its own variables: those of the super cluster's API server."""
    own = [
        {"name": "URL", "value": f"https://$({_HOST})"},
        {"name": _HOST, "value": "mine"},
        {"name": "LATER", "value": f"https://$({_HOST})"},
    ]
    found = env_of({"containers": [{"name": "c", "image": "app:1", "env": own}]})
    assert found[:4] == [{"name": _HOST, "value": "kubernetes"}, *own]
    assert [each["name"] for each in found[4:]] == [
        each["name"] for each in API_VARIABLES if each["name"] != _HOST
    ]


def test_a_reference_after_a_definition_needs_nothing_before() -> None:
    own = [{"name": _HOST, "value": "mine"}, {"name": "URL", "value": f"https://$({_HOST})"}]
    found = env_of({"containers": [{"name": "c", "image": "app:1", "env": own}]})
    assert found[:2] == own


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", None),
        ("metadata.namespace", "plain"),
        ("metadata.uid", UID),
        ("metadata.labels['a']", None),
        ("metadata.annotations['a']", None),
        ("metadata.labels['app.kubernetes.io/name']", "n"),
        ("metadata.annotations['kubernetes.io/x']", "costs $$5"),
        ("metadata.labels['tenancy.x-k8s.io/cluster']", ""),
        ("metadata.annotations['tenancy.x-k8s.io/cluster']", "own"),
        ("metadata.annotations['vcnode.io/containers']", ""),
        ("status.podIP", None),
        ("spec.nodeName", None),
        ("spec.serviceAccountName", None),
    ],
)
def test_field_references(path: str, expected: str | None) -> None:
    """What the super pod has otherwise becomes the tenant's value; the rest stays a reference."""
    own = {"name": "F", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    found = env_of(
        {"containers": [{"name": "c", "image": "app:1", "env": [own]}]},
        labels={"a": "1", "app.kubernetes.io/name": "n"},
        annotations={"a": "1", "kubernetes.io/x": "costs $5", "tenancy.x-k8s.io/cluster": "own"},
    )
    assert found[0] == (own if expected is None else {"name": "F", "value": expected})


def test_references_to_the_root_ca_are_renamed() -> None:
    def key(name: str) -> Object:
        return {"name": "CA", "valueFrom": {"configMapKeyRef": {"name": name, "key": "ca.crt"}}}

    def all_of(name: str) -> Object:
        return {"configMapRef": {"name": name}}

    container = {"name": "c", "image": "app:1", "env": [key("kube-root-ca.crt"), key("mine")]}
    container["envFrom"] = [all_of("kube-root-ca.crt"), {"secretRef": {"name": "kube-root-ca.crt"}}]
    found = created(pod({"containers": [container], "initContainers": [{**container, "name": "i"}]}))["spec"]
    for each in (found["containers"][0], found["initContainers"][0]):
        assert each["env"][:2] == [key("tenant-kube-root-ca.crt"), key("mine")]
        assert each["envFrom"] == [
            all_of("tenant-kube-root-ca.crt"),
            {"secretRef": {"name": "kube-root-ca.crt"}},
        ]


def _named(count: int, path: str = "metadata.annotations['k8s.io/a']") -> Object:
    entries = [{"name": f"A{n}", "valueFrom": {"fieldRef": {"fieldPath": path}}} for n in range(count)]
    return {"containers": [{"name": "c", "env": entries}]}


def test_variables_repeat_a_large_annotation_only_so_often() -> None:
    large = {"k8s.io/a": "x" * (MAX_VALUE_CHARS // 4)}
    assert brief(plan(pod(_named(4), annotations=large), None, view())) == [("create", "super")]

    refused = plan(pod(_named(5), annotations=large), None, view())

    assert [each.path for each in refused.refusals] == ["spec.containers"]
    assert str(MAX_VALUE_CHARS) in refused.refusals[0].message


def test_services_with_too_many_ports_are_the_kubelets() -> None:
    own = service("plain", "web", "1.2.3.4", *({"port": n} for n in range(1, 5_000)))
    assert "WEB_SERVICE_HOST" not in {each["name"] for each in env_of({"containers": [{"name": "c"}]}, own)}


def test_a_reference_brings_its_variable_before_the_entry() -> None:
    entries = [{"name": "A", "value": "$$(WEB_SERVICE_HOST) $($(WEB_SERVICE_PORT)"}]
    found = [each["name"] for each in env_of({"containers": [{"name": "c", "env": entries}]}, WEB)]
    before = found[: found.index("A")]
    assert before == ["WEB_SERVICE_HOST", "WEB_SERVICE_PORT"]


class _Keys(FakeView):
    """Each ConfigMap has so many keys."""

    count = 0

    def in_tenant(self, kind: str, namespace: str, name: str) -> Object | None:
        return {"data": {f"KEY_{n}": "" for n in range(self.count)}}


def test_keys_of_a_source_with_many_prefixes_are_looked_up() -> None:
    def work(size: int) -> int:
        view = _Keys()
        view.count = size
        references = [{"prefix": f"P{n}_", "configMapRef": {"name": "c"}} for n in range(size)]
        names = {f"P{n}_KEY_{n}": "" for n in range(size)}
        assert SourceKeys("ns", view, names).given(references) == names.keys()
        return steps(lambda: SourceKeys("ns", view, names).given(references))

    assert work(800) < 3 * work(400)


def test_keys_that_many_names_end_with_are_kept() -> None:
    """As with few names, whose ends are looked up."""
    view = _Keys()
    view.count = 1_000
    references = [{"prefix": "A_", "configMapRef": {"name": "c"}}]
    for count in (10, 900):
        names = {f"{prefix}_KEY_{n}" for n in range(count) for prefix in "AB"} | {"A_KEY_1000"}
        assert SourceKeys("ns", view, names).given(references) == {f"A_KEY_{n}" for n in range(count)}
