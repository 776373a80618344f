# SPDX-License-Identifier: Apache-2.0
"""What is written for an adopted control plane, and when it is written again."""

import base64

from tenant_operator.provisioners.imported.adoption import is_copied, kubeconfig_copy


def test_the_kubeconfig_is_copied_as_vc_syncer_reads_it() -> None:
    assert kubeconfig_copy("d1", "key", {"a": "b"}, b"text") == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "admin-kubeconfig",
            "namespace": "key",
            "labels": {"a": "b"},
            "annotations": {"vcnode.io/spec-digest": "d1"},
        },
        "data": {"admin-kubeconfig": base64.b64encode(b"text").decode()},
    }


def test_a_renewed_kubeconfig_is_copied_again() -> None:
    copy = kubeconfig_copy("d1", "key", {}, b"")["metadata"]["annotations"]
    assert is_copied("d1", copy)
    assert not is_copied("d2", copy)
    assert not is_copied("d1", {})
    assert not is_copied("d1", None)
