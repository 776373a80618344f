# SPDX-License-Identifier: Apache-2.0
"""Registration and certificate: API servers can trust the server's certificate at any moment."""

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from daemonkit.tasks import Tasks
from dns_webhook.credentials import (
    AUTHORITY_LIFE,
    AUTHORITY_RENEWAL,
    LEAF_LIFE,
    Credentials,
    CredentialsError,
)
from dns_webhook.rotation import CHECK_INTERVAL_S, RETRY_S, Rotation
from tests.unit.dns_webhook.registration_api import Api

pytestmark = pytest.mark.asyncio

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class RotationFixture:
    def __init__(self, directory: Path) -> None:
        self.api = Api()
        self.credentials = Credentials(directory, ("dns.vcnode.svc",))
        self.later = dt.timedelta(0)
        self.shown = 0
        self.rotation = Rotation(self.api, self.credentials, self._show, self._now)
        self.rotation.begin()

    def _show(self) -> None:
        self.shown += 1
        assert self.is_trusted

    def _now(self) -> dt.datetime:
        return START + self.later + dt.timedelta(seconds=asyncio.get_running_loop().time())

    @property
    def is_trusted(self) -> bool:
        """Whether the server's certificate is signed by an authority of the registration."""
        leaf = self.credentials.leaf
        assert leaf is not None
        issuers = [
            each.certificate_pem
            for each in self.credentials.authorities
            if each.certificate.subject == leaf.certificate.issuer
        ]
        return issuers[0] in self.api.bundle

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = Tasks("test")
        tasks.spawn(self.rotation.run(), "rotation")
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            yield
        finally:
            await tasks.close(1.0)


async def test_authorities_are_published_at_start_and_checked(tmp_path: Path) -> None:
    here = RotationFixture(tmp_path)
    assert (here.rotation.is_published, here.rotation.problem) == (False, "not published yet")
    async with here.running():
        assert (here.rotation.is_published, here.rotation.problem) == (True, "")
        assert here.is_trusted
        # An emptied field gets our authorities at the next check.
        here.api.value["webhooks"][0]["clientConfig"]["caBundle"] = ""
        await asyncio.sleep(CHECK_INTERVAL_S + 1)
        assert here.is_trusted
        assert (here.shown, here.api.patches) == (0, 2)


async def test_an_unreachable_registration_is_retried(
    tmp_path: Path,
) -> None:
    here = RotationFixture(tmp_path)
    here.api.is_away = True
    async with here.running():
        await asyncio.sleep(10 * RETRY_S)
        assert (here.rotation.is_published, here.rotation.problem) == (False, "no API server there")
        assert here.api.request_count >= 10
        here.api.is_away = False
        await asyncio.sleep(RETRY_S + 1)
        assert (here.rotation.is_published, here.rotation.problem) == (True, "")
        here.api.is_away = True
        await asyncio.sleep(CHECK_INTERVAL_S + 1)
        assert (here.rotation.is_published, here.rotation.problem) == (True, "no API server there")


async def test_a_certificate_is_renewed_while_running(tmp_path: Path) -> None:
    here = RotationFixture(tmp_path)
    async with here.running():
        here.later = LEAF_LIFE
        await asyncio.sleep(CHECK_INTERVAL_S + 1)
        assert (here.shown, len(here.credentials.authorities)) == (1, 1)
        await asyncio.sleep(5 * CHECK_INTERVAL_S)
        assert here.shown == 1


async def test_a_failed_renewal_is_logged_once_for_each_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = RotationFixture(tmp_path)
    reason = "the disk is full"

    def refuse(*_: object) -> bool:
        raise CredentialsError(reason)

    async with here.running():
        with monkeypatch.context() as patched:
            patched.setattr(here.credentials, "renew_due", refuse)
            await asyncio.sleep(5 * CHECK_INTERVAL_S)
            reason = "the disk is read-only"
            await asyncio.sleep(5 * CHECK_INTERVAL_S)
            assert here.rotation.renewal_problem == reason
        await asyncio.sleep(2 * CHECK_INTERVAL_S)
        assert here.rotation.renewal_problem == ""
        with monkeypatch.context() as patched:
            patched.setattr(here.credentials, "renew_due", refuse)
            await asyncio.sleep(5 * CHECK_INTERVAL_S)
    logged = capsys.readouterr().err
    assert logged.count("cannot renew the certificate") == 3
    assert (logged.count("the disk is full"), logged.count("the disk is read-only")) == (1, 2)


async def test_a_clock_ahead_for_one_check_removes_no_trust(tmp_path: Path) -> None:
    here = RotationFixture(tmp_path)
    async with here.running():
        before = here.api.bundle
        here.later = LEAF_LIFE
        await asyncio.sleep(CHECK_INTERVAL_S + 1)
        assert here.shown == 1
        here.later = dt.timedelta(0)
        await asyncio.sleep(2 * CHECK_INTERVAL_S)
        leaf = here.credentials.leaf
        assert leaf is not None
        assert leaf.certificate.not_valid_before_utc <= START
        assert (here.shown, here.is_trusted, here.api.bundle) == (1, True, before)


async def test_a_new_authority_is_published_before_it_signs(tmp_path: Path) -> None:
    here = RotationFixture(tmp_path)
    async with here.running():
        # `_show` verifies each certificate; the old authority stays in the registration.
        here.later = AUTHORITY_LIFE - AUTHORITY_RENEWAL + dt.timedelta(days=1)
        await asyncio.sleep(5 * CHECK_INTERVAL_S)
        assert here.shown == 2  # the certificate was due, and then the new authority signs
        assert here.api.bundle == list(here.credentials.bundle)
        assert len(here.credentials.bundle) == 2
        leaf, (_, new) = here.credentials.leaf, here.credentials.authorities
        assert leaf is not None
        leaf.certificate.verify_directly_issued_by(new.certificate)
        # The expired authority is removed from the registration.
        here.later = AUTHORITY_LIFE + dt.timedelta(days=1)
        await asyncio.sleep(5 * CHECK_INTERVAL_S)
        assert here.api.bundle == [new.certificate_pem]


async def test_an_unpublished_authority_never_signs(tmp_path: Path) -> None:
    here = RotationFixture(tmp_path)
    async with here.running():
        here.api.is_away = True
        here.later = AUTHORITY_LIFE - AUTHORITY_RENEWAL + dt.timedelta(days=1)
        await asyncio.sleep(10 * CHECK_INTERVAL_S)
        assert here.is_trusted
        assert len(here.credentials.authorities) == 2


async def test_a_failed_write_keeps_the_old_certificate(tmp_path: Path) -> None:
    here = RotationFixture(tmp_path / "state")
    async with here.running():
        before = here.credentials.leaf
        (tmp_path / "state").rename(tmp_path / "elsewhere")
        here.later = LEAF_LIFE - dt.timedelta(days=1)
        await asyncio.sleep(CHECK_INTERVAL_S + 1)
        assert here.shown == 0
        assert before is not None
        (tmp_path / "elsewhere").rename(tmp_path / "state")
        await asyncio.sleep(CHECK_INTERVAL_S + 1)
        assert here.shown == 1
