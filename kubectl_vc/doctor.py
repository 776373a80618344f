# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc doctor`: reads as far as the person may."""

from collections.abc import Mapping

from kubectl_vc.core.doctor import OPERATOR, TenantFacts, diagnoses, lines
from kubectl_vc.core.faults import FaultReason, PluginError, RequestError, sentence
from kubectl_vc.core.view import CLUSTER_VERSIONS, Object
from kubectl_vc.invocation import EXIT_DONE, EXIT_FAILED, Invocation
from kubectl_vc.port import DEFAULT_NAMESPACE, EVERY_NAMESPACE

_WORKLOADS = ("deployments.apps", "replicasets.apps", "statefulsets.apps")


def doctor(invocation: Invocation) -> int:
    """Print what is wrong; failed if anything is."""
    view = invocation.virtual_cluster()
    reader = _FactsReader(invocation)
    root = view.root_namespace
    events = reader.list("events", view.namespace, {"involvedObject.uid": view.uid})
    workloads: list[Object] | None = None
    if root:
        found = [reader.list(each, root) for each in _WORKLOADS]
        workloads = [value for values in found for value in values or ()]
        events = [*(events or ()), *(reader.list("events", root) or ())]
    facts = TenantFacts(
        view,
        versions=reader.list(CLUSTER_VERSIONS),
        leases=reader.list("leases.coordination.k8s.io", EVERY_NAMESPACE, {"metadata.name": OPERATOR}),
        events=events,
        pods=reader.list("pods", root) if root else None,
        workloads=workloads,
        claims=reader.list("persistentvolumeclaims", root) if root else None,
        unread=tuple(reader.unread),
    )
    facts = facts._replace(unread=tuple(reader.unread))
    found_wrong = diagnoses(facts, invocation.now())
    for line in lines(facts, found_wrong, invocation.now()):
        invocation.print(line)
    return EXIT_FAILED if found_wrong else EXIT_DONE


class _FactsReader:
    """Notes what may not be read, and goes on."""

    def __init__(self, invocation: Invocation) -> None:
        self._cluster = invocation.cluster
        self.unread: list[str] = []

    def list(
        self, resource: str, namespace: str = DEFAULT_NAMESPACE, selector: Mapping[str, str] | None = None
    ) -> list[Object] | None:
        """All objects; None if they may not be read. Raises PluginError if the API server is away."""
        name = resource.partition(".")[0]
        where = f" in namespace {namespace}" if namespace not in (DEFAULT_NAMESPACE, EVERY_NAMESPACE) else ""
        try:
            return self._cluster.list_objects(resource, namespace, selector=selector)
        except RequestError as error:
            if error.fault.reason in (FaultReason.FORBIDDEN, FaultReason.NOT_FOUND, FaultReason.NO_RESOURCE):
                self.unread.append(f"{name}{where} ({error.fault.reason.value})")
                return None
            raise PluginError(sentence(f"list {name}{where}", error.fault)) from None
