# SPDX-License-Identifier: Apache-2.0
"""The messages encode as `bridge.proto` declares, byte for byte."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge_api import messages, methods, rpc
from daemonkit.protobuf import decode, encode
from tests.unit.daemonkit.protobuf_oracle import Oracle, as_ours
from tests.unit.daemonkit.protobuf_oracle import messages as any_of

ROOT = Path(messages.__file__).parents[1]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    file = ROOT / "bridge_api/bridge.proto"
    return Oracle(file, ROOT, tmp_path_factory.mktemp("oracle"))


def test_messages_have_the_fields_of_the_proto(oracle: Oracle) -> None:
    oracle.check_declarations(messages)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(messages.GuestEventKind, ("GuestEvent", "Kind")), (messages.ResultCode, ("GuestResult", "Code"))],
)
def test_enumerations_have_the_values_of_the_proto(
    oracle: Oracle, ours: Any, theirs: tuple[str, str]
) -> None:
    message, name = theirs
    values = oracle.message(message).DESCRIPTOR.enum_types_by_name[name].values_by_name
    assert {each.name: each.value for each in ours} == {n: value.number for n, value in values.items()}


def test_methods_are_those_of_the_proto(oracle: Oracle) -> None:
    ours = {
        (
            call.path,
            call.request.__name__,
            call.reply.__name__,
            isinstance(call, methods.BidiStream),
            not isinstance(call, rpc.UnaryMethod),
        )
        for call in rpc.BRIDGE
    }
    assert ours == oracle.calls("Bridge")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_messages_encode_as_protobuf_does(oracle: Oracle, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(oracle.descriptor.message_types_by_name)))
    theirs = data.draw(any_of(oracle.descriptor.message_types_by_name[name]))
    wire = theirs.SerializeToString(deterministic=True)
    ours = as_ours(theirs, [messages])
    assert decode(type(ours), wire) == ours
    assert encode(ours) == wire
