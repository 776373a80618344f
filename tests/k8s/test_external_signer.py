# SPDX-License-Identifier: Apache-2.0
"""Two replicas of a real API server, each with a vc-signer: keys rotate, and no token dies before its key."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import pytest

from devkit.pki import Authority
from tests.k8s import build
from tests.k8s.build import Binaries
from tests.k8s.ring import network, traces
from tests.k8s.ring.api import TlsEndpoint
from tests.k8s.ring.controlplane import Apiserver, start_apiserver, start_etcd
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.signers import ACCOUNT, RingSigner, is_valid, published, token
from tests.signing_keys import AccountKey, files, kid_of

# Above the refresh (5 s), the wait after a failure (10 s) and the cache of tokens (10 s) together.
_SLOW_S = 60.0


@dataclass(frozen=True, slots=True)
class ApiserverReplica:
    apiserver: Apiserver
    signer: RingSigner
    is_older: bool

    @property
    def anonymous(self) -> TlsEndpoint:
        return replace(self.apiserver.api.endpoint, leaf=None)

    def mint(self) -> str:
        return token(self.apiserver.api)

    def takes(self, text: str) -> bool:
        return is_valid(self.anonymous, text)

    def serves(self, *keys: AccountKey) -> bool:
        """Whether it publishes these keys and no others. Of the older one, which publishes none with an
        external signer, whether it takes tokens of these keys."""
        if self.is_older:
            known = self.mint()
            return all(self.takes(each.signs_again(known)) for each in keys)
        return published(self.apiserver.api) == {each.kid for each in keys}


@dataclass(slots=True)
class SignedPlane:
    """Both replicas. `key` signs at the moment, and is the only one, between two tests."""

    replicas: tuple[ApiserverReplica, ApiserverReplica]
    key: AccountKey

    def takes(self, text: str) -> bool:
        return all(each.takes(text) for each in self.replicas)

    def update(self, signing: AccountKey, *verifying: AccountKey) -> None:
        """The Secret changes, and both mounts follow."""
        for each in self.replicas:
            each.signer.keys.update(files(signing, *verifying))

    def wait_published(self, *keys: AccountKey) -> float:
        """As the operator does before its next step."""
        begin_s = time.monotonic()
        for each in self.replicas:
            wait_for(f"{len(keys)} keys are published", partial(each.serves, *keys), timeout_s=_SLOW_S)
        return time.monotonic() - begin_s

    def processes(self) -> list[int]:
        return [
            process.pid for each in self.replicas for process in (each.apiserver.daemon, each.signer.process)
        ]


@pytest.fixture(scope="module", params=[False, True] if build.has_older() else [False])
def plane(k8s_binaries: Binaries, request: pytest.FixtureRequest) -> Iterator[SignedPlane]:
    """API servers of the newest minor version, and of the one before where it is built."""
    with ExitStack() as stack:
        directory, prefix = traces.open_directory(stack)
        control, other = (
            NetworkNamespace(f"{prefix}-cp", "10.71.0.1"),
            NetworkNamespace(f"{prefix}-x", "10.71.0.9"),
        )
        stack.callback(network.delete, [control.name, other.name])
        network.create_pair(control, other, more=["10.71.0.2"])
        stack.callback(start_etcd(control, k8s_binaries, directory).stop)
        key, authority = AccountKey.create(), Authority.create("tenant")
        replicas: list[ApiserverReplica] = []
        for name, address, port in (("one", "10.71.0.1", 6444), ("two", "10.71.0.2", 6445)):
            signer = RingSigner(directory / f"signer-{name}", control, files(key), port)
            stack.callback(signer.process.stop)
            apiserver = start_apiserver(
                name,
                control,
                address,
                k8s_binaries,
                directory,
                authority=authority,
                accounts_of=directory / "one" if replicas else None,
                signer_socket=signer.socket,
                is_older=request.param,
            )
            stack.callback(apiserver.daemon.stop)
            replicas.append(ApiserverReplica(apiserver, signer, request.param))
        for each in replicas:
            each.apiserver.wait_ready()
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        wait_for(
            "the namespace",
            lambda: (
                replicas[0].apiserver.api.create(ACCOUNT.rpartition("/")[0], account, may_exist=True)
                is not None
            ),
            timeout_s=_SLOW_S,
        )
        yield SignedPlane((replicas[0], replicas[1]), key)


def test_no_token_dies_before_its_key(plane: SignedPlane, figures: list[str]) -> None:
    """Add a key, wait until all replicas publish it, sign with it, drop the first; nothing restarts."""
    first, second, processes = plane.key, AccountKey.create(), plane.processes()
    before = [each.mint() for each in plane.replicas]
    plane.update(first, second)
    added_s = plane.wait_published(first, second)
    during = [each.mint() for each in plane.replicas]
    assert {kid_of(each) for each in (*before, *during)} == {first.kid}
    one, two = plane.replicas
    # One mount is ahead of the other, as they are when kubelets read a Secret.
    one.signer.keys.update(files(second, first))
    begin_s = time.monotonic()
    wait_for("the new key signs", lambda: kid_of(one.mint()) == second.kid, timeout_s=_SLOW_S)
    switched_s = time.monotonic() - begin_s
    mixed = [each.mint() for each in plane.replicas]
    assert [kid_of(each) for each in mixed] == [second.kid, first.kid]
    two.signer.keys.update(files(second, first))
    wait_for("the new key signs", lambda: kid_of(two.mint()) == second.kid, timeout_s=_SLOW_S)
    after = [each.mint() for each in plane.replicas]
    assert all(plane.takes(each) for each in (*before, *during, *mixed, *after))
    plane.update(second)
    dropped_s = plane.wait_published(second)
    begin_s = time.monotonic()
    wait_for("the first key's tokens end", lambda: not any(map(one.takes, before)), timeout_s=_SLOW_S)
    ended_s = time.monotonic() - begin_s
    assert plane.takes(after[0])
    assert plane.takes(after[1])
    assert plane.processes() == processes
    plane.key = second
    version = one.apiserver.api.get("/version")["gitVersion"]
    figures.append(
        f"{version}: service account keys: published {added_s:.1f} s after the mount, signing"
        f" {switched_s:.1f} s, dropped {dropped_s:.1f} s, its tokens refused {ended_s:.1f} s later"
    )


def test_a_key_that_comes_at_once_signs_when_it_is_served(plane: SignedPlane) -> None:
    """Against the order: one replica's mount signs with a key that nobody has seen. Its own API server takes
    each token from the first on."""
    one = plane.replicas[0]
    second = AccountKey.create()
    one.signer.keys.update(files(second, plane.key))
    end_s = time.monotonic() + _SLOW_S
    kids: list[str] = []
    while second.kid not in kids and time.monotonic() < end_s:
        minted = one.mint()
        assert one.takes(minted)
        kids.append(kid_of(minted))
    assert set(kids) == {plane.key.kid, second.kid}, "the old key signs until the new one is published"
    assert "was not served before" in one.signer.process.tail()
    plane.update(plane.key)
    plane.wait_published(plane.key)


def test_broken_keys_are_refused_whole(plane: SignedPlane) -> None:
    one = plane.replicas[0]
    broken = AccountKey.create()
    one.signer.keys.update({**files(plane.key, broken), f"{broken.kid}.pub": b"-----BEGIN PUBLIC KEY-----\n"})
    wait_for("it is refused", lambda: "refused" in one.signer.probe()[1], timeout_s=_SLOW_S)
    status, text = one.signer.probe()
    assert status == 200, "the former keys sign on"
    assert f"new keys refused: {broken.kid}.pub: no key in PEM" in text
    assert one.takes(one.mint())
    assert one.serves(plane.key)
    one.signer.keys.update(files(plane.key))
    wait_for("the fault is gone", lambda: one.signer.probe() == (200, "ok\n"), timeout_s=_SLOW_S)


def test_known_tokens_outlive_a_killed_signer(plane: SignedPlane, figures: list[str]) -> None:
    """The API server stays ready, so the signer has probes of its own."""
    one = plane.replicas[0]
    known = one.mint()
    one.signer.process.stop(signal.SIGKILL)
    assert one.signer.probe()[0] == 0
    assert one.apiserver.api.is_ready(), "a dead signer is no reason for it"
    assert one.takes(known)
    one.signer.process.start_again()
    begin_s = time.monotonic()

    def mints() -> bool:
        try:
            return one.takes(one.mint())
        except (OSError, RingError):
            return False

    wait_for("it mints again", mints, timeout_s=_SLOW_S)
    took_s = time.monotonic() - begin_s
    assert one.signer.probe() == (200, "ok\n")
    assert one.takes(known)
    figures.append(f"a killed signer: tokens are minted {took_s:.1f} s after its start")


def test_long_tokens_are_shortened(plane: SignedPlane) -> None:
    """`--max-token-seconds` bounds how long a key must be served after it has signed."""
    asked = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "spec": {"expirationSeconds": 864_000},
    }
    answer = plane.replicas[0].apiserver.api.create(f"{ACCOUNT}/token", asked)
    assert answer["spec"]["expirationSeconds"] == 86_400
