# SPDX-License-Identifier: Apache-2.0
"""The two iptables calls of a stock guest, through its shim or to its agent.

The shim is first: it is the interface meant for the node, and finds its agent by itself. Where it gives no
answer or an unclear one, the same call goes to the agent, which returns exact errors. A call that is made
twice does no harm: both replace the same tables by the same text.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from daemonkit import logs
from kata_bridge.channels.port import GuestRefused, NotInjectable, Unreachable
from kata_bridge.channels.stock.agent_client import StockAgentClient
from kata_bridge.channels.stock.faults import (
    FAMILY_FAULTS,
    POLICY_FAULTS,
    CallFailedError,
    Fault,
    NoAnswerError,
    NoEndpointError,
    StockCall,
    classify,
    explain,
)
from kata_bridge.channels.stock.shim import Shim
from ruleset.model import Family

# A pod must not wait for the version, which is for people.
_VERSION_TIMEOUT_S = 1.0

T = TypeVar("T")

_log = logs.get(__name__)


class FaultError(Exception):
    """A call failed with a known fault. `concerns_family`: the other family may still work."""

    def __init__(self, fault: Fault, text: str, *, concerns_family: bool) -> None:
        super().__init__(text)
        self.fault = fault
        self.text = text
        self.concerns_family = concerns_family

    def as_outcome(self) -> Exception:
        """The exception that a channel raises for it. A guest without IPv6 still gets IPv4 rules."""
        if self.concerns_family or self.fault in (Fault.RULE, Fault.TOO_LARGE):
            return GuestRefused(self.text)
        if self.fault in (Fault.TRANSIENT, Fault.UNCLEAR):
            return Unreachable(self.text)
        return NotInjectable(self.text)


class StockCalls:
    """The calls into one guest. `route` is what answered the last one: shim or ttrpc.

    Calls raise `FaultError` and `NoAnswerError`. `hold_s` is how long an unanswered push may still take
    effect; no other push starts before.
    """

    def __init__(
        self, sandbox_id: str, *, roots: Sequence[Path], timeout_s: float, hold_s: float, policy: str | None
    ) -> None:
        """Raises `ValueError` for an invalid sandbox id."""
        self.route = ""
        self._shim = Shim(sandbox_id, roots=roots, timeout_s=timeout_s)
        self._sandbox_id = sandbox_id
        self._timeout_s = timeout_s
        self._hold_s = hold_s
        self._no_push_until_s = float("-inf")
        self._policy = policy
        self._url = ""
        self._has_shim_calls = True

    async def read(self, family: Family) -> str:
        """Return the output of the guest's iptables-save; empty also if that failed."""
        data = await self._call_with_policy(
            StockCall("GetIPTablesRequest", family),
            lambda: self._shim.get_tables(family),
            lambda agent: agent.get_tables(family),
        )
        return data.decode("utf-8", "replace")

    async def push(self, family: Family, text: str) -> None:
        """Let the guest's iptables-restore replace every table that `text` names."""
        call = StockCall("SetIPTablesRequest", family)
        data = text.encode()
        now_s = asyncio.get_running_loop().time()
        if now_s < self._no_push_until_s:
            left_s = self._no_push_until_s - now_s
            raise NoAnswerError(f"a push was not answered and may still take effect for {left_s:.0f} s")
        try:
            await self._call_with_policy(
                call,
                lambda: self._shim.set_tables(family, data),
                lambda agent: agent.set_tables(family, data),
                text,
            )
        except NoAnswerError as error:
            if error.may_run:
                self._no_push_until_s = asyncio.get_running_loop().time() + self._hold_s
            raise

    def release(self) -> None:
        """The unanswered push has taken effect: it was read back."""
        self._no_push_until_s = float("-inf")

    async def version(self) -> str:
        """Return the agent's version; empty if it is not returned soon."""
        try:
            url = await self._agent_url()
            return await StockAgentClient(url, timeout_s=_VERSION_TIMEOUT_S).version() if url else ""
        except (NoAnswerError, CallFailedError):
            return ""

    async def _call_with_policy(
        self,
        call: StockCall,
        via_shim: Callable[[], Awaitable[T]],
        via_agent: Callable[[StockAgentClient], Awaitable[T]],
        pushed: str = "",
    ) -> T:
        """Make a call. If the policy refuses it and may be replaced, replace the policy and call again."""
        try:
            return await self._call(call, via_shim, via_agent, pushed)
        except FaultError as error:
            if self._policy is None or error.fault not in POLICY_FAULTS:
                raise
            await self._set_policy(self._policy, error)
        return await self._call(call, via_shim, via_agent, pushed)

    async def _set_policy(self, policy: str, refusal: FaultError) -> None:
        call = StockCall("SetPolicyRequest", Family.IPV4)
        try:
            await self._call(
                call, lambda: self._shim.set_policy(policy), lambda agent: agent.set_policy(policy)
            )
        except FaultError as error:
            text = f"{refusal.text}; the policy cannot be replaced either: {error.text}"
            raise FaultError(refusal.fault, text, concerns_family=False) from None
        _log.info("agent policy of a guest replaced", sandbox=self._sandbox_id, reason=refusal.text)

    async def _call(
        self,
        call: StockCall,
        via_shim: Callable[[], Awaitable[T]],
        via_agent: Callable[[StockAgentClient], Awaitable[T]],
        pushed: str = "",
    ) -> T:
        shim_failure: Exception | None = None
        if self._has_shim_calls:
            try:
                result = await via_shim()
            except CallFailedError as failure:
                fault = _fault(call, failure, pushed)
                if fault.fault is not Fault.UNCLEAR:
                    raise fault from None
                shim_failure = fault
            except NoEndpointError as error:
                # A shim without /policy has the others; one without those has none of them.
                self._has_shim_calls = call.message == "SetPolicyRequest"
                shim_failure = error
            except NoAnswerError as error:
                if error.may_run:
                    raise  # the agent may be running it: it must not get the same call again
                shim_failure = error
            else:
                self.route = "shim"
                return result
        return await self._call_agent(call, via_agent, shim_failure, pushed)

    async def _call_agent(
        self,
        call: StockCall,
        via_agent: Callable[[StockAgentClient], Awaitable[T]],
        shim_failure: Exception | None,
        pushed: str,
    ) -> T:
        try:
            url = await self._agent_url()
            if not url:
                raise NoAnswerError("the shim has not reported the address of its agent")
            result = await via_agent(StockAgentClient(url, timeout_s=self._timeout_s))
        except CallFailedError as failure:
            raise _fault(call, failure, pushed) from None
        except NoAnswerError as error:
            if isinstance(shim_failure, FaultError):
                raise shim_failure from None
            text = (
                f"{shim_failure}; {error}"
                if shim_failure is not None and str(shim_failure) != str(error)
                else str(error)
            )
            raise NoAnswerError(text, may_run=error.may_run) from None
        self.route = "ttrpc"
        return result

    async def _agent_url(self) -> str:
        """The agent's address, which stays the same while its sandbox runs."""
        if not self._url:
            url = await self._shim.agent_url()
            try:
                StockAgentClient(url)
            except ValueError as error:
                if url:
                    raise NoAnswerError(str(error)) from None
            self._url = url
        return self._url


def _fault(call: StockCall, failure: CallFailedError, pushed: str) -> FaultError:
    fault = classify(failure)
    concerns_family = call.family is Family.IPV6 and fault in FAMILY_FAULTS
    return FaultError(fault, explain(fault, call, failure, pushed), concerns_family=concerns_family)
