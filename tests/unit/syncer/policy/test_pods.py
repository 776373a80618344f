# SPDX-License-Identifier: Apache-2.0
"""Pods by the SyncPolicy, whatever they have: what passes, and the form of refusals."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import patterns, pods
from syncer.policy.sync_policy import DEFAULT, HostUsers, SyncPolicy
from tests.unit.syncer.policy import test_pods_node, test_pods_security, volume_examples
from tests.unit.syncer.policy.arbitrary_json import are_refusals, changed
from tests.unit.syncer.policy.judged import with_keys
from tests.unit.syncer.policy.pod_examples import (
    DAEMON,
    ORDINARY,
    VM,
    container,
    context,
    denied,
    never,
    pod,
    volume,
    with_pods,
)

refusals_of = with_keys("Pod", pods.refusals)

# What is not as Kubernetes has it.
ODD: list[tuple[Object, Refusal]] = [
    ({"spec": []}, never("spec", "is not an object")),
    (pod(containers={"a": 1}), never("spec.containers", "is not a list")),
    (pod(volumes=["a"]), never("spec.volumes[0]", "is not an object")),
    ({"metadata": {"annotations": []}, "spec": {}}, never("metadata.annotations", "is not an object")),
    (
        pod(schedulerName="\u202e" + "x" * 200),
        denied("spec.schedulerName", f"scheduler \\u202e{'x' * 124}...", "pods.schedulers"),
    ),
]

SUBJECTS = (test_pods_security, test_pods_node, volume_examples)
REFUSED = [*(each for one in SUBJECTS for each in one.REFUSED), *ODD]
ALLOWED = [each for one in SUBJECTS for each in one.ALLOWED]
NARROWED = [each for one in SUBJECTS for each in one.NARROWED]

ANNOTATIONS = [
    "io.katacontainers.config.hypervisor.kernel_params",
    "io.containerd.cri.runtime-handler",
    "io.kubernetes.cri-o.userns-mode",
    "io.kubernetes.cri.rdt-class",
    "cpu-quota.crio.io",
    "dev.gvisor.spec.mount.a.source",
    "run.oci.hooks",
    "org.systemd.property.DeviceAllow",
    "cdi.k8s.io/vendor",
    "devices.nri.io/container.web",
    "devices.nri.io",
    "ulimits.nri.containerd.io/container.web",
    "required-plugins.noderesource.dev",
    "network-device-injector.noderesource.dev/pod",
    "rdt.resources.beta.kubernetes.io/pod",
    "kubernetes.io/config.mirror",
    "cni.projectcalico.org/ipAddrs",
    "k8s.v1.cni.cncf.io/networks",
    "v1.multus-cni.io/default-network",
    "policy.cilium.io/no-track-port",
    "k8s.ovn.org/pod-networks",
    "mizar.com/subnet",
]


@pytest.mark.parametrize("value", [ORDINARY, DAEMON, {}, {"spec": {}}, {"metadata": None, "spec": None}])
def test_ordinary_pods_pass(value: Object) -> None:
    assert refusals_of(value, DEFAULT) == ()


@pytest.mark.parametrize("key", ANNOTATIONS)
def test_annotations_of_the_node_are_refused(key: str) -> None:
    path = f"metadata.annotations[{key}]"
    expected = denied(path, "this annotation", "pods.allowedAnnotations")
    assert refusals_of(pod({key: "x"}), DEFAULT) == (expected,)
    assert refusals_of(pod({key: "x"}), with_pods(allowed_annotations=patterns.of(key))) == ()


def test_an_annotation_that_the_policy_denies_is_refused() -> None:
    policy = with_pods(denied_annotations=patterns.of("mesh.example.com/*"))
    expected = denied(
        "metadata.annotations[mesh.example.com/inject]", "this annotation", "pods.allowedAnnotations"
    )
    assert refusals_of(pod({"mesh.example.com/inject": "true"}), policy) == (expected,)


@pytest.mark.parametrize(("value", "expected"), REFUSED, ids=lambda each: getattr(each, "path", ""))
def test_default_policy_refuses(value: Object, expected: Refusal) -> None:
    assert refusals_of(value, DEFAULT) == (expected,)


@pytest.mark.parametrize(("value", "policy"), ALLOWED)
def test_policy_allows(value: Object, policy: SyncPolicy) -> None:
    assert refusals_of(value, DEFAULT) != ()
    assert refusals_of(value, policy) == ()


@pytest.mark.parametrize(("value", "policy", "expected"), NARROWED)
def test_policy_refuses(value: Object, policy: SyncPolicy, expected: Refusal) -> None:
    assert refusals_of(value, policy) == (expected,)


@pytest.mark.parametrize(
    "value",
    [
        pod({"container.apparmor.security.beta.kubernetes.io/web": "runtime/default"}),
        pod({"container.apparmor.security.beta.kubernetes.io/web": "localhost/web"}),
        pod({"seccomp.security.alpha.kubernetes.io/pod": "runtime/default"}),
        pod({"notnri.io/a": "b", "example.com/nri.io": "b", "xio.katacontainers.a": "b"}),
        pod(hostNetwork=False, hostPID=False, hostIPC=None, hostUsers=False),
        context(seccompProfile={"type": "Localhost", "localhostProfile": "a.json"}),
        context(appArmorProfile={"type": "RuntimeDefault"}, procMount="Default"),
        context(seLinuxOptions={"level": "s0:c1,c2", "type": "container_t"}),
        container(ports=[{"containerPort": 80, "hostPort": 0}]),
        container(livenessProbe={"grpc": {"port": 80}}, startupProbe={"exec": {"command": ["true"]}}),
        container(livenessProbe={"httpGet": {"port": 80, "host": ""}}),
        volume(image={"reference": "a"}),
        volume(emptyDir={}, hostPath=None),
        volume(ephemeral={"volumeClaimTemplate": {"spec": {"storageClassName": "any"}}}),
        pod(aFieldOfTheFuture={"a": 1}),
    ],
)
def test_default_policy_allows(value: Object) -> None:
    assert refusals_of(value, DEFAULT) == ()


def test_every_fault_is_reported_in_order() -> None:
    value = pod(
        {"io.katacontainers.config.agent.debug": "1"},
        hostPID=True,
        nodeName="node-1",
        volumes=[{"name": "a", "hostPath": {}}],
        containers=[{"securityContext": {"privileged": True}}],
    )
    assert [each.path for each in refusals_of(value, DEFAULT)] == [
        "metadata.annotations[io.katacontainers.config.agent.debug]",
        "spec.hostPID",
        "spec.nodeName",
        "spec.volumes[0].hostPath",
        "spec.containers[0].securityContext.privileged",
    ]


def test_refusals_are_bounded() -> None:
    found = pods.refusals(pod(containers=[{"ports": [{"hostPort": 1}] * 1_000}] * 10), DEFAULT)
    assert (len(found), found[-1].path) == (32, "spec.containers[0].ports[31].hostPort")


@given(changed(ORDINARY, DAEMON, *(value for value, _ in REFUSED)))
def test_any_json_gives_refusals(value: Object) -> None:
    for policy in (DEFAULT, with_pods(**VM, host_users=HostUsers.DENY)):
        assert are_refusals(pods.refusals(value, policy))


@given(st.lists(st.sampled_from(REFUSED), max_size=4))
def test_what_passes_has_no_privileged_feature(features: list[tuple[Object, Refusal]]) -> None:
    """An ordinary pod with the features of any others is refused for each, wherever they stand."""
    value = copy.deepcopy(ORDINARY)
    for feature, _ in features:
        spec = feature["spec"]
        if not isinstance(spec, dict):
            continue
        value["metadata"]["annotations"].update(feature.get("metadata", {}).get("annotations") or {})
        for name, field in spec.items():
            known = value["spec"].get(name)
            value["spec"][name] = (
                known + field if isinstance(known, list) and isinstance(field, list) else field
            )
    is_changed = any(isinstance(feature["spec"], dict) for feature, _ in features)
    is_empty = all(
        not (feature["spec"] or feature.get("metadata", {}).get("annotations")) for feature, _ in features
    )
    assert bool(refusals_of(value, DEFAULT)) == (is_changed and not is_empty)
