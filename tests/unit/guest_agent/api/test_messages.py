# SPDX-License-Identifier: Apache-2.0
"""The messages encode as `guest.proto` declares, byte for byte."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge_api import messages as api_messages
from daemonkit.protobuf import decode, encode
from guest_agent.api import messages
from tests.unit.daemonkit.protobuf_oracle import Oracle, as_ours
from tests.unit.daemonkit.protobuf_oracle import messages as any_of

ROOT = Path(messages.__file__).parents[2]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    file = ROOT / "guest_agent/api/guest.proto"
    return Oracle(file, ROOT, tmp_path_factory.mktemp("oracle"))


def test_messages_have_the_fields_of_the_proto(oracle: Oracle) -> None:
    oracle.check_declarations(messages)


def test_result_codes_are_those_of_the_proto(oracle: Oracle) -> None:
    values = oracle.message("AgentResult").DESCRIPTOR.enum_types_by_name["Code"].values_by_name
    assert {each.name: each.value for each in messages.AgentResultCode} == {
        name: value.number for name, value in values.items()
    }


def test_attach_is_the_method_of_the_proto(oracle: Oracle) -> None:
    call = messages.ATTACH
    assert {(call.path, call.request.__name__, call.reply.__name__, True, True)} == oracle.calls(
        "AgentService"
    )


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_messages_encode_as_protobuf_does(oracle: Oracle, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(oracle.descriptor.message_types_by_name)))
    theirs = data.draw(any_of(oracle.descriptor.message_types_by_name[name]))
    wire = theirs.SerializeToString(deterministic=True)
    ours = as_ours(theirs, [messages, api_messages])
    assert decode(type(ours), wire) == ours
    assert encode(ours) == wire
