# SPDX-License-Identifier: Apache-2.0
"""When the webhook's authority and certificate are renewed, and in which order."""

import datetime as dt
from pathlib import Path

import pytest

from dns_webhook.credentials import (
    AUTHORITY_LIFE,
    AUTHORITY_RENEWAL,
    LEAF_LIFE,
    LEAF_RENEWAL,
    VALID_FROM,
    Credentials,
    CredentialsError,
    KeyPair,
)

AHEAD = dt.timedelta(days=365)
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NAMES = ("dns.vcnode.svc", "10.0.0.1")


def shown(credentials: Credentials) -> KeyPair:
    assert credentials.leaf is not None
    return credentials.leaf


def signer(credentials: Credentials) -> int:
    """The number of the authority that signed the server's certificate."""
    for number, each in enumerate(credentials.authorities):
        if each.certificate.subject == shown(credentials).certificate.issuer:
            shown(credentials).certificate.verify_directly_issued_by(each.certificate)
            return number
    raise AssertionError("nobody's")


def test_a_certificate_is_renewed_a_month_before_its_end(tmp_path: Path) -> None:
    first = Credentials(tmp_path / "state", NAMES)
    assert first.renew_due(START, ())
    assert not first.renew_due(START, first.bundle)
    again = Credentials(tmp_path / "state", NAMES)
    assert not again.renew_due(START + LEAF_LIFE - LEAF_RENEWAL, again.bundle)
    assert again.bundle == first.bundle
    assert shown(again).certificate == shown(first).certificate
    assert again.renew_due(START + LEAF_LIFE - LEAF_RENEWAL + dt.timedelta(seconds=1), again.bundle)
    assert len(again.authorities) == 1
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert again.certificate_file.stat().st_mode & 0o777 == 0o600


def test_changed_names_renew_the_certificate(tmp_path: Path) -> None:
    Credentials(tmp_path, NAMES).renew_due(START, ())
    assert Credentials(tmp_path, ("other.svc",)).renew_due(START, ())


@pytest.mark.parametrize("name", ["fd00:0::1", "FD00::1", "fe80::1%eth0", "::ffff:10.0.0.1", "10.0.0.1"])
def test_any_form_of_an_address_keeps_the_certificate(tmp_path: Path, name: str) -> None:
    credentials = Credentials(tmp_path, (name, "dns.svc"))
    assert credentials.renew_due(START, ())
    assert not credentials.renew_due(START, credentials.bundle)
    assert not Credentials(tmp_path, ("dns.svc", name)).renew_due(START, credentials.bundle)


def is_good(credentials: Credentials, now: dt.datetime) -> bool:
    """Whether a client with a correct clock accepts the certificate and its authority."""
    chain = (shown(credentials), credentials.authorities[signer(credentials)])
    return all(
        each.certificate.not_valid_before_utc <= now <= each.certificate.not_valid_after_utc for each in chain
    )


def test_a_clock_ahead_for_one_check_leaves_no_trace(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path, NAMES)
    credentials.renew_due(START, ())
    trusted = credentials.bundle
    assert credentials.renew_due(START + AHEAD, trusted)
    assert is_good(credentials, START)
    assert not credentials.renew_due(START + dt.timedelta(minutes=2), trusted)
    assert (is_good(credentials, START), credentials.bundle) == (True, trusted)


def test_a_clock_ahead_at_the_first_start_leaves_no_trace(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path, NAMES)
    credentials.renew_due(START + AHEAD, ())
    assert is_good(credentials, START)
    assert not credentials.renew_due(START, credentials.bundle)
    assert len(credentials.authorities) == 1


def test_an_unset_clock_makes_one_certificate_until_set(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path, NAMES)
    never = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert credentials.renew_due(never, ())
    assert not credentials.renew_due(never, credentials.bundle)
    assert credentials.renew_due(START, credentials.bundle)
    assert is_good(credentials, START)


def test_older_releases_future_certificates_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Credentials(tmp_path, NAMES)
    monkeypatch.setattr("dns_webhook.credentials.VALID_FROM", START + AHEAD)
    older.renew_due(START + AHEAD, ())
    monkeypatch.undo()
    credentials = Credentials(tmp_path, NAMES)
    assert not is_good(credentials, START)
    assert credentials.renew_due(START, older.bundle)
    # Clients still trust the old one, as our own clock may be behind.
    assert credentials.bundle[0] == older.bundle[0]
    assert (len(credentials.bundle), signer(credentials)) == (2, 0)
    assert credentials.renew_due(START, credentials.bundle)
    assert (is_good(credentials, START), signer(credentials)) == (True, 1)
    assert not credentials.renew_due(START, credentials.bundle)
    assert VALID_FROM < START


def test_a_new_authority_signs_only_after_it_was_published(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path, NAMES)
    credentials.renew_due(START, ())
    old = credentials.bundle
    late = START + AUTHORITY_LIFE - AUTHORITY_RENEWAL + dt.timedelta(days=1)
    assert credentials.renew_due(late, old)
    assert len(credentials.authorities) == 2
    assert signer(credentials) == 0
    assert not credentials.renew_due(late, old)
    assert credentials.renew_due(late, credentials.bundle)
    assert signer(credentials) == 1
    credentials.renew_due(START + AUTHORITY_LIFE + dt.timedelta(days=1), credentials.bundle)
    (left,) = credentials.authorities
    assert left.certificate_pem not in old


@pytest.mark.parametrize("text", ["-----BEGIN CERTIFICATE-----\nrubbish\n-----END CERTIFICATE-----\n"])
def test_a_damaged_state_is_an_error_not_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "authorities.pem").write_text(text)
    with pytest.raises(CredentialsError, match=r"authorities\.pem"):
        Credentials(tmp_path, NAMES)
