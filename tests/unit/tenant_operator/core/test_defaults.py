# SPDX-License-Identifier: Apache-2.0
"""When the defaults of a tenant are applied, and which condition names those that are not."""

from typing import Any

import msgspec
import pytest

from tenant_operator.core.defaults import next_pass_s
from tenant_operator.core.steps import SettleDefaults
from tenant_operator.defaults.desired import builtin_files, config_map_files
from tenant_operator.defaults.inventory import read_inventory
from tenant_operator.edge.builtin_manifests import builtin_manifests
from tenant_operator.model import names
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.worlds import SETTINGS, VERSION, FakeWorld, virtual_cluster
from vnagent.tenants.virtualcluster import ClientsConfigMap

DEFAULTS = msgspec.structs.replace(SETTINGS, builtin=builtin_files(builtin_manifests()))
PROBLEM = "ConfigMap a/a: 422 Invalid: no"


SPEC: dict[str, Any] = msgspec.convert(VERSION["spec"], dict[str, Any])


def version(**spec: object) -> Object:
    return {**VERSION, "spec": {**SPEC, **spec}}


def made(**spec: object) -> FakeWorld:
    world = FakeWorld(virtual_cluster(), version=version(**spec), settings=DEFAULTS)
    world.run()
    return world


def key(world: FakeWorld) -> str:
    found: str = world.cluster["status"]["clusterNamespace"]
    return found


def inventory(world: FakeWorld) -> list[str]:
    data = world.objects[Ref("ConfigMap", key(world), names.DEFAULTS_INVENTORY)]["data"]
    return [str(entry.ref) for entry in read_inventory(data["inventory"]).entries]


def up_to_date(world: FakeWorld) -> tuple[str, str, str]:
    found = {each.get("type"): each for each in world.cluster["status"]["conditions"]}["UpToDate"]
    return found["status"], found["reason"], found["message"]


def passes(world: FakeWorld) -> list[SettleDefaults]:
    return [step for step in world.plan().steps if isinstance(step, SettleDefaults)]


def test_they_are_applied_once() -> None:
    world = made()
    assert inventory(world)[-2:] == [
        "CustomResourceDefinition networks.arktos.futurewei.com",
        "Network default",
    ]
    writes = world.writes
    for _ in range(100):
        assert world.plan().steps == ()
    assert world.writes == writes
    assert up_to_date(world)[0] == "True"


def test_what_the_tenant_deletes_comes_back_by_a_later_pass() -> None:
    """An idle tenant costs one request an hour for it: each object is read, and two requests come beside."""
    world = made()
    count = len(inventory(world))
    assert next_pass_s(count, is_refused=False) == (count + 2) * 3600.0
    world.now_s += next_pass_s(count, is_refused=False) - 1
    assert passes(world) == []
    made_plan = world.plan()
    assert made_plan.check_again_s is not None
    world.now_s += 1
    (step,) = passes(world)
    assert len(step.desired.objects) == count
    world.run()
    assert passes(world) == []


def test_rights_of_the_syncer_come_back_at_once() -> None:
    """It reports that it is refused, and nothing has to be asked for that."""
    world = made()
    refused = {"status": "True", "reason": "NotReachable", "message": "403"}
    world.cluster["status"]["conditions"].append(refused)
    assert passes(world) == []
    world.now_s += 60
    assert len(passes(world)) == 1
    world.run()
    assert passes(world) == []


def test_they_come_after_the_rights_and_once_it_is_served() -> None:
    world = FakeWorld(virtual_cluster(), settings=DEFAULTS)
    order = []
    for _ in range(30):
        plan = world.plan()
        for step in plan.steps:
            if isinstance(step, SettleDefaults):
                kinds = {each.ref.kind for each in step.desired.objects}
                order.append((world.cluster.get("status", {}).get("phase"), sorted(kinds)))
            world.carry_out(step)
        world.finish(plan)
    rights = ["ClusterRole", "ClusterRoleBinding"]
    assert order == [
        ("Pending", rights),
        ("Running", [*rights, "CustomResourceDefinition", "Network"]),
    ]


