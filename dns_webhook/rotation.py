# SPDX-License-Identifier: Apache-2.0
"""Keeps the registration and the certificate in step, turn by turn."""

import asyncio
import datetime as dt
from collections.abc import Callable

from daemonkit import logs
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from dns_webhook import registration
from dns_webhook.credentials import Credentials, CredentialsError
from dns_webhook.registration import RegistrationError

# How often dates and the registration are looked at. An API server has heard of an authority that
# was published one turn before, and the next turn may sign with it.
TURN_S = 60.0
RETRY_S = 2.0

_log = logs.get(__name__)


def utc_now() -> dt.datetime:
    """The time of day, by which others judge our certificates."""
    return dt.datetime.now(dt.UTC)


class Rotation:
    """`show` is called when the certificate to show is another one; `now` tells the time, with its zone."""

    def __init__(
        self,
        api: Requester,
        credentials: Credentials,
        show: Callable[[], None],
        now: Callable[[], dt.datetime],
        *,
        turn_s: float = TURN_S,
    ) -> None:
        self._api = api
        self._credentials = credentials
        self._show = show
        self._now = now
        self._turn_s = turn_s
        self._published: tuple[bytes, ...] = ()
        self.problem = "not published yet"
        self.renewal_problem = ""

    @property
    def is_published(self) -> bool:
        """Whether our authorities have been in the registration, whatever failed since."""
        return bool(self._published)

    def begin(self) -> None:
        """Make what is needed to listen. Raises CredentialsError."""
        self._credentials.turn(self._now(), self._published)

    async def run(self) -> None:
        """Publish our authorities, and renew what is due, for ever."""
        while True:
            is_published = await self._publish()
            await asyncio.sleep(self._turn_s if is_published else RETRY_S)
            self._renew()

    async def _publish(self) -> bool:
        ours = self._credentials.bundle
        stale = [each for each in self._published if each not in ours]
        try:
            if await registration.publish(self._api, ours, stale):
                _log.info("authorities published", count=len(ours))
        except (ApiError, UnreachableError, RegistrationError) as error:
            if str(error) != self.problem:
                _log.warning("cannot publish the authorities", reason=str(error))
            self.problem = str(error)
            return False
        self._published, self.problem = ours, ""
        return True

    def _renew(self) -> None:
        try:
            if self._credentials.turn(self._now(), self._published):
                self._show()
                _log.info("certificate renewed")
        except CredentialsError as error:
            # The old one is good for a month yet: once is enough, not every minute of it. `/readyz` shows it.
            if str(error) != self.renewal_problem:
                _log.error("cannot renew the certificate", reason=str(error))
            self.renewal_problem = str(error)
        else:
            self.renewal_problem = ""
