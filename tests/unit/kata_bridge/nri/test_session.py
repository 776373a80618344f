# SPDX-License-Identifier: Apache-2.0
"""The registration of a plugin with old and new runtimes."""

import pytest

from kata_bridge.nri import session as session_module
from kata_bridge.nri.events import GATE, SANDBOXES, Event
from kata_bridge.nri.messages import ConfigureRequest, Container, PodSandbox, SynchronizeRequest
from kata_bridge.nri.session import NriSnapshot, Session
from kata_bridge.ttrpc.status import TtrpcError

NEW = ConfigureRequest("containerd", "2.4.2", 5000, 2000, "v0.12.3")
OLD = ConfigureRequest("containerd", "1.7.27", 5000, 2000)


def test_a_new_runtime_gets_all_subscriptions() -> None:
    session = Session(SANDBOXES | GATE)
    assert session.configure(NEW).events == 0x200F
    assert (session.runtime, session.events) == ("containerd 2.4.2", SANDBOXES | GATE)


def test_an_old_runtime_gets_the_supported_events() -> None:
    session = Session(SANDBOXES | GATE)
    assert session.configure(OLD).events == 0xF
    assert session.events == SANDBOXES | {Event.CREATE_CONTAINER}
    assert not session.was_refused()


def test_after_a_drop_one_session_subscribes_to_less() -> None:
    session = Session(SANDBOXES | GATE)
    assert not session.was_refused()
    session.configure(NEW)
    assert session.was_refused()
    again = Session(SANDBOXES | GATE, is_reduced=True)
    assert again.configure(NEW).events == 0xF
    assert not again.was_refused()  # so the next one subscribes to all again


def test_a_drop_after_synchronize_is_not_a_refusal() -> None:
    session = Session(SANDBOXES | GATE)
    session.configure(NEW)
    session.synchronize(SynchronizeRequest())
    assert not session.was_refused()


def test_parts_of_a_synchronize_make_one_snapshot() -> None:
    session = Session(SANDBOXES)
    pods = [PodSandbox(id=str(number)) for number in range(3)]
    containers = [Container(id="c", pod_sandbox_id="0")]
    first, nothing = session.synchronize(SynchronizeRequest(tuple(pods[:2]), (), True))
    assert (first.more, nothing, session.is_synchronized) == (True, None, False)
    second, snapshot = session.synchronize(SynchronizeRequest((pods[2],), tuple(containers)))
    assert (second.more, session.is_synchronized) == (False, True)
    assert snapshot == NriSnapshot(tuple(pods), tuple(containers))
    # The next Synchronize starts from nothing.
    assert session.synchronize(SynchronizeRequest())[1] == NriSnapshot((), ())


def test_a_snapshot_of_too_many_objects_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_OBJECTS", 3)
    session = Session(SANDBOXES)
    session.synchronize(SynchronizeRequest((PodSandbox(), PodSandbox()), (), True))
    with pytest.raises(TtrpcError, match="RESOURCE_EXHAUSTED: more than 3"):
        session.synchronize(SynchronizeRequest((), (Container(), Container()), True))
