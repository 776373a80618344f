# SPDX-License-Identifier: Apache-2.0
"""Scenario 5: vc-syncer. Two tenants make objects of the same names; nothing is made by hand for them.

`run` has all steps. Each step is a function that needs only an open environment.
"""

from functools import partial
from typing import Any

from daemonkit.kube.event_recorder import EVENTS
from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, NODES, PODS, SERVICES, Resource
from devkit.kube.storage import Object
from tenancy import keys
from vcnode import tenants as tenants_verb
from vcnode.terminal import columns
from vcnode_demo import cli_calls
from vcnode_demo.environment import Environment
from vcnode_demo.narrator import Narrator
from vcnode_demo.syncer_environment import SyncerEnvironment
from vcnode_demo.tenant_client import RefusedError, TenantClient

NAMESPACE = "shop"
LOG = f"/containerLogs/{NAMESPACE}/web/app"
# The syncer's watches back off while the API server is away, and a patrol follows their lists.
HELD_WITHIN_S = 30.0
PRICES = {"hooli": "70", "umbrella": "90"}
# What each tenant makes: kind, resource, name.
MADE = (
    ("Namespace", NAMESPACES, NAMESPACE),
    ("ConfigMap", CONFIG_MAPS, "prices"),
    ("Service", SERVICES, "web"),
    ("Pod", PODS, "web"),
)


def run(narrator: Narrator, environment: Environment) -> None:
    """All steps, in order. Raises CheckFailedError."""
    narrator.begin_scenario("Scenario 5: vc-syncer, from tenants' objects to running pods")
    syncer = environment.open_syncer()
    same_names(narrator, syncer)
    logs(narrator, environment, syncer)
    service(narrator, syncer)
    refused(narrator, syncer)
    foreign_edit(narrator, syncer)
    foreign_deletion(narrator, syncer)
    token = wiped(narrator, syncer)
    released(narrator, syncer, token)


def same_names(narrator: Narrator, environment: SyncerEnvironment) -> None:
    narrator.step("Two new tenants make the same: namespace shop, ConfigMap prices, Service web, a pod web")
    for name, plane in environment.planes.items():
        for kind, _, own in MADE:
            narrator.request(name, f"create {kind} {own}")
        plane.create(NAMESPACES, "", NAMESPACE)
        plane.create(CONFIG_MAPS, NAMESPACE, "prices", data={"anvil": PRICES[name]})
        ports = [{"name": "http", "port": 80, "targetPort": 8080}]
        plane.create(SERVICES, NAMESPACE, "web", spec={"selector": {"app": "web"}, "ports": ports})
        _create_pod(environment, name, "web")
    narrator.note("(There are no controllers: it is the pod that a Deployment's ReplicaSet would make.)")
    narrator.wait_for(
        lambda: all(_is_running(environment, name) for name in environment.planes), "both pods run"
    )
    narrator.wait_for(
        lambda: all(_is_down(environment, name) for name in environment.planes),
        "and all objects are in the super cluster",
    )
    rows = [("TENANT", "POD", "PHASE", "NODE", "IN THE SUPER CLUSTER")]
    for name in environment.planes:
        pod = _tenant_pod(environment, name) or {}
        node, phase = pod["spec"]["nodeName"], pod["status"]["phase"]
        rows.append((name, "shop/web", phase, node, f"{_namespace(environment, name)}/web"))
    narrator.response("\n".join(columns(rows)))
    for name, plane in environment.planes.items():
        narrator.check(
            all(_is_owned(environment, name, resource, own) for _, resource, own in MADE),
            f"{name}'s objects are in its own super namespace, and carry its cluster key",
        )
        found = _super(environment, name, CONFIG_MAPS, "prices")
        narrator.check(found["data"] == {"anvil": PRICES[name]}, "with its own content")
        narrator.check(
            [each["metadata"]["name"] for each in plane.objects(NODES)] == ["node-1"],
            "and its control plane has the node as a vNode",
        )


