# SPDX-License-Identifier: Apache-2.0
"""Scenario 6: vc-operator. One object becomes a tenant, which sleeps, wakes and is deleted.

A person has `kubectl vc` alone. Nothing else is made by hand.
"""

import json
import socket
import time

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, SECRETS, VIRTUAL_CLUSTERS
from devkit.kube.storage import Object
from devkit.kube.workloads import DEPLOYMENTS, PERSISTENT_VOLUME_CLAIMS, STATEFUL_SETS
from vcnode.terminal import columns
from vcnode_demo.environment import Environment
from vcnode_demo.narrator import Narrator
from vcnode_demo.operator_environment import OperatorEnvironment

NAMESPACE, NAME = "team-wayne", "wayne"
_WHERE = ("-n", NAMESPACE)
_CONNECT_S = 1.0


def run(narrator: Narrator, environment: Environment) -> None:
    """All steps, in order. Raises CheckFailedError."""
    narrator.begin_scenario("Scenario 6: vc-operator, from one object to a tenant and to nothing")
    operator = environment.open_operator()
    create(narrator, operator)
    made_of(narrator, operator)
    kubeconfig(narrator, operator)
    sleep(narrator, operator)
    wake(narrator, operator)
    delete(narrator, environment, operator)


def create(narrator: Narrator, environment: OperatorEnvironment) -> None:
    narrator.step("A person makes a tenant, and waits until it is Ready")
    environment.add_namespace(NAMESPACE)
    _vc(narrator, environment, "create", NAME, *_WHERE)
    _vc(narrator, environment, "get", *_WHERE)
    status = _cluster(environment)["status"]
    narrator.check(status["phase"] == "Running", f"it runs, as {status['clusterNamespace']}")
    narrator.check(_condition(environment, "SyncerAttached") == "True", "vc-syncer serves it")
    narrator.check(
        _condition(environment, "NodesServing") == "True",
        "the node's vn-agent knows its API server",
    )


def made_of(narrator: Narrator, environment: OperatorEnvironment) -> None:
    narrator.step("What vc-operator has made of that one object")
    key = _key(environment)
    found = environment.super_cluster
    rows = [("KIND", "IN NAMESPACE " + key)]
    for kind, resource in (("StatefulSet", STATEFUL_SETS), ("Deployment", DEPLOYMENTS), ("Secret", SECRETS)):
        names = [each["metadata"]["name"] for each in found.objects(resource, key)]
        rows.append((kind, f"{len(names)}: {', '.join(sorted(names))}"))
    narrator.response("\n".join(columns(rows)))
    registered = [found.find(SECRETS, key, name) or {} for name in ("root-ca", "apiserver-ca")]
    narrator.check(
        all("data" in each and set(each["data"]) == {"tls.crt"} for each in registered),
        "what nodes read of it has certificates alone, no key",
    )
    narrator.note(
        "(The fake kubelet runs a fake API server with the certificate of Secret apiserver-serving.)"
    )


def kubeconfig(narrator: Narrator, environment: OperatorEnvironment) -> None:
    narrator.step("Its administrator gets a kubeconfig without a key, and uses it")
    file = environment.directory / "wayne.kubeconfig"
    _vc(narrator, environment, "kubeconfig", NAME, *_WHERE, "-o", str(file))
    text = file.read_text()
    narrator.check(
        "key-data" not in text and "PRIVATE KEY" not in text,
        "the file has no key: kubectl-vc is its exec plugin, with a certificate of a day",
    )
    manifest = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "batmobile"}}
    endpoint = _cluster(environment)["status"]["endpoint"]
    narrator.check(endpoint in text, f"it leads to the tenant's own API server, {endpoint}")
    code, output = environment.kubectl(
        "create", "--filename=-", "--kubeconfig", str(file), text_in=json.dumps(manifest)
    )
    narrator.request("admin", "kubectl --kubeconfig wayne.kubeconfig create configmap batmobile")
    narrator.response(output)
    narrator.check(code == 0, "an object is made in the tenant")
    _get(narrator, environment, "namespaces", "it is a cluster of its own: no namespace of the super cluster")
    narrator.wait_for(
        lambda: bool(
            environment.super_cluster.find(CONFIG_MAPS, f"{_key(environment)}-default", "batmobile")
        ),
        "vc-syncer has copied the object into the tenant's super namespace",
    )


