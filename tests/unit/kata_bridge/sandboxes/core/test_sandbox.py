# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from kata_bridge.sandboxes.core.sandbox import (
    CONFIG_HASH,
    Sandbox,
    SandboxObservation,
    policy_lock_reason,
    sandbox_of,
)

ANNOTATIONS = {
    "tenancy.x-k8s.io/cluster": "vc-1-a",
    "tenancy.x-k8s.io/namespace": "shop",
    "tenancy.x-k8s.io/uid": "11111111-1111-1111-1111-111111111111",
}
WEB = SandboxObservation(
    id="s1",
    namespace="vc-1-a-shop",
    name="web-0",
    uid="22222222-2222-2222-2222-222222222222",
    labels={"arktos.futurewei.com/network": "blue"},
    annotations=ANNOTATIONS,
    runtime_handler="kata-qemu",
    ips=("10.1.0.5",),
    netns="/run/netns/x",
)
DNS = SandboxObservation(
    id="s2", namespace="kube-system", name="dns", uid="33333333-3333-3333-3333-333333333333"
)


def test_annotations_name_the_tenant_of_a_sandbox() -> None:
    assert sandbox_of(WEB) == Sandbox(
        id="s1",
        namespace="vc-1-a-shop",
        name="web-0",
        uid="22222222-2222-2222-2222-222222222222",
        tenant="vc-1-a",
        tenant_namespace="shop",
        tenant_name="web-0",
        networks=("blue",),
        ips=("10.1.0.5",),
        runtime_handler="kata-qemu",
        netns="/run/netns/x",
    )


def test_a_pod_without_annotations_has_no_tenant() -> None:
    assert sandbox_of(DNS) == Sandbox(
        id="s2",
        namespace="kube-system",
        name="dns",
        uid="33333333-3333-3333-3333-333333333333",
        networks=("default",),
    )


def test_incomplete_ownership_annotations_are_refused() -> None:
    sandbox = sandbox_of(replace(WEB, annotations={"tenancy.x-k8s.io/cluster": "vc-1-a"}))
    assert sandbox.tenant == ""
    assert sandbox.ownership_problem == (
        "its ownership annotations are invalid: not all of its ownership annotations are set"
    )


def test_a_static_pod_without_uid_has_its_config_hash() -> None:
    observation = replace(DNS, uid="", annotations={CONFIG_HASH: "0123456789abcdef0123456789abcdef"})
    assert sandbox_of(observation).uid == "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("annotations", "handler", "why"),
    [
        ({}, "kata", ""),
        ({}, "kata-qemu-runtime-rs", ""),
        ({}, "", ""),
        ({"io.katacontainers.config.agent.enable_tracing": "true"}, "kata-clh", ""),
        (
            {"io.katacontainers.config.agent.policy": "cGFja2FnZQ=="},
            "kata",
            "the pod brought a policy of its own (io.katacontainers.config.agent.policy)",
        ),
        (
            {"io.katacontainers.config.agent.policy": ""},
            "kata",
            "the pod brought a policy of its own (io.katacontainers.config.agent.policy)",
        ),
        (
            {"io.katacontainers.config.hypervisor.cc_init_data": "H4sI"},
            "kata",
            "the pod brought a policy of its own (io.katacontainers.config.hypervisor.cc_init_data)",
        ),
        (
            {"io.katacontainers.config.runtime.cc_init_data": "H4sI"},
            "kata",
            "the pod brought a policy of its own (io.katacontainers.config.runtime.cc_init_data)",
        ),
        ({}, "kata-qemu-snp", "the runtime handler kata-qemu-snp is for confidential guests"),
        (
            {},
            "kata-qemu-tdx-runtime-rs",
            "the runtime handler kata-qemu-tdx-runtime-rs is for confidential guests",
        ),
        ({}, "kata-qemu-se", "the runtime handler kata-qemu-se is for confidential guests"),
        ({}, "Kata_QEMU_CoCo", "the runtime handler Kata_QEMU_CoCo is for confidential guests"),
    ],
)
def test_why_an_agents_policy_must_stay(annotations: dict[str, str], handler: str, why: str) -> None:
    assert policy_lock_reason(annotations, handler) == why
