# SPDX-License-Identifier: Apache-2.0
"""Keeps the agent attached to its node, one stream after the other.

The main thread does all the work, message by message, so nothing happens to the packet filter
concurrently.
"""

import random
import time
from pathlib import Path

from daemonkit import logs
from daemonkit.protobuf import BadMessage, decode, encode
from daemonkit.version import VERSION
from guest_agent.api.messages import ATTACH, AgentHello, AgentMessage, NodeRequest
from guest_agent.arguments import sandbox_of
from guest_agent.connection import ConnectionLostError, NodeConnection, dial
from guest_agent.core.packet_filter import FilterUnavailableError, PacketFilter
from guest_agent.reconciler import CheckLevel, RulesetReconciler
from guest_agent.request_handler import RequestHandler

# A pod waits for its first packet until we have attached.
_BACKOFF_FIRST_S, _BACKOFF_MAX_S, _BACKOFF_FACTOR = 0.1, 10.0, 1.6
# A stream that lasted this long resets the backoff.
_STABLE_S = 30.0
# A quick check is some microseconds, a full one some hundred: see `PacketFilter`.
_CHECK_INTERVAL_S, _CHECKS_PER_FULL_CHECK = 2.0, 5

_log = logs.get(__name__)


class AgentSession:
    """Attaches to the node and handles its requests. `run` never returns."""

    def __init__(
        self,
        target: str,
        credentials: Path,
        reconciler: RulesetReconciler,
        packet_filter: PacketFilter,
        handler: RequestHandler,
    ) -> None:
        """`target` is as `connection.dial` takes it."""
        self._target = target
        self._credentials = credentials
        self._reconciler = reconciler
        self._filter = packet_filter
        self._handler = handler
        self._checks = 0
        self._next_check_s = 0.0
        self._check_error = ""

    def run(self) -> None:
        """Attach again and again, with backoff."""
        backoff_s = _BACKOFF_FIRST_S
        logged = ""
        while True:
            started_s = time.monotonic()
            message = self._attach()
            if time.monotonic() - started_s > _STABLE_S:
                backoff_s = _BACKOFF_FIRST_S
            if message != logged:
                _log.info("not attached to the node", reason=message, node=self._target)
                logged = message
            # Half of it random: after a restart of the node's daemon its agents return one by one.
            self._wait_detached(time.monotonic() + backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            backoff_s = min(backoff_s * _BACKOFF_FACTOR, _BACKOFF_MAX_S)

    def _attach(self) -> str:
        """Run one stream; return why it ended."""
        try:
            sandbox = sandbox_of((self._credentials / "tls.crt").read_bytes())
            connection = dial(self._target, self._credentials, ATTACH.path)
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        except ConnectionLostError as error:
            return str(error)
        try:
            connection.send(encode(self._hello(sandbox)))
            return self._serve(connection)
        except ConnectionLostError as error:
            return str(error)
        finally:
            connection.close()

    def _hello(self, sandbox: str) -> AgentMessage:
        hello = AgentHello(
            sandbox=sandbox,
            version=VERSION,
            boot_id=_boot_id(),
            capabilities=self._handler.capabilities(self._filter),
            state=self._handler.state(),
        )
        return AgentMessage(hello=hello)

    def _serve(self, connection: NodeConnection) -> str:
        """Handle requests, and check for drift between them. Raises `ConnectionLostError`."""
        while True:
            message = connection.receive(self._next_check_s)
            if message is None:
                report = self._check_drift()
                if report is not None:
                    connection.send(encode(report))
                continue
            try:
                request = decode(NodeRequest, message)
            except BadMessage as error:
                return f"the node sent an invalid message: {error}"
            response = self._handler.handle(request)
            connection.send(encode(response))
            if response.result is not None and response.result.message:
                _log.info("request handled", code=response.result.code.name, message=response.result.message)

    def _wait_detached(self, until_s: float) -> None:
        """Wait without a stream. The next hello reports drift that is found meanwhile."""
        while (left_s := until_s - time.monotonic()) > 0:
            pause_s = min(left_s, max(0.0, self._next_check_s - time.monotonic()))
            time.sleep(pause_s)  # no event is due before the next check or dial; a signal ends it
            if time.monotonic() >= self._next_check_s:
                self._check_drift()

    def _check_drift(self) -> AgentMessage | None:
        """Check for drift; return the report to send."""
        interval_s = _CHECK_INTERVAL_S * random.uniform(0.75, 1.25)  # noqa: S311 - no secret
        self._next_check_s = time.monotonic() + interval_s
        self._checks += 1
        is_full = self._checks % _CHECKS_PER_FULL_CHECK == 0
        try:
            self._reconciler.check_drift(CheckLevel.VERIFY if is_full else CheckLevel.QUICK)
            check_error = ""
        except FilterUnavailableError as error:
            check_error = str(error)
        if check_error != self._check_error:
            self._check_error = check_error
            _log.warning(
                "cannot check for drift" if check_error else "can check for drift again", reason=check_error
            )
        report = self._handler.take_report()
        if report is not None:
            has_drifted = report.state is not None and report.state.has_drifted
            _log.warning("installed rules drifted" if has_drifted else "installed rules match again")
        return report


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
