# SPDX-License-Identifier: Apache-2.0
"""The two iptables calls of a stock guest, by whichever way answers.

The shim comes first: it is the interface meant for the node, and finds its agent by itself. Where it
is silent or unclear the same call goes to the agent: both replace the same tables by the same text,
so a call that is made twice does no harm, and the agent says exactly what is wrong.
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
    Call,
    CallFailedError,
    Fault,
    NoAnswerError,
    NoEndpointError,
    classify,
    explain,
)
from kata_bridge.channels.stock.shim import Shim
from ruleset.model import Family

# To know the version is no reason to let a pod wait.
_VERSION_TIMEOUT_S = 1.0

T = TypeVar("T")

_log = logs.get(__name__)


class FaultError(Exception):
    """A call failed, and it is known how."""

    def __init__(self, fault: Fault, text: str, *, concerns_family: bool) -> None:
        super().__init__(text)
        self.fault = fault
        self.text = text
        self.concerns_family = concerns_family

    def as_outcome(self) -> Exception:
        """What a channel raises for it. A fault of IPv6 alone is no reason to give a guest up."""
        if self.concerns_family or self.fault in (Fault.RULE, Fault.TOO_LARGE):
            return GuestRefused(self.text)
        if self.fault in (Fault.TRANSIENT, Fault.UNCLEAR):
            return Unreachable(self.text)
        return NotInjectable(self.text)


class StockCalls:
    """The calls into one guest. `route` is by which way the last one was answered: shim or ttrpc.

    Calls raise `FaultError` and `NoAnswerError`. `hold_s` is how long a push that was not answered
    may still happen: no other is begun before.
    """

    def __init__(
        self, sandbox_id: str, *, roots: Sequence[Path], timeout_s: float, hold_s: float, policy: str | None
    ) -> None:
        """Raises `ValueError` for what is no sandbox id."""
        self.route = ""
        self._shim = Shim(sandbox_id, roots=roots, timeout_s=timeout_s)
        self._sandbox_id = sandbox_id
        self._timeout_s = timeout_s
        self._hold_s = hold_s
        self._held_until_s = float("-inf")
        self._policy = policy
        self._url = ""
        self._has_shim_calls = True

    async def read(self, family: Family) -> str:
        """Return what the guest's iptables-save prints; empty also if that failed."""
        data = await self._permitted(
            Call("GetIPTablesRequest", family),
            lambda: self._shim.get_tables(family),
            lambda agent: agent.get_tables(family),
        )
        return data.decode("utf-8", "replace")

    async def push(self, family: Family, text: str) -> None:
        """Let the guest's iptables-restore replace every table that `text` names."""
        call = Call("SetIPTablesRequest", family)
        data = text.encode()
        now_s = asyncio.get_running_loop().time()
        if now_s < self._held_until_s:
            left_s = self._held_until_s - now_s
            raise NoAnswerError(f"a push was not answered and may still happen for {left_s:.0f} s")
        try:
            await self._permitted(
                call,
                lambda: self._shim.set_tables(family, data),
                lambda agent: agent.set_tables(family, data),
                text,
            )
        except NoAnswerError as error:
            if error.may_run:
                self._held_until_s = asyncio.get_running_loop().time() + self._hold_s
            raise

    def release(self) -> None:
        """The push that was not answered has happened: it was read back."""
        self._held_until_s = float("-inf")

    async def version(self) -> str:
        """Return the agent's version, empty if it cannot be had soon."""
        try:
            url = await self._agent_url()
            return await StockAgentClient(url, timeout_s=_VERSION_TIMEOUT_S).version() if url else ""
        except (NoAnswerError, CallFailedError):
            return ""

    async def _permitted(
        self,
        call: Call,
        by_shim: Callable[[], Awaitable[T]],
        by_agent: Callable[[StockAgentClient], Awaitable[T]],
        pushed: str = "",
    ) -> T:
        """Make a call; if the policy refuses it and may be replaced, replace it and call again."""
        try:
            return await self._routed(call, by_shim, by_agent, pushed)
        except FaultError as error:
            if self._policy is None or error.fault not in POLICY_FAULTS:
                raise
            await self._set_policy(self._policy, error)
        return await self._routed(call, by_shim, by_agent, pushed)

    async def _set_policy(self, policy: str, refusal: FaultError) -> None:
        call = Call("SetPolicyRequest", Family.IPV4)
        try:
            await self._routed(
                call, lambda: self._shim.set_policy(policy), lambda agent: agent.set_policy(policy)
            )
        except FaultError as error:
            text = f"{refusal.text}; it cannot be replaced either: {error.text}"
            raise FaultError(refusal.fault, text, concerns_family=False) from None
        _log.info("set the policy of a guest's agent", sandbox=self._sandbox_id, because=refusal.text)

    async def _routed(
        self,
        call: Call,
        by_shim: Callable[[], Awaitable[T]],
        by_agent: Callable[[StockAgentClient], Awaitable[T]],
        pushed: str = "",
    ) -> T:
        silence: Exception | None = None
        if self._has_shim_calls:
            try:
                result = await by_shim()
            except CallFailedError as failure:
                fault = _fault(call, failure, pushed)
                if fault.fault is not Fault.UNCLEAR:
                    raise fault from None
                silence = fault
            except NoEndpointError as error:
                # A shim without /policy has the others; one without those has none of them.
                self._has_shim_calls = call.message == "SetPolicyRequest"
                silence = error
            except NoAnswerError as error:
                if error.may_run:
                    raise  # the agent may be at it: it must not be given the same again
                silence = error
            else:
                self.route = "shim"
                return result
        return await self._by_agent(call, by_agent, silence, pushed)

    async def _by_agent(
        self,
        call: Call,
        by_agent: Callable[[StockAgentClient], Awaitable[T]],
        silence: Exception | None,
        pushed: str,
    ) -> T:
        try:
            url = await self._agent_url()
            if not url:
                raise NoAnswerError("the shim does not know where its agent listens")
            result = await by_agent(StockAgentClient(url, timeout_s=self._timeout_s))
        except CallFailedError as failure:
            raise _fault(call, failure, pushed) from None
        except NoAnswerError as error:
            if isinstance(silence, FaultError):
                raise silence from None
            text = f"{silence}; {error}" if silence is not None and str(silence) != str(error) else str(error)
            raise NoAnswerError(text, may_run=error.may_run) from None
        self.route = "ttrpc"
        return result

    async def _agent_url(self) -> str:
        """Where the agent listens. It never moves while its sandbox lives."""
        if not self._url:
            url = await self._shim.agent_url()
            try:
                StockAgentClient(url)
            except ValueError as error:
                if url:
                    raise NoAnswerError(str(error)) from None
            self._url = url
        return self._url


def _fault(call: Call, failure: CallFailedError, pushed: str) -> FaultError:
    fault = classify(failure)
    concerns_family = call.family is Family.IPV6 and fault in FAMILY_FAULTS
    return FaultError(fault, explain(fault, call, failure, pushed), concerns_family=concerns_family)
