# SPDX-License-Identifier: Apache-2.0
import pytest

from kata_bridge.sandboxes.core.sandbox import policy_lock_reason


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
def test_whose_policy_stays(annotations: dict[str, str], handler: str, why: str) -> None:
    assert policy_lock_reason(annotations, handler) == why
