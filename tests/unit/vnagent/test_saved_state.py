# SPDX-License-Identifier: Apache-2.0
"""The last good state is restored as it was, with its age, and never delays the daemon."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from daemonkit.files import atomic
from daemonkit.files.saved_state import MAX_AGE_S
from daemonkit.metrics import Counter
from daemonkit.metrics import Registry as Metrics
from devkit.pki import Authority
from tenancy.ownership import Owned, OwnerIndex
from tenancy.registry import Registry, SpiffeTrust, merge
from tenancy.removals import Distrust
from tenancy.tenant import Role, Tenant
from tests.unit.fake_clock import FakeClock
from vnagent.saved_state import CONFIRM_S, PODS_FILE, TENANTS_FILE, SavedState
from vnagent.tenants.client_lists import ClientLists

pytestmark = pytest.mark.asyncio

CA = Authority.create("ca")
A = Tenant("ten-a", (CA.der,), {"01" * 32: Role.APISERVER}, "a.local")
REGISTRY, _ = merge(Registry(), {"a.yaml": A})
SHOP = Owned("ten-a", "web", "shop", "t-1", "ten-a-web", "shop", "s-1", frozenset({"app", "setup"}))
CART = Owned("ten-a", "web", "cart", "t-2", "ten-a-web", "cart", "s-2", frozenset(), "too large: x")
INDEX = OwnerIndex([SHOP, CART])


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def make(tmp_path: Path, clock: FakeClock) -> Callable[[], SavedState]:
    def new() -> SavedState:
        state = SavedState(tmp_path / "state", errors(), clock)
        state.prepare()
        return state

    return new


def errors() -> Counter:
    return Metrics().counter("vcnode_vnagent_state_errors_total", "Errors.")


MakeState = Callable[[], SavedState]


def pods_of(state: SavedState) -> tuple[set[Owned], float] | None:
    found = state.load_pods()
    return None if found is None else (set(found.value), found.age_s)


async def test_without_saved_state_nothing_is_restored(make: MakeState) -> None:
    assert make().load_pods() is None
    assert make().load_tenants(None) is None


async def test_saved_state_is_restored_with_its_age(make: MakeState, clock: FakeClock) -> None:
    state = make()
    state.tenants_confirmed(REGISTRY, is_new=True)
    state.pods_confirmed(INDEX, is_new=True)
    await state.write_due()
    clock.now += 12.5
    tenants = make().load_tenants(None)
    assert tenants is not None
    registry, problems, distrust, lists = tenants.value
    assert (distrust, lists) == (None, ClientLists())
    assert (registry.sources, problems, tenants.age_s) == ({"a.yaml": A}, (), 12.5)
    pods = make().load_pods()
    assert pods is not None
    assert pods.value.is_synced
    assert (set(pods.value), pods.age_s) == ({SHOP, CART}, 12.5)


async def test_distrust_is_restored_with_the_tenants(make: MakeState) -> None:
    state, distrust = make(), Distrust(1_699_999_000.0, frozenset({"a.yaml", "b.yaml"}))
    state.tenants_confirmed(REGISTRY, distrust, is_new=True)
    await state.write_due()
    tenants = make().load_tenants(None)
    assert tenants is not None
    assert tenants.value.distrust == distrust
    state.tenants_confirmed(REGISTRY, is_new=True)
    await state.write_due()
    tenants = make().load_tenants(None)
    assert tenants is not None
    assert tenants.value.distrust is None


async def test_rotations_are_restored_as_they_were_saved(make: MakeState) -> None:
    assert make().load_rotations() is None
    state = make()
    state.rotations_confirmed(lambda: b'{"a":{}}', is_new=True)
    await state.write_due()
    assert make().load_rotations() == b'{"a":{}}'


async def test_spiffe_trust_is_read_from_the_configuration(make: MakeState) -> None:
    state = make()
    state.tenants_confirmed(REGISTRY, is_new=True)
    await state.write_due()
    trust = SpiffeTrust((Authority.create("super").der,), "super.example")
    tenants = make().load_tenants(trust)
    assert tenants is not None
    assert tenants.value[0].spiffe == trust


async def test_unchanged_state_is_confirmed_periodically(
    make: MakeState, clock: FakeClock, tmp_path: Path
) -> None:
    state = make()
    state.pods_confirmed(INDEX, is_new=True)
    await state.write_due()
    clock.now += CONFIRM_S - 1
    state.pods_confirmed(INDEX, is_new=False)
    await state.write_due()
    assert pods_of(make()) == ({SHOP, CART}, CONFIRM_S - 1)
    clock.now += 1
    state.pods_confirmed(INDEX, is_new=False)
    await state.write_due()
    assert pods_of(make()) == ({SHOP, CART}, 0)


async def test_a_burst_of_changes_writes_the_last_once(
    make: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(
        "daemonkit.files.saved_state.write_atomically", lambda path, data: written.append(data)
    )
    state = make()
    for pods in ([SHOP], [CART], [SHOP, CART], []):
        state.pods_confirmed(OwnerIndex(pods), is_new=True)
    await state.write_due()
    await state.write_due()
    assert [json.loads(data)["content"] for data in written] == [[]]


async def test_a_full_disk_is_retried_with_the_age_of_confirmation(
    make: MakeState, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = errors()
    state = SavedState(tmp_path / "state", counter, clock)
    state.prepare()
    with monkeypatch.context() as patch:

        def fail(path: Path, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr("daemonkit.files.saved_state.write_atomically", fail)
        state.pods_confirmed(INDEX, is_new=True)
        await state.write_due()
        await state.write_due()
    assert counter.value == 2
    assert make().load_pods() is None
    # The source failed meanwhile. The state that is written now was confirmed before.
    clock.now += 600
    await state.write_due()
    assert pods_of(make()) == ({SHOP, CART}, 600)
    assert counter.value == 2


async def test_an_unwritable_file_does_not_delay_the_other(make: MakeState, tmp_path: Path) -> None:
    state = make()
    (tmp_path / "state" / TENANTS_FILE).mkdir()
    state.tenants_confirmed(REGISTRY, is_new=True)
    state.pods_confirmed(INDEX, is_new=True)
    await state.write_due()
    assert pods_of(make()) == ({SHOP, CART}, 0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"version": 1}',
        b'{"version": 2, "confirmedAt": 1700000000.0, "content": []}',
        b'{"version": 1, "confirmedAt": "now", "content": []}',
        b'{"version": 1, "confirmedAt": 1700000000.0, "content": {}}',
        b'{"version": 1, "confirmedAt": 1700000000.0, "content": [{"tenant": "ten-a"}]}',
        b'{"version": 1, "confirmedAt": 1700000000.0, "content": ' + b"[" * 100_000,
    ],
)
async def test_a_damaged_file_is_ignored(make: MakeState, tmp_path: Path, content: bytes) -> None:
    state = make()
    for name in (TENANTS_FILE, PODS_FILE):
        (tmp_path / "state" / name).write_bytes(content)
    assert state.load_tenants(None) is None
    assert state.load_pods() is None


async def test_a_directory_at_the_path_of_a_file_is_ignored(make: MakeState, tmp_path: Path) -> None:
    state = make()
    (tmp_path / "state" / PODS_FILE).mkdir()
    assert state.load_pods() is None


async def test_state_older_than_the_limit_is_ignored(make: MakeState, clock: FakeClock) -> None:
    state = make()
    state.pods_confirmed(INDEX, is_new=True)
    await state.write_due()
    clock.now += MAX_AGE_S
    assert pods_of(make()) == ({SHOP, CART}, MAX_AGE_S)
    clock.now += 1
    assert make().load_pods() is None


async def test_age_is_clamped_when_the_clock_moved_back(make: MakeState, clock: FakeClock) -> None:
    state = make()
    state.pods_confirmed(INDEX, is_new=True)
    await state.write_due()
    clock.now -= 3600
    assert pods_of(make()) == ({SHOP, CART}, 0)


async def test_a_change_during_a_write_is_written_next(
    make: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = make()
    real = atomic.write_atomically

    def write(path: Path, data: bytes) -> None:
        real(path, data)
        if b"s-1" in data:
            state.pods_confirmed(OwnerIndex([CART]), is_new=True)

    monkeypatch.setattr("daemonkit.files.saved_state.write_atomically", write)
    state.pods_confirmed(OwnerIndex([SHOP]), is_new=True)
    await state.write_due()
    assert pods_of(make()) == ({SHOP}, 0)
    await state.write_due()
    assert pods_of(make()) == ({CART}, 0)
