# SPDX-License-Identifier: Apache-2.0
"""What a failure in a stock guest is to whoever asked: worth another try, refused, or no way in."""

import pytest

from devkit.kata.sample_rulesets import sample
from kata_bridge.channels.port import GuestRefused, NotInjectable, Unreachable
from kata_bridge.channels.stock.faults import Fault, NoAnswerError
from tests.unit.kata_bridge.channels.stock.stock_guests import V4, Guest, channel, fault, mesh_first

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
async def test_an_error_is_an_outcome(what: str, error: Exception, outcome: type[Exception]) -> None:
    guest = Guest(fails={(what, V4): error})

    with pytest.raises(outcome, match="why"):
        await channel(guest).probe()


async def test_a_guest_that_prints_nothing_is_pushed_to_once() -> None:
    guest = Guest()
    one = channel(guest)
    await one.probe()
    guest.is_save_failing = True
    guest.pushes.clear()

    with pytest.raises(NotInjectable, match="takes rules and prints none: its iptables-save fails"):
        await one.apply(sample(7), ())
    assert len(guest.pushes) == 1


async def test_a_guest_that_does_not_hold_what_it_took_is_worth_another_try() -> None:
    guest = await mesh_first()
    one = channel(guest)
    await one.probe()
    guest.losing = {V4}

    with pytest.raises(Unreachable, match="took the rules and does not hold them"):
        await one.apply(sample(7), ())