def test_another_list_is_applied_at_once() -> None:
    world = made(defaults=[{"configMap": "more"}])
    missing = "ConfigMap more of ClusterVersion v1.34 does not exist in the operator's namespace"
    assert up_to_date(world)[:2] == ("False", "DefaultsNotApplied")
    assert missing in up_to_date(world)[2]
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
    world.defaults = {"more": config_map_files("more", {"a.yaml": text})}
    world.run()
    assert inventory(world)[-1] == "ConfigMap default/a"
    assert up_to_date(world)[0] == "True"


def test_what_is_refused_is_tried_again_later() -> None:
    world = FakeWorld(virtual_cluster(), settings=DEFAULTS, pass_problems=(PROBLEM,))
    world.run()
    assert up_to_date(world) == ("False", "DefaultsNotApplied", f"defaults of the tenant: {PROBLEM}")
    steps = []
    for _ in range(10):
        plan = world.plan()
        assert plan.check_again_s is not None
        steps.append(plan.check_again_s)
        world.now_s += plan.check_again_s
        assert len(passes(world)) == 1
        world.run()
    assert steps == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0]
    world.pass_problems = ()
    world.now_s += 300.0
    world.run()
    assert up_to_date(world)[0] == "True"


def test_another_list_is_no_fresh_start() -> None:
    """Its owner changes the list each second, and its API server lets each pass run out of time."""
    world = made(defaults=[{"configMap": "more"}])
    world.pass_problems = (PROBLEM,)
    began, tried = world.now_s, []
    for second in range(200):
        world.now_s = began + second
        text = f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a{second}}}}}"
        world.defaults = {"more": config_map_files("more", {"a.yaml": text})}
        tried += [second] * len(passes(world))
        world.run()
        assert PROBLEM in up_to_date(world)[2]
    assert tried == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    # A list that can be applied is within a minute.
    world.pass_problems = ()
    world.now_s = began + 243
    world.run()
    assert up_to_date(world)[0] == "True"


def test_an_inventory_that_was_lost_is_made_again() -> None:
    world = made()
    del world.objects[Ref("ConfigMap", key(world), names.DEFAULTS_INVENTORY)]
    world.run()
    assert inventory(world)[-1] == "Network default"


@pytest.mark.parametrize("image", ["", "m:1"])
def test_metrics_server_is_registered_at_the_nodes(image: str) -> None:
    """Its certificate is of the authority that vn-agent trusts for this tenant."""
    world = made(images={**SPEC["images"], "metricsServer": image})
    secret = Ref("Secret", key(world), names.METRICS_CLIENT)
    clients = Ref("ConfigMap", key(world), names.REGISTERED_CLIENTS)
    assert {secret in world.objects, clients in world.objects} == {bool(image)}
    assert ("APIService v1beta1.metrics.k8s.io" in inventory(world)) == bool(image)
    if image:
        read = msgspec.convert(world.objects[clients], ClientsConfigMap)
        assert read.data is not None
        assert "metrics" in (read.data.clients or "")


def test_a_renewed_client_is_registered_beside_the_former() -> None:
    """metrics-server goes on to show the former certificate for some minutes."""
    world = made(images={**SPEC["images"], "metricsServer": "m:1"})
    secret = Ref("Secret", key(world), names.METRICS_CLIENT)
    seen = [registered(world)]
    for _ in range(2):
        del world.objects[secret]
        world.run()
        seen.append(registered(world))
    first, second, third = (each[0] for each in seen)
    assert seen == [[first], [second, first], [third, second]]
    world.objects[Ref("ConfigMap", key(world), names.REGISTERED_CLIENTS)]["data"] = {"clients.yaml": "{"}
    world.run()
    assert registered(world) == [third]


def registered(world: FakeWorld) -> list[str]:
    """The public keys that vn-agents serve, besides the API server's."""
    text = world.objects[Ref("ConfigMap", key(world), names.REGISTERED_CLIENTS)]["data"]["clients.yaml"]
    return [each["spkiSHA256"] for each in msgspec.json.decode(text)]
