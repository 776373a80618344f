# SPDX-License-Identifier: Apache-2.0
"""Readings of sources become the served state: the last good one, from disk until a source has synced."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devkit.pki import Authority
from tenancy.document import document_of
from tenancy.ownership import Owned, OwnerIndex
from tenancy.registry import Bad
from tenancy.tenant import Role, Tenant
from tests.unit.fake_clock import FakeClock
from tests.unit.vnagent.sources.publisher_setting import SERVING, SourcesSetting
from vnagent.config import Spiffe
from vnagent.core.source_status import Retained
from vnagent.reload import Reloadable
from vnagent.sources.configured import SETTLE_S
from vnagent.tenants.reading import TenantsReading

pytestmark = pytest.mark.asyncio

CA_A, CA_B = Authority.create("ca-a"), Authority.create("ca-b")
A = Tenant("ten-a", (CA_A.der,), {"01" * 32: Role.APISERVER})
B = Tenant("ten-b", (CA_B.der,), {"02" * 32: Role.APISERVER})
SHOP = Owned("ten-a", "web", "shop", "t-1", "ten-a-web", "shop", "s-1", frozenset({"app"}))
TWIN = Owned("ten-b", "web", "shop", "t-2", "ten-a-web", "shop", "s-2", frozenset({"app"}))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest_asyncio.fixture
async def setting(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SourcesSetting]:
    made = SourcesSetting(tmp_path, clock)
    yield made
    made.poller.stop()


async def test_before_a_sync_nothing_is_served(setting: SourcesSetting) -> None:
    setting.publisher.restore()
    assert (setting.served(), setting.flags()) == ((set(), set()), {})
    assert not setting.state.index.is_synced
    assert setting.state.context is None


async def test_published_objects_are_served_and_saved(setting: SourcesSetting, clock: FakeClock) -> None:
    assert setting.publisher.publish_tenants(TenantsReading({"a": A, "b": B}))
    setting.publisher.publish_pods((SHOP,), ())
    assert setting.served() == ({"ten-a", "ten-b"}, {SHOP})
    assert setting.flags() == {"tenants": (0.0, False), "pods": (0.0, False)}
    assert setting.state.context is not None
    await setting.saved.write_due()
    clock.now += 100
    again = SourcesSetting(setting.directory, clock)
    again.publisher.restore()
    assert again.served() == ({"ten-a", "ten-b"}, {SHOP})
    assert again.flags() == {"tenants": (100.0, True), "pods": (100.0, True)}
    assert again.state.context is not None
    await asyncio.sleep(7)  # the age grows while no source has synced
    assert again.flags() == {"tenants": (107.0, True), "pods": (107.0, True)}
    again.publisher.publish_pods((), ())
    assert again.flags() == {"tenants": (107.0, True), "pods": (0.0, False)}
    assert again.served() == ({"ten-a", "ten-b"}, set())
    again.poller.stop()


async def test_serving_restored_state_does_not_confirm_it(setting: SourcesSetting, clock: FakeClock) -> None:
    """Two restarts without a word of the sources: the age counts from the last word."""
    setting.publisher.publish_tenants(TenantsReading({"a": A}))
    await setting.saved.write_due()
    for age_s in (1000.0, 2000.0):
        clock.now += 1000
        again = SourcesSetting(setting.directory, clock)
        again.publisher.restore()
        assert again.flags() == {"tenants": (age_s, True)}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(300):
                await again.sources.run()
        await again.saved.write_due()
        again.poller.stop()


async def test_an_invalid_tenant_keeps_its_last_good_state(setting: SourcesSetting) -> None:
    setting.publisher.publish_tenants(TenantsReading({"a": A, "b": B}))
    assert setting.publisher.publish_tenants(TenantsReading({"a": Bad("not YAML"), "b": B}))
    assert setting.served()[0] == {"ten-a", "ten-b"}
    (problem,) = setting.state.tenant_problems
    assert (problem.source, problem.tenant, problem.is_kept) == ("a", "ten-a", True)
    assert setting.publisher.publish_tenants(TenantsReading({"a": A, "b": B}))
    assert setting.state.tenant_problems == ()


async def test_removing_the_last_tenant_drops_the_context(setting: SourcesSetting) -> None:
    setting.publisher.publish_tenants(TenantsReading({"a": A}))
    setting.publisher.publish_tenants(TenantsReading({}, frozenset({"a"})))
    assert setting.served()[0] == set()
    assert setting.state.context is None
    assert setting.sources.statuses()[0].retained is None


async def test_an_empty_reading_retains_all_tenants_until_release(
    setting: SourcesSetting, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    setting.publisher.publish_tenants(TenantsReading({"a": A, "b": B}))
    for _ in range(3):
        setting.publisher.publish_tenants(TenantsReading({}))
        clock.now += 20
    assert setting.served()[0] == {"ten-a", "ten-b"}
    assert setting.sources.statuses()[0].retained == Retained(("ten-a", "ten-b"), 60.0)
    assert setting.state.metrics.distrusted_removals.value == 1
    assert capsys.readouterr().err.count("ERROR") == 1
    setting.publisher.release_tenants()
    assert setting.served()[0] == set()
    assert setting.sources.statuses()[0].retained is None
    setting.publisher.release_tenants()
    assert "nothing to release" in capsys.readouterr().err


async def test_one_missing_tenant_of_several_is_removed(setting: SourcesSetting) -> None:
    setting.publisher.publish_tenants(TenantsReading({"a": A, "b": B}))
    setting.publisher.publish_tenants(TenantsReading({"b": B}))
    assert setting.served()[0] == {"ten-b"}


async def test_a_renamed_file_is_the_same_tenant(setting: SourcesSetting) -> None:
    setting.publisher.publish_tenants(TenantsReading({"a": A}))
    setting.publisher.publish_tenants(TenantsReading({"10-a": A}))
    assert set(setting.state.registry.sources) == {"10-a"}
    assert setting.sources.statuses()[0].retained is None


async def test_a_retained_tenant_wins_over_a_newcomer(setting: SourcesSetting) -> None:
    other = Tenant("ten-c", A.authorities, A.clients)
    setting.publisher.publish_tenants(TenantsReading({"a": A}))
    setting.publisher.publish_tenants(TenantsReading({"c": other}))
    assert setting.served()[0] == {"ten-a"}
    assert [(each.source, each.is_kept) for each in setting.state.tenant_problems] == [("c", False)]
    setting.publisher.release_tenants()
    assert (setting.served()[0], setting.state.tenant_problems) == ({"ten-c"}, ())


async def test_retained_tenants_survive_a_restart(setting: SourcesSetting, clock: FakeClock) -> None:
    """Also where by then so many tenants have come that the loss would look plausible."""
    c, d, e = (Tenant(f"ten-{each}", (Authority.create(each).der,), {}) for each in "cde")
    setting.publisher.publish_tenants(TenantsReading({"a": A, "b": B}))
    setting.publisher.publish_tenants(TenantsReading({"c": c, "d": d, "e": e}))
    await setting.saved.write_due()
    clock.now += 100
    again = SourcesSetting(setting.directory, clock)
    again.publisher.restore()
    assert again.served()[0] == {"ten-a", "ten-b", "ten-c", "ten-d", "ten-e"}
    again.publisher.publish_tenants(TenantsReading({"c": c, "d": d, "e": e}))
    assert again.served()[0] == {"ten-a", "ten-b", "ten-c", "ten-d", "ten-e"}
    assert again.sources.statuses()[0].retained == Retained(("ten-a", "ten-b"), 100.0)
    again.publisher.publish_tenants(TenantsReading({"a": A, "c": c, "d": d, "e": e}))
    assert again.served()[0] == {"ten-a", "ten-c", "ten-d", "ten-e"}  # enough is back
    again.poller.stop()


async def test_removals_during_a_restart_are_judged(setting: SourcesSetting, clock: FakeClock) -> None:
    setting.publisher.publish_tenants(TenantsReading({"a": A, "b": B}))
    await setting.saved.write_due()
    again = SourcesSetting(setting.directory, clock)
    again.publisher.restore()
    again.publisher.publish_tenants(TenantsReading({}))
    assert again.served()[0] == {"ten-a", "ten-b"}
    again.poller.stop()


OTHER = SERVING.issue("node-1", sans_dns=["node-1"])


@pytest.mark.parametrize(
    ("file", "content"),
    [("serving.key", b"cut"), ("serving.key", OTHER.key_pem), ("serving.crt", OTHER.cert_pem[:200])],
    ids=["cut key", "another key", "cut certificate"],
)
async def test_an_invalid_serving_certificate_changes_nothing(
    setting: SourcesSetting, file: str, content: bytes
) -> None:
    """Neither trust nor tenants: they are put in force together or not at all."""
    setting.publisher.publish_tenants(TenantsReading({"a": A}))
    context = setting.state.context
    (setting.directory / file).write_bytes(content)
    assert not setting.publisher.publish_tenants(TenantsReading({"a": A, "b": B}))
    assert setting.sources.reload_trust() is not None
    assert setting.served()[0] == {"ten-a"}
    assert setting.state.context is context
    SERVING.issue("node-1", sans_dns=["node-1"]).write(setting.directory, "serving")
    assert setting.sources.reload_trust() is None
    assert setting.state.context is not context
    # The reading that could not be put in force is not lost until the next change of the source.
    assert setting.served()[0] == {"ten-a", "ten-b"}


async def test_the_spiffe_authority_is_reloaded(tmp_path: Path, clock: FakeClock) -> None:
    CA_A.write(tmp_path, "spiffe")
    setting = SourcesSetting(tmp_path, clock, Spiffe(tmp_path / "spiffe.crt", "super.example"))
    setting.publisher.publish_tenants(TenantsReading({"b": B}))
    assert setting.state.registry.authorities() == (CA_A.der, CA_B.der)
    other = Authority.create("other")
    other.write(tmp_path, "spiffe")
    assert setting.sources.reload_trust() is None
    assert setting.state.registry.authorities() == (other.der, CA_B.der)
    assert setting.served()[0] == {"ten-b"}
    (tmp_path / "spiffe.crt").write_bytes(b"cut")
    assert setting.sources.reload_trust() is not None
    assert setting.state.registry.authorities() == (other.der, CA_B.der)
    setting.poller.stop()


async def test_pods_claimed_twice_are_not_served_and_reported(setting: SourcesSetting) -> None:
    setting.publisher.publish_pods((SHOP, TWIN), ("pod 'x/y': half annotated",))
    assert setting.served()[1] == set()
    assert setting.state.index.is_synced
    claim = "ten-a-web/shop: claimed twice"
    assert list(setting.state.pod_problems) == ["pod 'x/y': half annotated", claim, claim]
    setting.publisher.publish_pods((SHOP,), ())
    assert (setting.served()[1], list(setting.state.pod_problems)) == ({SHOP}, [])


async def test_the_index_is_replaced_as_a_whole(setting: SourcesSetting) -> None:
    """Holders of the old snapshot keep reading it."""
    setting.publisher.publish_pods((SHOP,), ())
    before = setting.state.index
    setting.publisher.publish_pods((), ())
    assert before.lookup("ten-a", "web", "shop") == SHOP
    assert set(setting.state.index) == set()
    assert isinstance(setting.state.index, OwnerIndex)


async def test_invalid_files_keep_the_last_good_state(setting: SourcesSetting) -> None:
    tenants, pods = setting.sources.reloadables
    (setting.directory / "tenants" / "a.yaml").write_text(json.dumps(document_of(A)), encoding="utf-8")
    (setting.directory / "pods.json").write_text('{"kind": "PodList", "items": []}', encoding="utf-8")
    assert (tenants.poll(), pods.poll()) == (True, True)
    assert (await tenants.reload(), await pods.reload()) == (None, None)
    assert setting.served() == ({"ten-a"}, set())
    (setting.directory / "tenants" / "b.yaml").write_text("kind: [", encoding="utf-8")
    (setting.directory / "pods.json").write_text('{"kind": "PodList", "items": [', encoding="utf-8")
    assert (tenants.poll(), pods.poll()) == (True, True)
    reported = await tenants.reload()
    assert reported is not None
    assert reported.startswith("b.yaml: ")
    assert await pods.reload() is not None
    assert setting.served() == ({"ten-a"}, set())
    (setting.directory / "tenants").rename(setting.directory / "elsewhere")
    assert tenants.poll()
    assert await tenants.reload() is not None  # a missing directory is not an empty one
    assert setting.served() == ({"ten-a"}, set())


async def test_the_age_of_files_counts_from_the_last_good_read(setting: SourcesSetting) -> None:
    tenants, pods = setting.sources.reloadables
    (setting.directory / "tenants" / "a.yaml").write_text(json.dumps(document_of(A)), encoding="utf-8")
    (setting.directory / "pods.json").write_text('{"kind": "PodList", "items": []}', encoding="utf-8")

    async def poll(seconds: int) -> list[tuple[str, float | None, str]]:
        for _ in range(seconds):
            await asyncio.sleep(1.0)
            for each in (tenants, pods):
                if each.poll():
                    await each.reload()
        return [
            (
                each.name,
                each.age_s,
                "" if each.failure is None else f"{each.failure.fault.text}, {each.failure.for_s}",
            )
            for each in setting.sources.statuses()
        ]

    assert await poll(5) == [("tenants", 0.0, ""), ("pods", 0.0, "")]
    (setting.directory / "tenants").rename(setting.directory / "elsewhere")
    (setting.directory / "pods.json").rename(setting.directory / "gone.json")
    gone, missing = setting.directory / "tenants", setting.directory / "pods.json"
    assert await poll(6) == [
        ("tenants", 6.0, f"tenants.directory: {gone}: No such file or directory, 5.0"),
        ("pods", 6.0, f"pods.file {missing}: no such file, 5.0"),
    ]
    assert setting.sources.statuses()[0].line() == (
        f"tenants: stale, age 6 s; cannot be read for 5 s: tenants.directory: {gone}: No such file or"
        " directory; make the directory and its files, or correct the path in the configuration"
    )
    (setting.directory / "elsewhere").rename(gone)
    missing.write_text("{", encoding="utf-8")
    now = await poll(1)
    assert now[0] == ("tenants", 0.0, "")
    assert now[1][1] == 7.0
    missing.write_text('{"kind": "PodList", "items": []}', encoding="utf-8")
    assert await poll(1) == [("tenants", 0.0, ""), ("pods", 0.0, "")]


async def test_a_removal_marker_confirms_the_removal(setting: SourcesSetting) -> None:
    tenants, _ = setting.sources.reloadables
    file = setting.directory / "tenants" / "a.yaml"
    file.write_text(json.dumps(document_of(A)), encoding="utf-8")
    assert await tenants.reload() is None
    file.unlink()
    assert await tenants.reload() is None
    assert setting.served()[0] == {"ten-a"}
    file.with_name("a.yaml.removed").touch()
    assert tenants.poll()
    assert await tenants.reload() is None
    assert setting.served()[0] == set()
    # The file counts beside its marker, and that marker confirms no later loss.
    file.write_text(json.dumps(document_of(A)), encoding="utf-8")
    assert await tenants.reload() is None
    assert setting.served()[0] == {"ten-a"}
    file.unlink()
    assert await tenants.reload() is None
    assert setting.served()[0] == {"ten-a"}
    file.with_name("a.yaml.removed").unlink()
    file.with_name("a.yaml.removed").write_text("again", encoding="utf-8")
    assert await tenants.reload() is None
    assert setting.served()[0] == set()


async def _reloaded(source: Reloadable) -> str | None:
    return await source.reload()


async def test_a_removal_in_progress_is_read_to_its_end(setting: SourcesSetting) -> None:
    """Two files of six are plausible, and four more are gone a moment later."""
    tenants, _ = setting.sources.reloadables
    keys = {f"ten-{number}" for number in range(6)}
    for key in keys:
        document = document_of(Tenant(key, (Authority.create(key).der,), {}))
        (setting.directory / "tenants" / f"{key}.yaml").write_text(json.dumps(document), encoding="utf-8")
    assert await tenants.reload() is None
    first, second, *rest = (setting.directory / "tenants").iterdir()
    first.unlink()
    second.unlink()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_reloaded(tenants))
        await asyncio.sleep(0.1)
        for path in rest:
            path.unlink()
    assert reading.result() is None
    assert setting.served()[0] == keys


async def test_a_plausible_removal_is_applied_after_a_second_read(setting: SourcesSetting) -> None:
    tenants, _ = setting.sources.reloadables
    for tenant in (A, B):
        file = setting.directory / "tenants" / f"{tenant.key}.yaml"
        file.write_text(json.dumps(document_of(tenant)), encoding="utf-8")
    assert await tenants.reload() is None
    file.unlink()
    began = asyncio.get_running_loop().time()
    assert await tenants.reload() is None
    assert setting.served()[0] == {"ten-a"}
    assert asyncio.get_running_loop().time() - began == SETTLE_S


async def test_pods_are_stale_before_and_between_good_reads(
    setting: SourcesSetting, clock: FakeClock
) -> None:
    """From saved state, and with a file that is gone: what it lacked may have been created since."""
    pods = next(each for each in setting.sources.reloadables if each.name == "pods")
    listed = setting.directory / "pods.json"
    listed.write_text('{"kind":"PodList","items":[]}')
    pods.poll()
    assert await pods.reload() is None
    assert not setting.sources.are_pods_stale()
    listed.unlink()
    pods.poll()
    assert await pods.reload() is not None
    assert setting.sources.are_pods_stale()
    await setting.saved.write_due()
    again = SourcesSetting(setting.directory, clock)
    again.publisher.restore()
    assert again.sources.are_pods_stale()
    again.publisher.publish_pods((), ())
    assert not again.sources.are_pods_stale()
    again.poller.stop()