def sleep(narrator: Narrator, environment: OperatorEnvironment) -> None:
    narrator.step("Put to sleep, a tenant has no pod, and keeps its volume")
    _vc(narrator, environment, "sleep", NAME, *_WHERE)
    key = _key(environment)
    narrator.wait_for(lambda: _replicas(environment) == 0, "its workloads have no replica, the store at last")
    narrator.wait_for(lambda: not _answers(environment), "its API server does not listen")
    claims = environment.super_cluster.objects(PERSISTENT_VOLUME_CLAIMS, key)
    narrator.check(len(claims) == 1, f"the claim {claims[0]['metadata']['name']} stays")


def wake(narrator: Narrator, environment: OperatorEnvironment) -> None:
    narrator.step("It wakes by one command, with all that it had")
    began_s = time.monotonic()
    _vc(narrator, environment, "wake", NAME, *_WHERE)
    took_s = time.monotonic() - began_s
    _get(narrator, environment, "configmaps", "its object is there again", "batmobile")
    narrator.note(f"({took_s:.1f} s after the request, with the start of two programs.)")


def delete(narrator: Narrator, environment: Environment, operator: OperatorEnvironment) -> None:
    narrator.step("Deleted, it leaves nothing")
    key, uid = _key(operator), _cluster(operator)["metadata"]["uid"]
    before = environment.agent.metric("vcnode_vnagent_tenants")
    _vc(narrator, operator, "delete", NAME, *_WHERE, "--yes")
    narrator.check(
        operator.super_cluster.find(VIRTUAL_CLUSTERS, NAMESPACE, NAME) is None, "the VirtualCluster is gone"
    )
    narrator.check(operator.owned(NAMESPACES, uid) == [], f"so are {key} and the tenant's super namespaces")
    kinds = (SECRETS, CONFIG_MAPS, DEPLOYMENTS, STATEFUL_SETS, PERSISTENT_VOLUME_CLAIMS)
    left = [name for resource in kinds for name in operator.owned(resource, uid)]
    narrator.check(left == [], "no Secret, no workload and no volume is left, nor its kubeconfig")
    narrator.wait_for(
        lambda: environment.agent.metric("vcnode_vnagent_tenants") == before - 1,
        "and vn-agent has forgotten its API server",
    )


# ---- what is there


def _vc(narrator: Narrator, environment: OperatorEnvironment, *words: str) -> None:
    """Run the plugin, and print what it prints. Raises CheckFailedError."""
    shown = " ".join("wayne.kubeconfig" if "/" in each else each for each in words)
    narrator.request("person", f"kubectl vc {shown}")
    code, output = environment.kubectl("vc", *words)
    narrator.response(output.replace(f"{environment.directory}/", ""))
    narrator.check(code == 0, f"kubectl vc {words[0]} ended well")


def _get(
    narrator: Narrator, environment: OperatorEnvironment, resource: str, claim: str, name: str = "default"
) -> None:
    """List objects by the tenant's kubeconfig, among which must be this one, and none of the super cluster's
    tenants."""
    narrator.request("admin", f"kubectl --kubeconfig wayne.kubeconfig get {resource}")
    file = environment.directory / "wayne.kubeconfig"
    code, output = environment.kubectl("get", resource, "--kubeconfig", str(file))
    narrator.response(output)
    lines = [line.rpartition("/")[2] for line in output.splitlines()]
    narrator.check(code == 0 and name in lines and NAMESPACE not in lines, claim)


def _cluster(environment: OperatorEnvironment) -> Object:
    return environment.super_cluster.find(VIRTUAL_CLUSTERS, NAMESPACE, NAME) or {}


def _key(environment: OperatorEnvironment) -> str:
    key: str = _cluster(environment)["status"]["clusterNamespace"]
    return key


def _condition(environment: OperatorEnvironment, kind: str) -> str:
    found = _cluster(environment)["status"]["conditions"]
    return next((each["status"] for each in found if each.get("type") == kind), "")


def _replicas(environment: OperatorEnvironment) -> int:
    key, found = _key(environment), environment.super_cluster
    each = (*found.objects(DEPLOYMENTS, key), *found.objects(STATEFUL_SETS, key))
    return sum(int(workload["status"]["replicas"]) for workload in each)


def _answers(environment: OperatorEnvironment) -> bool:
    """Whether something listens where the tenant's API server does."""
    host, port = _cluster(environment)["status"]["endpoint"].removeprefix("https://").split(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except OSError:
        return False
    return True
