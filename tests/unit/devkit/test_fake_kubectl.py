# SPDX-License-Identifier: Apache-2.0
"""The fake keeps the contract that a real kubectl keeps in tests/k8s."""

from devkit.fake_kubectl import FakeKubectl
from tests.functional.kubectl_vc.contract import check


def test_the_fake_keeps_the_contract() -> None:
    api = FakeKubectl()
    check(api)
    assert api.objects == {}
