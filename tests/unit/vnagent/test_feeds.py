# SPDX-License-Identifier: Apache-2.0
"""What is served of what the sources say: the last good state whole, from disk until one is heard."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio

from daemonkit.metrics import Registry as MetricRegistry
from daemonkit.tasks import Tasks
from daemonkit.testing.pki import Authority
from tenancy.document import document_of
from tenancy.ownership import Owned, OwnerIndex
from tenancy.registry import Bad
from tenancy.tenant import Role, Tenant
from vnagent.agent import Agent
from vnagent.audit_log import AuditLog
from vnagent.channels import Channels
from vnagent.config import Kubelet, Pods, PodSource, Serving, Spiffe, Tenants, VnAgentConfiguration
from vnagent.core.limits import Limits
from vnagent.feeds import Feeds
from vnagent.kubelet import KubeletPool
from vnagent.metrics import Metrics
from vnagent.page_service import PageService
from vnagent.saved_state import SavedState

pytestmark = pytest.mark.asyncio

CA_A, CA_B, SERVING = Authority.create("ca-a"), Authority.create("ca-b"), Authority.create("serving")
A = Tenant("ten-a", (CA_A.der,), {"01" * 32: Role.APISERVER})
B = Tenant("ten-b", (CA_B.der,), {"02" * 32: Role.APISERVER})
SHOP = Owned("ten-a", "web", "shop", "t-1", "ten-a-web", "shop", "s-1", frozenset({"app"}))
TWIN = Owned("ten-b", "web", "shop", "t-2", "ten-a-web", "shop", "s-2", frozenset({"app"}))


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Setting:
    """Feeds of one configuration, with an agent that has no connection."""

    def __init__(self, directory: Path, clock: Clock, spiffe: Spiffe | None = None) -> None:
        (directory / "tenants").mkdir(exist_ok=True)
        if not (directory / "serving.crt").exists():
            SERVING.issue("node-1", sans_dns=["node-1"]).write(directory, "serving")
        config = VnAgentConfiguration(
            node_name="node-1",
            serving=Serving(directory / "serving.crt", directory / "serving.key"),
            kubelet=Kubelet(directory / "ca", directory / "crt", directory / "key"),
            tenants=Tenants(directory / "tenants"),
            pods=Pods(PodSource.FILE, directory / "pods.json"),
            spiffe=spiffe,
        )
        self.directory = directory
        self.channels = Channels(asyncio.get_running_loop())
        tasks, metrics = Tasks("test"), Metrics()
        kubelet = cast(KubeletPool, None)  # nothing here asks it
        self.agent = Agent(
            channels=self.channels,
            kubelet=kubelet,
            pages=PageService(kubelet, 0, tasks),
            limits=Limits(0, 0, 0),
            metrics=metrics,
            audit_log=AuditLog(asyncio.get_running_loop(), directory / "audit", metrics.audit_lost),
            tasks=tasks,
        )
        errors = MetricRegistry().counter("vcnode_state_errors_total", "Errors.")
        self.state = SavedState(directory / "state", errors, clock)
        self.state.prepare()
        self.feeds = Feeds(config, self.agent, self.state, tasks)

    def served(self) -> tuple[set[str], set[Owned]]:
        """The tenants and pods that are served now."""
        return set(self.agent.registry.tenants), set(self.agent.index)

    def flags(self) -> dict[str, tuple[float, bool]]:
        saved = self.feeds.saved()
        return {name: (age, saved[name]) for name, age in self.feeds.ages().items()}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture
async def setting(tmp_path: Path, clock: Clock) -> AsyncIterator[Setting]:
    made = Setting(tmp_path, clock)
    yield made
    made.channels.epoll.close()


async def test_before_anything_is_heard_nothing_is_known(setting: Setting) -> None:
    setting.feeds.restore()
    assert (setting.served(), setting.flags()) == ((set(), set()), {})
    assert not setting.agent.index.is_synced
    assert setting.agent.context is None


async def test_what_is_published_is_served_and_saved(setting: Setting, clock: Clock) -> None:
    assert setting.feeds.publish_tenants({"a": A, "b": B})
    setting.feeds.publish_pods((SHOP,), ())
    assert setting.served() == ({"ten-a", "ten-b"}, {SHOP})
    assert setting.flags() == {"tenants": (0.0, False), "pods": (0.0, False)}
    assert setting.agent.context is not None
    await setting.state.write_due()
    clock.now += 100
    again = Setting(setting.directory, clock)
    again.feeds.restore()
    assert again.served() == ({"ten-a", "ten-b"}, {SHOP})
    assert again.flags() == {"tenants": (100.0, True), "pods": (100.0, True)}
    assert again.agent.context is not None
    await asyncio.sleep(7)  # it grows older while nobody is heard
    assert again.flags() == {"tenants": (107.0, True), "pods": (107.0, True)}
    again.feeds.publish_pods((), ())
    assert again.flags() == {"tenants": (107.0, True), "pods": (0.0, False)}
    assert again.served() == ({"ten-a", "ten-b"}, set())
    again.channels.epoll.close()


async def test_state_that_was_restored_is_not_confirmed_by_being_served(
    setting: Setting, clock: Clock
) -> None:
    """Two restarts without a word of the sources: the age counts from the last word."""
    setting.feeds.publish_tenants({"a": A})
    await setting.state.write_due()
    for age_s in (1000.0, 2000.0):
        clock.now += 1000
        again = Setting(setting.directory, clock)
        again.feeds.restore()
        assert again.flags() == {"tenants": (age_s, True)}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(300):
                await again.feeds.run()
        await again.state.write_due()
        again.channels.epoll.close()


async def test_a_bad_tenant_keeps_its_last_good_state_and_the_others_never_notice(setting: Setting) -> None:
    setting.feeds.publish_tenants({"a": A, "b": B})
    assert setting.feeds.publish_tenants({"a": Bad("not YAML"), "b": B})
    assert setting.served()[0] == {"ten-a", "ten-b"}
    (problem,) = setting.agent.tenant_problems
    assert (problem.source, problem.tenant, problem.is_kept) == ("a", "ten-a", True)
    assert setting.feeds.publish_tenants({"a": A, "b": B})
    assert setting.agent.tenant_problems == ()


async def test_the_last_tenant_leaves_nobody_to_serve(setting: Setting) -> None:
    setting.feeds.publish_tenants({"a": A})
    setting.feeds.publish_tenants({})
    assert setting.served()[0] == set()
    assert setting.agent.context is None


async def test_a_serving_certificate_that_cannot_be_used_changes_nothing(setting: Setting) -> None:
    """Neither trust nor tenants: they are put in force together or not at all."""
    setting.feeds.publish_tenants({"a": A})
    context = setting.agent.context
    (setting.directory / "serving.key").write_bytes(b"cut")
    assert not setting.feeds.publish_tenants({"a": A, "b": B})
    assert setting.feeds.reload_trust() is not None
    assert setting.served()[0] == {"ten-a"}
    assert setting.agent.context is context
    SERVING.issue("node-1", sans_dns=["node-1"]).write(setting.directory, "serving")
    assert setting.feeds.reload_trust() is None
    assert setting.agent.context is not context
    assert setting.feeds.publish_tenants({"a": A, "b": B})
    assert setting.served()[0] == {"ten-a", "ten-b"}


async def test_the_spiffe_authority_is_read_again_with_the_certificates(tmp_path: Path, clock: Clock) -> None:
    CA_A.write(tmp_path, "spiffe")
    setting = Setting(tmp_path, clock, Spiffe(tmp_path / "spiffe.crt", "super.example"))
    setting.feeds.publish_tenants({"b": B})
    assert setting.agent.registry.authorities() == (CA_A.der, CA_B.der)
    other = Authority.create("other")
    other.write(tmp_path, "spiffe")
    assert setting.feeds.reload_trust() is None
    assert setting.agent.registry.authorities() == (other.der, CA_B.der)
    assert setting.served()[0] == {"ten-b"}
    (tmp_path / "spiffe.crt").write_bytes(b"cut")
    assert setting.feeds.reload_trust() is not None
    assert setting.agent.registry.authorities() == (other.der, CA_B.der)
    setting.channels.epoll.close()


async def test_pods_that_cannot_be_told_apart_are_nobodys_and_said(setting: Setting) -> None:
    setting.feeds.publish_pods((SHOP, TWIN), ("pod 'x/y': half annotated",))
    assert setting.served()[1] == set()
    assert setting.agent.index.is_synced
    claim = "ten-a-web/shop: claimed twice"
    assert list(setting.agent.pod_problems) == ["pod 'x/y': half annotated", claim, claim]
    setting.feeds.publish_pods((SHOP,), ())
    assert (setting.served()[1], list(setting.agent.pod_problems)) == ({SHOP}, [])


async def test_the_index_is_replaced_whole(setting: Setting) -> None:
    """Who holds the old one sees the old world to its end."""
    setting.feeds.publish_pods((SHOP,), ())
    before = setting.agent.index
    setting.feeds.publish_pods((), ())
    assert before.lookup("ten-a", "web", "shop") == SHOP
    assert set(setting.agent.index) == set()
    assert isinstance(setting.agent.index, OwnerIndex)


async def test_files_are_sources_that_keep_their_last_good_state(setting: Setting) -> None:
    tenants, pods = setting.feeds.reloadables()
    (setting.directory / "tenants" / "a.yaml").write_text(json.dumps(document_of(A)), encoding="utf-8")
    (setting.directory / "pods.json").write_text('{"kind": "PodList", "items": []}', encoding="utf-8")
    assert (tenants.changed(), pods.changed()) == (True, True)
    assert (await tenants.reload(), await pods.reload()) == (None, None)
    assert setting.served() == ({"ten-a"}, set())
    (setting.directory / "tenants" / "b.yaml").write_text("kind: [", encoding="utf-8")
    (setting.directory / "pods.json").write_text('{"kind": "PodList", "items": [', encoding="utf-8")
    assert (tenants.changed(), pods.changed()) == (True, True)
    said = await tenants.reload()
    assert said is not None
    assert said.startswith("b.yaml: ")
    assert await pods.reload() is not None
    assert setting.served() == ({"ten-a"}, set())
    (setting.directory / "tenants").rename(setting.directory / "elsewhere")
    assert tenants.changed()
    assert await tenants.reload() is not None  # a directory that is gone is no empty directory
    assert setting.served() == ({"ten-a"}, set())
