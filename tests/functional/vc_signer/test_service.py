# SPDX-License-Identifier: Apache-2.0
"""Another implementation of gRPC calls the signer: grpcio, with messages of the protobuf library."""

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from tests import waiting
from tests.functional.vc_signer.signer_process import SignerProcess
from tests.signing_keys import AccountKey, files
from vc_signer.http2.connection import MAX_MESSAGE_BYTES
from vc_signer.server import MAX_PEERS

CLAIMS = base64.urlsafe_b64encode(json.dumps({"sub": "system:serviceaccount:default:robot"}).encode())


@pytest.fixture
def stub(api: Any, channel: grpc.Channel) -> Any:
    return api[1].ExternalJWTSignerStub(channel)


@pytest.fixture
def mint(api: Any, stub: Any) -> Callable[[], str]:
    """A whole token, as the API server assembles it."""
    claims = CLAIMS.rstrip(b"=").decode()

    def minted() -> str:
        answer = stub.Sign(api[0].SignJWTRequest(claims=claims), timeout=10)
        return f"{answer.header}.{claims}.{answer.signature}"

    return minted


def verify(token: str, key: AccountKey) -> None:
    """Raises `jwt.InvalidTokenError`."""
    assert jwt.get_unverified_header(token) == {"alg": "ES256", "kid": key.kid, "typ": "JWT"}
    claims = jwt.decode(token, key.private.public_key(), algorithms=["ES256"])
    assert claims == {"sub": "system:serviceaccount:default:robot"}


def test_tokens_are_valid(mint: Callable[[], str], key: AccountKey) -> None:
    """Often, as R and S of a signature have leading zeros in one of 128."""
    for _ in range(1000):
        verify(mint(), key)