def logs(narrator: Narrator, environment: Environment, syncer: SyncerEnvironment) -> None:
    narrator.step("As by kubectl logs: each tenant's API server asks the vNode of its pod, which is vn-agent")
    for name, plane in syncer.planes.items():
        pod = _tenant_pod(syncer, name) or {}
        node = plane.find(NODES, "", pod["spec"]["nodeName"]) or {}
        (address,) = (each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
        port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        caller = environment.caller(name, environment.tenants[name].apiserver, port)
        narrator.request(name, f"GET https://{address}:{port}{LOG}")
        narrator.wait_for(partial(_is_served, caller), "vn-agent knows the pod")
        answer = caller.get(LOG)
        narrator.response(f"{answer.status_line}\n{answer.text}")
        uid = _super(syncer, name, PODS, "web")["metadata"]["uid"]
        narrator.check(
            answer.status == 200 and uid in answer.text, f"it is the log of the pod that runs for {name}"
        )


def service(narrator: Narrator, environment: SyncerEnvironment) -> None:
    narrator.step("Each Service web has two cluster IPs: its tenant's, and the super cluster's")
    narrator.wait_for(
        lambda: all(_service_ips(environment, name)[1] for name in environment.planes), "both show them"
    )
    rows = [("TENANT", "SERVICE", "TENANT'S IP", "SUPER CLUSTER'S IP")]
    rows += [(name, "shop/web", *_service_ips(environment, name)) for name in environment.planes]
    narrator.response("\n".join(columns(rows)))
    narrator.check(rows[1][2] == rows[2][2], "to the tenants it is the same address")
    for name, (_, _, own_ip, super_ip) in zip(environment.planes, rows[1:], strict=True):
        found = _super(environment, name, SERVICES, "web")
        narrator.check(
            found["spec"]["clusterIP"] == super_ip
            and found["metadata"]["annotations"][keys.CLUSTER_IP] == own_ip,
            f"{name}'s Service and that in the super cluster name each other's address",
        )
    narrator.note("(Scenario 3 shows how guests reach both addresses.)")


def refused(narrator: Narrator, environment: SyncerEnvironment) -> None:
    narrator.step("hooli makes a privileged pod, which the default SyncPolicy refuses")
    narrator.request("hooli", "create Pod shop/miner with securityContext.privileged: true")
    _create_pod(environment, "hooli", "miner", securityContext={"privileged": True})
    narrator.wait_for(lambda: bool(_refusals(environment)), "its tenant has an Event of it")
    message = _refusals(environment)[0]
    narrator.response(f"Warning  SyncRefused  pod/miner  {message}")
    narrator.check("spec.containers[0].securityContext.privileged" in message, "which names the field")
    namespace = _namespace(environment, "hooli")
    narrator.check(
        environment.super_cluster.find(PODS, namespace, "miner") is None, "the super cluster has no such pod"
    )


def foreign_edit(narrator: Narrator, environment: SyncerEnvironment) -> None:
    narrator.step("Somebody edits hooli's ConfigMap in the super cluster")
    namespace = _namespace(environment, "hooli")
    before = _super(environment, "hooli", CONFIG_MAPS, "prices")["metadata"]["resourceVersion"]
    narrator.request("somebody", f"update ConfigMap {namespace}/prices: anvil: 0")
    environment.super_cluster.edit(CONFIG_MAPS, namespace, "prices", data={"anvil": "0"})

    def is_repaired() -> bool:
        found = _super(environment, "hooli", CONFIG_MAPS, "prices")
        is_written = bool(found["metadata"]["resourceVersion"] != before)
        return is_written and found["data"] == {"anvil": PRICES["hooli"]}

    narrator.wait_for(is_repaired, "it is as the tenant has it again")


def foreign_deletion(narrator: Narrator, environment: SyncerEnvironment) -> None:
    narrator.step("Somebody deletes hooli's pod in the super cluster, as an eviction or a drain does")
    namespace = _namespace(environment, "hooli")
    other = _super(environment, "umbrella", PODS, "web")["metadata"]["uid"]
    own = (_tenant_pod(environment, "hooli") or {})["metadata"]["uid"]
    narrator.request("somebody", f"delete Pod {namespace}/web")
    environment.super_cluster.delete(PODS, namespace, "web")
    narrator.wait_for(
        lambda: _tenant_pod(environment, "hooli") is None,
        "the tenant's pod is deleted too, so it is not lost unseen",
    )
    narrator.note("(A ReplicaSet would make the next one now, and so does this demo.)")
    _create_pod(environment, "hooli", "web")
    narrator.wait_for(lambda: _is_running(environment, "hooli"), "the next one runs")
    new = (_tenant_pod(environment, "hooli") or {})["metadata"]["uid"]
    narrator.check(new != own, "it is another pod, with another UID")
    narrator.check(
        _super(environment, "umbrella", PODS, "web")["metadata"]["uid"] == other,
        "umbrella's web ran on meanwhile",
    )


def wiped(narrator: Narrator, environment: SyncerEnvironment) -> str:
    narrator.step("hooli's API server comes back empty at the same address: a lost etcd, and no backup")
    before = _super_state(environment)
    environment.planes["hooli"].wipe()
    key = environment.tenants["hooli"].key
    narrator.wait_for(
        lambda: any(held["reason"] == "TenantEmpty" for held in _held(environment).values()),
        "vc-syncer holds its deletions",
        within_s=HELD_WITHIN_S,
    )
    cli_calls.show(
        narrator, tenants_verb, "tenants", "--socket", str(environment.syncer.socket), "--tenant", key
    )
    environment.planes["umbrella"].create(CONFIG_MAPS, NAMESPACE, "hours", data={"monday": "9-17"})
    other = _namespace(environment, "umbrella")
    narrator.wait_for(
        lambda: environment.super_cluster.find(CONFIG_MAPS, other, "hours") is not None,
        "meanwhile a new ConfigMap of umbrella's goes down",
    )
    narrator.check(_super_state(environment) == before, "nothing of hooli's is deleted, and its pod runs on")
    token: str = next(iter(_held(environment).values()))["token"]
    narrator.check(bool(token), "an operator can release it by this token")
    return token


def released(narrator: Narrator, environment: SyncerEnvironment, token: str) -> None:
    narrator.step("It is meant: an operator releases the deletions")
    code, command = cli_calls.run(
        tenants_verb, "tenants", "--socket", str(environment.syncer.socket), "--release", token
    )
    narrator.request("operator", f"vcnode tenants --release {token}")
    narrator.response(command)
    narrator.check(code == 0, "the tool prints the command, for who may write VirtualClusters")
    narrator.request("operator", f"patch VirtualCluster team-hooli/hooli: {keys.RELEASE_HELD}={token}")
    environment.super_cluster.annotate_virtual_cluster("hooli", keys.RELEASE_HELD, token)
    namespace = _namespace(environment, "hooli")
    narrator.wait_for(
        lambda: environment.super_cluster.find(NAMESPACES, "", namespace) is None,
        "hooli's namespace and pod are deleted in the super cluster",
    )
    narrator.wait_for(lambda: not _held(environment), "nothing is held any more")
    narrator.check(_is_running(environment, "umbrella"), "umbrella's web runs on")


# ---- what is there


def _create_pod(environment: SyncerEnvironment, tenant: str, name: str, **container: Any) -> None:
    """Make a pod as a ReplicaSet does."""
    labels = {"app": name, "owner": tenant}
    app = {"name": "app", "image": "registry.example/web:1", **container}
    environment.planes[tenant].create(
        PODS, NAMESPACE, name, metadata={"labels": labels}, spec={"containers": [app]}
    )


def _namespace(environment: SyncerEnvironment, tenant: str) -> str:
    return environment.super_namespace(tenant, NAMESPACE)


def _tenant_pod(environment: SyncerEnvironment, tenant: str) -> Object | None:
    return environment.planes[tenant].find(PODS, NAMESPACE, "web")


def _is_running(environment: SyncerEnvironment, tenant: str) -> bool:
    pod = _tenant_pod(environment, tenant)
    return pod is not None and pod["status"].get("phase") == "Running"


def _super(environment: SyncerEnvironment, tenant: str, resource: Resource, name: str) -> Object:
    """The super object of an object in the tenant's namespace; empty if there is none."""
    namespace = _namespace(environment, tenant)
    where = ("", namespace) if resource == NAMESPACES else (namespace, name)
    return environment.super_cluster.find(resource, *where) or {}


def _is_owned(environment: SyncerEnvironment, tenant: str, resource: Resource, name: str) -> bool:
    annotations = _super(environment, tenant, resource, name).get("metadata", {}).get("annotations", {})
    return bool(annotations.get(keys.CLUSTER) == environment.tenants[tenant].key)


def _is_down(environment: SyncerEnvironment, tenant: str) -> bool:
    return all(_super(environment, tenant, resource, name) for _, resource, name in MADE)


def _is_served(caller: TenantClient) -> bool:
    """Whether vn-agent has both: the tenant and its pod."""
    try:
        return caller.get(LOG).status == 200
    except RefusedError:
        return False


def _service_ips(environment: SyncerEnvironment, tenant: str) -> tuple[str, str]:
    """What the tenant sees of its Service web: its own cluster IP, and the super cluster's."""
    own = environment.planes[tenant].find(SERVICES, NAMESPACE, "web") or {}
    annotations = own["metadata"].get("annotations") or {}
    return own["spec"]["clusterIP"], annotations.get(keys.SUPER_CLUSTER_IP, "")


def _refusals(environment: SyncerEnvironment) -> list[str]:
    """The messages of hooli's Events about refused objects."""
    found = environment.planes["hooli"].objects(EVENTS, NAMESPACE)
    return [each.get("message") or each.get("note", "") for each in found if each["reason"] == "SyncRefused"]


def _super_state(environment: SyncerEnvironment) -> list[str]:
    """The UIDs of hooli's objects in the super cluster, with the phase of its pod."""
    found = [_super(environment, "hooli", resource, name) for _, resource, name in MADE]
    return [each["metadata"]["uid"] for each in found] + [str(found[-1]["status"]["phase"])]


def _held(environment: SyncerEnvironment) -> dict[str, Any]:
    """hooli's held deletions, by side."""
    key = environment.tenants["hooli"].key
    for each in environment.syncer.status()["tenants"].values():
        if each.get("key") == key:
            return {side: held for side, held in each["held"].items() if held.get("token")}
    return {}
