# SPDX-License-Identifier: Apache-2.0
"""The channel's outcome for each failure of a stock guest."""

import pytest

from devkit.kata.fake_table_calls import FakeTableCalls
from devkit.kata.sample_rulesets import sample
from kata_bridge.channels.port import GuestRefused, NotInjectable, Unreachable
from kata_bridge.channels.stock.faults import Fault, NoAnswerError
from tests.unit.kata_bridge.channels.stock.stock_guests import V4, channel, fault, mesh_first

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NoAnswerError("why"), Unreachable),
        (NoAnswerError("why", may_run=True), Unreachable),
        (fault(Fault.TRANSIENT), Unreachable),
        (fault(Fault.UNCLEAR), Unreachable),
        (fault(Fault.RULE), GuestRefused),
        (fault(Fault.TOO_LARGE), GuestRefused),
        (fault(Fault.NO_BINARY, concerns_family=True), GuestRefused),
        (fault(Fault.POLICY_DENIED), NotInjectable),
        (fault(Fault.POLICY_UNDEFINED), NotInjectable),
        (fault(Fault.AGENT_TOO_OLD), NotInjectable),
        (fault(Fault.ENDPOINT_BLOCKED), NotInjectable),
        (fault(Fault.NO_BINARY), NotInjectable),
        (fault(Fault.NO_NF_TABLES), NotInjectable),
        (fault(Fault.NO_TABLE), NotInjectable),
    ],
)
@pytest.mark.parametrize("what", ["read", "push"])
async def test_outcome_of_each_failure(what: str, error: Exception, outcome: type[Exception]) -> None:
    guest = FakeTableCalls(fails={(what, V4): error})

    with pytest.raises(outcome, match="why"):
        await channel(guest).probe()


async def test_guest_that_prints_nothing_gets_one_push() -> None:
    guest = FakeTableCalls()
    one = channel(guest)
    await one.probe()
    guest.is_save_failing = True
    guest.pushes.clear()

    with pytest.raises(NotInjectable, match="takes rules and prints none: its iptables-save fails"):
        await one.apply(sample(7), ())
    assert len(guest.pushes) == 1


async def test_push_without_effect_is_unreachable() -> None:
    guest = await mesh_first()
    one = channel(guest)
    await one.probe()
    guest.losing = {V4}

    with pytest.raises(Unreachable, match="took the rules but does not hold them"):
        await one.apply(sample(7), ())