def test_keys_and_limits_are_published(api: Any, stub: Any, key: AccountKey) -> None:
    before_s = time.time()
    answer = stub.FetchKeys(api[0].FetchKeysRequest(), timeout=10)
    (found,) = answer.keys
    assert (found.key_id, found.key, found.exclude_from_oidc_discovery) == (key.kid, key.der, False)
    assert serialization.load_der_public_key(found.key) == key.private.public_key()
    assert answer.refresh_hint_seconds == 5
    assert before_s - 60 < answer.data_timestamp.ToNanoseconds() / 1e9 <= time.time()
    again = stub.FetchKeys(api[0].FetchKeysRequest(), timeout=10)
    assert again == answer, "the same time too, or the API server writes its documents again"
    assert stub.Metadata(api[0].MetadataRequest(), timeout=10).max_token_expiration_seconds == 86_400


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ("", grpc.StatusCode.INVALID_ARGUMENT),
        ("e30=", grpc.StatusCode.INVALID_ARGUMENT),
        ("e30.e30", grpc.StatusCode.INVALID_ARGUMENT),
        ("x" * MAX_MESSAGE_BYTES, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_other_claims_are_refused(
    api: Any, stub: Any, mint: Callable[[], str], key: AccountKey, claims: str, code: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Sign(api[0].SignJWTRequest(claims=claims), timeout=10)
    assert caught.value.code() is code
    verify(mint(), key)


def test_older_api_servers_call_by_another_name(api: Any, channel: grpc.Channel) -> None:
    call: Any = channel.unary_unary("/v1alpha1.ExternalJWTSigner/Metadata")
    answer = api[0].MetadataResponse.FromString(call(b"", timeout=10))
    assert answer.max_token_expiration_seconds == 86_400


def test_an_unknown_method_is_unimplemented(channel: grpc.Channel) -> None:
    revoke: Any = channel.unary_unary("/v1.ExternalJWTSigner/Revoke")
    with pytest.raises(grpc.RpcError) as caught:
        revoke(b"", timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_new_key_signs_after_it_was_fetched(
    api: Any, stub: Any, mint: Callable[[], str], signer: SignerProcess, key: AccountKey
) -> None:
    """In the operator's order, and no token is signed by a key that was not fetched."""
    second = AccountKey.create()

    def fetched() -> set[str]:
        return {each.key_id for each in stub.FetchKeys(api[0].FetchKeysRequest(), timeout=10).keys}

    signer.keys.update(files(key, second))
    waiting.wait_until(lambda: fetched() == {key.kid, second.kid}, context=signer.text)
    verify(mint(), key)
    signer.keys.update(files(second, key))
    waiting.wait_until(lambda: signer.text().count("signing with another key") == 2, context=signer.text)
    verify(mint(), second)
    signer.keys.update(files(second))
    waiting.wait_until(lambda: fetched() == {second.kid}, context=signer.text)
    verify(mint(), second)


def test_a_key_that_was_not_fetched_does_not_sign(
    api: Any, stub: Any, mint: Callable[[], str], signer: SignerProcess, key: AccountKey
) -> None:
    second = AccountKey.create()
    signer.keys.update(files(second, key))
    waiting.wait_until(lambda: "was not served before" in signer.text(), context=signer.text)
    for _ in range(20):
        verify(mint(), key)
    stub.FetchKeys(api[0].FetchKeysRequest(), timeout=10)
    verify(mint(), second)


def test_broken_keys_leave_the_former_ones(
    api: Any, stub: Any, mint: Callable[[], str], signer: SignerProcess, key: AccountKey
) -> None:
    other = AccountKey.create()
    for broken, reason in (
        ({}, "signing.pem: missing"),
        (other.public, "signing.pem: missing"),
        (files(other) | {"signing.pem": b"no key"}, "signing.pem: no key in PEM"),
        (files(other) | {f"{key.kid}.pub": b"no key"}, f"{key.kid}.pub: no key in PEM"),
        (files(other) | {"a.pub": next(iter(key.public.values()))}, f"a.pub: the key's id is {key.kid}"),
        (files(other) | {"signing.pem": bytes(1 << 15)}, "signing.pem: larger than 16384 bytes"),
    ):
        signer.keys.update(broken)
        waiting.wait_until(lambda reason=reason: f"refused: {reason}" in signer.probe()[1])  # type: ignore[misc]
        assert signer.probe()[0] == 200
        assert [each.key_id for each in stub.FetchKeys(api[0].FetchKeysRequest(), timeout=10).keys] == [
            key.kid
        ]
        verify(mint(), key)
    assert signer.text().count("new keys refused, the former ones stay") == 5, "once for each reason"
    signer.keys.update(files(key))
    waiting.wait_until(lambda: signer.probe() == (200, "ok\n"), context=signer.text)


def test_a_start_without_keys_waits_for_them(
    api: Any, stub: Any, signer: SignerProcess, key: AccountKey
) -> None:
    assert signer.stop() == 0
    signer.keys.update({})
    signer.start_again()
    assert signer.probe("/livez") == (200, "ok\n"), "a restart would not help"
    assert signer.probe() == (503, "signing.pem: missing: mount the Secret that has it\n")
    with pytest.raises(grpc.RpcError) as caught:
        stub.FetchKeys(api[0].FetchKeysRequest(), timeout=10, wait_for_ready=True)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "signing.pem" in str(caught.value.details())
    signer.keys.update(files(key))
    waiting.wait_until(lambda: signer.probe() == (200, "ok\n"), context=signer.text)
    assert len(stub.FetchKeys(api[0].FetchKeysRequest(), timeout=10).keys) == 1


def test_many_calls_at_once(api: Any, stub: Any, key: AccountKey) -> None:
    """More than there may be streams: the client waits with the others."""
    claims = CLAIMS.rstrip(b"=").decode()
    request = api[0].SignJWTRequest(claims=claims)
    calls = [stub.Sign.future(request, timeout=20) for _ in range(300)]
    for each in calls:
        answer = each.result()
        verify(f"{answer.header}.{claims}.{answer.signature}", key)


def test_connections_are_limited(api: Any, signer: SignerProcess) -> None:
    """Those above the limit are closed at once, and the others go on."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    channels = [grpc.insecure_channel(f"unix:{signer.socket}", options) for _ in range(MAX_PEERS + 2)]
    stubs = [api[1].ExternalJWTSignerStub(each) for each in channels]
    try:
        for each in stubs[:MAX_PEERS]:
            each.Metadata(api[0].MetadataRequest(), timeout=10)
        with pytest.raises(grpc.RpcError) as caught:
            stubs[-1].Metadata(api[0].MetadataRequest(), timeout=10)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        stubs[0].Metadata(api[0].MetadataRequest(), timeout=10)
    finally:
        for each in channels:
            each.close()


def test_memory_is_what_the_control_plane_has_left(
    api: Any, stub: Any, mint: Callable[[], str], signer: SignerProcess, key: AccountKey
) -> None:
    """180 MB without it 171 (docs/decisions/0064-a-signer-of-seven-megabytes.md): 7.0 were measured."""
    for _ in range(500):
        mint()
        stub.FetchKeys(api[0].FetchKeysRequest(), timeout=10)
        signer.probe()
    for _ in range(3):
        second = AccountKey.create()
        signer.keys.update(files(key, second))
        waiting.wait_until(lambda second=second: second.kid in fetched_ids(api, stub))  # type: ignore[misc]
    assert signer.private_kb() < 8_500


def fetched_ids(api: Any, stub: Any) -> set[str]:
    return {each.key_id for each in stub.FetchKeys(api[0].FetchKeysRequest(), timeout=10).keys}
