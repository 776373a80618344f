# SPDX-License-Identifier: Apache-2.0
"""What is passed on to kubectl."""

from kubectl_vc.core.command import Scope


def test_all_but_the_namespace_are_passed_on() -> None:
    scope = Scope("ns", "k.yaml", "super", "c", "u", "ada", ("a", "b"), "7", "5s", "/cache")
    assert scope.flags() == [
        "--kubeconfig=k.yaml",
        "--context=super",
        "--cluster=c",
        "--user=u",
        "--as=ada",
        "--as-group=a",
        "--as-group=b",
        "--as-uid=7",
        "--request-timeout=5s",
        "--cache-dir=/cache",
    ]
    assert Scope("ns").flags() == []
