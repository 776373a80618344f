# SPDX-License-Identifier: Apache-2.0
"""The agent's stream to its node: one after the other, for ever.

The main thread does all the work, message by message, so that no two things happen to the packet
filter at once.
"""

import random
import time
from pathlib import Path

from daemonkit import logs
from daemonkit.protobuf import BadMessage, decode, encode
from guest_agent.api.messages import ATTACH, AgentMessage, Hello, NodeRequest
from guest_agent.connection import Lost, Wire, dial
from guest_agent.core.arguments import sandbox_of
from guest_agent.core.packet_filter import Broken, PacketFilter
from guest_agent.reconciler import Keeper
from guest_agent.request_handler import VERSION, Answers

# A guest that just booted waits for its credentials: its pod's first packet waits for us.
_WAIT_FIRST_S, _WAIT_MAX_S = 0.1, 10.0
# A stream that lasted this long was a good one: the next failure starts the patience anew.
_GOOD_S = 30.0
# A glance is some microseconds, a whole look some hundred: see PacketFilter.
_GLANCE_S, _GLANCES_A_LOOK = 2.0, 5

_log = logs.get(__name__)


class Link:
    """Attaches to the node and serves it. `run` never returns."""

    def __init__(
        self, target: str, credentials: Path, keeper: Keeper, packet_filter: PacketFilter, answers: Answers
    ) -> None:
        """`target` is what is dialled: `host:port` or `unix:PATH`."""
        self._target = target
        self._credentials = credentials
        self._keeper = keeper
        self._filter = packet_filter
        self._answers = answers
        self._glances = 0
        self._next_glance_s = 0.0
        self._trouble = ""

    def run(self) -> None:
        """Attach again and again, with more patience each time it fails at once."""
        wait_s = _WAIT_FIRST_S
        said = ""
        while True:
            began_s = time.monotonic()
            why = self._attach()
            if time.monotonic() - began_s > _GOOD_S:
                wait_s = _WAIT_FIRST_S
            if why != said:
                _log.info("not attached", reason=why, node=self._target)
                said = why
            # Half of it by chance: the agents of a node come back one by one after its restart.
            self._watch(time.monotonic() + wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            wait_s = min(wait_s * 1.6, _WAIT_MAX_S)

    def _attach(self) -> str:
        """One stream from connect to end; return why it ended."""
        try:
            sandbox = sandbox_of((self._credentials / "tls.crt").read_bytes())
            wire = dial(self._target, self._credentials, ATTACH.path)
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        except Lost as error:
            return str(error)
        try:
            wire.say(encode(self._hello(sandbox)))
            return self._converse(wire)
        except Lost as error:
            return str(error)
        finally:
            wire.close()

    def _hello(self, sandbox: str) -> AgentMessage:
        hello = Hello(
            sandbox=sandbox,
            version=VERSION,
            boot_id=_boot_id(),
            capabilities=self._answers.capabilities(self._filter.places),
            state=self._answers.state(),
        )
        return AgentMessage(hello=hello)

    def _converse(self, wire: Wire) -> str:
        """Answer what comes in; between two messages, look whether somebody changed our rules.

        Raises `Lost`.
        """
        while True:
            message = wire.receive(self._next_glance_s)
            if message is None:
                report = self._look()
                if report is not None:
                    wire.say(encode(report))
                continue
            try:
                question = decode(NodeRequest, message)
            except BadMessage as error:
                return f"the node sent what is no message: {error}"
            answer = self._answers.answer(question)
            wire.say(encode(answer))
            if answer.result is not None and answer.result.message:
                _log.info("answered", code=answer.result.code.name, message=answer.result.message)

    def _watch(self, until_s: float) -> None:
        """Wait without a stream, and look for drift meanwhile: the next hello reports it."""
        while (left_s := until_s - time.monotonic()) > 0:
            pause_s = min(left_s, max(0.0, self._next_glance_s - time.monotonic()))
            time.sleep(pause_s)  # no event is due before the next look or dial; a signal ends it
            if time.monotonic() >= self._next_glance_s:
                self._look()

    def _look(self) -> AgentMessage | None:
        """Look for drift, and return what there is to report."""
        self._next_glance_s = time.monotonic() + _GLANCE_S * random.uniform(0.75, 1.25)  # noqa: S311 - no secret
        self._glances += 1
        try:
            if self._glances % _GLANCES_A_LOOK:
                self._keeper.look()
            else:
                self._keeper.check(is_thorough=True)
            trouble = ""
        except Broken as error:
            trouble = str(error)
        if trouble != self._trouble:
            self._trouble = trouble
            _log.warning("cannot look for drift" if trouble else "can look for drift again", reason=trouble)
        report = self._answers.to_report()
        if report is not None:
            drifted = report.state is not None and report.state.has_drifted
            _log.warning("the rules are not ours any more" if drifted else "the rules are ours again")
        return report


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
