# SPDX-License-Identifier: Apache-2.0
"""`info` of different runtimes, and unexpected text in it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kata_bridge.cri.info import network_namespace

CONTAINERD = {
    "pid": 4711,
    "processStatus": "running",
    "netNamespaceClosed": False,
    "image": "registry.k8s.io/pause:3.10",
    "runtimeType": "io.containerd.kata.v2",
    "runtimeOptions": {"config_path": "/opt/kata"},
    "runtimeSpec": {
        "ociVersion": "1.2.1",
        "linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": "/var/run/netns/cni-1"}]},
    },
    "sandboxMetadata": {"Version": "v1", "Metadata": {}},
}
CRIO = {"image": "pause", "runtimeSpec": {"annotations": {"io.kubernetes.cri-o.RuntimeHandler": "kata"}}}


def test_info_of_containerd() -> None:
    assert network_namespace({"info": json.dumps(CONTAINERD)}) == "/var/run/netns/cni-1"


def test_info_of_containerd_for_a_brief_request() -> None:
    # containerd 2.4 sends its details with no value in them.
    assert network_namespace({"info": json.dumps(dict.fromkeys(CONTAINERD))}) == ""


def test_info_of_cri_o() -> None:
    assert network_namespace({"info": json.dumps(CRIO)}) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"runtimeSpec": 1e400}',
        '{"runtimeSpec": {"linux": {"namespaces": null}}}',
        '{"runtimeSpec": {"linux": null}}',
        '{"runtimeSpec": {"linux": {"namespaces": [{"type": "ipc", "path": "/x"}]}}}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:30],
)
def test_unexpected_info_is_empty(text: str) -> None:
    assert network_namespace({"info": text}) == ""
    assert network_namespace({}) == ""


@given(st.text())
def test_any_text_is_read_without_error(text: str) -> None:
    network_namespace({"info": text})
