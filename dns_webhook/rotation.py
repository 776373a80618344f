# SPDX-License-Identifier: Apache-2.0
"""Publishes the authorities, and renews them and the certificate in time."""

import asyncio
import datetime as dt
from collections.abc import Callable

from daemonkit import logs
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from dns_webhook import registration
from dns_webhook.credentials import Credentials, CredentialsError
from dns_webhook.registration import RegistrationError

# How often dates and the registration are checked. API servers know an authority that was published
# at the last check, so that it may sign now.
CHECK_INTERVAL_S = 60.0
RETRY_S = 2.0

_log = logs.get(__name__)


def utc_now() -> dt.datetime:
    """The wall clock, by which API servers judge certificates."""
    return dt.datetime.now(dt.UTC)


class Rotation:
    """`show` is called after the certificate was renewed; `now` is the time with its zone."""

    def __init__(
        self,
        api: Requester,
        credentials: Credentials,
        show: Callable[[], None],
        now: Callable[[], dt.datetime],
        *,
        check_interval_s: float = CHECK_INTERVAL_S,
    ) -> None:
        self._api = api
        self._credentials = credentials
        self._show = show
        self._now = now
        self._check_interval_s = check_interval_s
        self._published: tuple[bytes, ...] = ()
        self.problem = "not published yet"
        self.renewal_problem = ""

    @property
    def is_published(self) -> bool:
        """Whether our authorities were published once; later failures do not matter."""
        return bool(self._published)

    def begin(self) -> None:
        """Create the authority and certificate that listening needs. Raises CredentialsError."""
        self._credentials.renew_due(self._now(), self._published)

    async def run(self) -> None:
        """Publish and renew, until cancelled."""
        while True:
            is_published = await self._publish()
            await asyncio.sleep(self._check_interval_s if is_published else RETRY_S)
            self._renew()

    async def _publish(self) -> bool:
        ours = self._credentials.bundle
        stale = [each for each in self._published if each not in ours]
        try:
            if await registration.publish(self._api, ours, stale):
                _log.info("authorities published", count=len(ours))
        except (ApiError, UnreachableError, RegistrationError) as error:
            if str(error) != self.problem:
                _log.warning(
                    "cannot publish the authorities in the registration, retrying", reason=str(error)
                )
            self.problem = str(error)
            return False
        self._published, self.problem = ours, ""
        return True

    def _renew(self) -> None:
        try:
            if self._credentials.renew_due(self._now(), self._published):
                self._show()
                _log.info("certificate renewed")
        except CredentialsError as error:
            # The old certificate is valid for another month: log once, not every minute. `/readyz` shows it.
            if str(error) != self.renewal_problem:
                _log.error("cannot renew the certificate; repair the state directory", reason=str(error))
            self.renewal_problem = str(error)
        else:
            self.renewal_problem = ""
