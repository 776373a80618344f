# SPDX-License-Identifier: Apache-2.0
"""What we declare of NRI's and CRI's messages, before these protocols' own files."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daemonkit.protobuf import decode, encode
from kata_bridge.cri import messages as cri
from kata_bridge.nri import messages as nri
from kata_bridge.nri.events import Event
from tests.k8s import build
from tests.unit.daemonkit.protobuf_oracle import Oracle, as_ours
from tests.unit.daemonkit.protobuf_oracle import messages as any_of

# One of our classes stands for several messages.
_ALIKE = {"PodRequest": ("RunPodSandboxRequest", "StopPodSandboxRequest", "RemovePodSandboxRequest")}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("oracle")


def _oracle(scratch: Path, component: str, module: str, file: str) -> Oracle:
    """The protocol file that comes with a Go module of the ring."""
    if build.go_version() is None:
        pytest.skip("k8s ring: no Go compiler")
    listed = subprocess.run(
        ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module],
        cwd=build.MODULES / component,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    source = Path(listed.stdout.strip() or "/nowhere") / file
    if not source.is_file():
        pytest.skip(f"k8s ring: {module} is not here: run python3 tests/k8s/build.py")
    copy = scratch / f"{component}.proto"
    copy.write_text(re.sub(r"^option go_package.*$", "", source.read_text(), flags=re.MULTILINE))
    return Oracle(copy, scratch, scratch)


@pytest.fixture(scope="module")
def nri_oracle(scratch: Path) -> Oracle:
    return _oracle(scratch, "containerd", "github.com/containerd/nri", "pkg/api/api.proto")


@pytest.fixture(scope="module")
def cri_oracle(scratch: Path) -> Oracle:
    return _oracle(scratch, "kubernetes", "k8s.io/cri-api", "pkg/apis/runtime/v1/api.proto")


def _declared(module: ModuleType) -> list[tuple[type, str]]:
    """Our classes, each with the names of its messages."""
    return [
        (cls, name)
        for cls in vars(module).values()
        if dataclasses.is_dataclass(cls) and isinstance(cls, type) and cls.__module__ == module.__name__
        for name in _ALIKE.get(cls.__name__, (cls.__name__,))
    ]


def _check(oracle: Oracle, module: ModuleType, data: st.DataObject) -> None:
    cls, name = data.draw(st.sampled_from(_declared(module)))
    descriptor = oracle.descriptor.message_types_by_name[name]
    for field in dataclasses.fields(cls):
        assert field.metadata["daemonkit.protobuf"][0] == descriptor.fields_by_name[field.name].number
    upstream = data.draw(any_of(descriptor))
    declared = as_ours(upstream, [module], cls)
    assert decode(cls, upstream.SerializeToString()) == declared
    again = oracle.message(name).FromString(encode(declared))
    assert as_ours(again, [module], cls) == declared


_SETTINGS = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)


@_SETTINGS
@given(data=st.data())
def test_nri(nri_oracle: Oracle, data: st.DataObject) -> None:
    _check(nri_oracle, nri, data)


@_SETTINGS
@given(data=st.data())
def test_cri(cri_oracle: Oracle, data: st.DataObject) -> None:
    _check(cri_oracle, cri, data)


@pytest.mark.parametrize(("declared", "name"), [(Event, "Event"), (nri.ContainerState, "ContainerState")])
def test_nri_enumerations(nri_oracle: Oracle, declared: type[Event], name: str) -> None:
    values = nri_oracle.descriptor.enum_types_by_name[name].values_by_name
    assert {each.name: each.value for each in declared} == {
        key: value.number for key, value in values.items() if key != "LAST"
    }


def test_calls(nri_oracle: Oracle, cri_oracle: Oracle) -> None:
    served = {path.rpartition("/")[2] for path, *_ in nri_oracle.calls("Plugin")}
    assert {"Configure", "Synchronize", "Shutdown", "StateChange", "RunPodSandbox"} <= served
    assert (f"/{nri.RUNTIME}/RegisterPlugin", "RegisterPluginRequest") in {
        (path, request) for path, request, *_ in nri_oracle.calls("Runtime")
    }
    assert {
        (c.path, c.request.__name__, c.reply.__name__) for c in (cri.LIST_POD_SANDBOX, cri.POD_SANDBOX_STATUS)
    } <= {(path, request, reply) for path, request, reply, *_ in cri_oracle.calls("RuntimeService")}
