# SPDX-License-Identifier: Apache-2.0
"""Random changes of existing namespaces, one write each."""

import json
import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from tests.k8s.oracle.draw import Drawing, DrawnNamespace, Json, ingress, rules_left_to_chance

SERVICES, SLICES = "services", "endpointslices"
_MOST_SERVICES = 9


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """A write that makes the objects of `before` those of `after`.

    `value` is the object, or with the verb "patch" a JSON merge patch of it or of its status.
    """

    before: DrawnNamespace
    after: DrawnNamespace
    verb: str
    kind: str
    name: str
    value: Json
    is_status: bool = False

    @property
    def service(self) -> str:
        """The Service whose rules it may change."""
        if self.kind == SERVICES:
            return self.name
        objects = self.before.slices if self.verb == "delete" else self.after.slices
        found: str = objects[self.name]["metadata"]["labels"]["kubernetes.io/service-name"]
        return found

    def __str__(self) -> str:
        what = f" {self.value}" if self.verb == "patch" else ""
        return f"{self.verb} {self.kind} {self.after.name}/{self.name}{what}"

    def whole(self) -> str:
        """With the object before and after."""
        objects = (one.services if self.kind == SERVICES else one.slices for one in (self.before, self.after))
        was, now = (json.dumps(one.get(self.name)) for one in objects)
        return f"{self}\n    was {was}\n    is  {now}"


def draw_change(rng: random.Random, drawn: DrawnNamespace) -> ObjectChange:
    """A random change; `drawn` itself stays as it is."""
    while True:
        after = deepcopy(drawn)
        draw = rng.choices(_DRAWN, weights=_WEIGHTS)[0]
        made = draw(Drawing(rng, after), drawn)
        if made is not None and not rules_left_to_chance(after):
            return made


def _flip(drawing: Drawing, before: DrawnNamespace) -> ObjectChange | None:
    """An endpoint becomes ready, begins to terminate, or moves."""
    one = _some_slice(drawing)
    if one is None or not one["endpoints"]:
        return None
    endpoint = drawing.rng.choice(one["endpoints"])
    what = drawing.rng.random()
    if what < 0.75:
        endpoint["conditions"] = drawing.conditions()
    elif what < 0.85:
        endpoint["nodeName"] = drawing.node_of(endpoint["addresses"][0])
    else:
        endpoint["hints"] = drawing.hints(drawing.hint_style())
    return _replaced(drawing, before, one)


def _resize(drawing: Drawing, before: DrawnNamespace) -> ObjectChange | None:
    """Add or remove an endpoint."""
    one = _some_slice(drawing)
    if one is None:
        return None
    if one["endpoints"] and drawing.chance(0.5):
        one["endpoints"].remove(drawing.rng.choice(one["endpoints"]))
    else:
        one["endpoints"].append(drawing.endpoint(one["addressType"], drawing.hint_style()))
    return _replaced(drawing, before, one)


def _renumber(drawing: Drawing, before: DrawnNamespace) -> ObjectChange | None:
    """Endpoints keep their addresses and change their ports."""
    one = _some_slice(drawing)
    service = one and one["metadata"]["labels"]["kubernetes.io/service-name"]
    if one is None or service not in drawing.drawn.services:
        return None
    one["ports"] = drawing.slice_ports(service)
    return _replaced(drawing, before, one)


def _remake_slice(drawing: Drawing, before: DrawnNamespace) -> ObjectChange | None:
    """Delete or create a slice."""
    one = _some_slice(drawing)
    if one is not None and drawing.chance(0.5):
        name = one["metadata"]["name"]
        del drawing.drawn.slices[name]
        return ObjectChange(before, drawing.drawn, "delete", SLICES, name, {})
    service = drawing.rng.choice(sorted(drawing.drawn.services) or ["svc-0"])
    if service not in drawing.drawn.services:
        return None
    made = drawing.slice(service, drawing.rng.choice(("IPv4", "IPv6")), drawing.rng.randint(0, 4))
    name = made["metadata"]["name"]
    if name in drawing.drawn.slices:
        return None
    drawing.drawn.slices[name] = made
    return ObjectChange(before, drawing.drawn, "create", SLICES, name, made)


def _edit_service(drawing: Drawing, before: DrawnNamespace) -> ObjectChange | None:
    """A field of a Service's specification."""
    name, service = _some_service(drawing)
    if service is None or service["spec"]["type"] == "ExternalName":
        return None
    spec = service["spec"]
    what = drawing.rng.choice(
        ("internalTrafficPolicy", "externalTrafficPolicy", "affinity", "externalIPs", "ranges", "ports")
    )
    match what:
        case "internalTrafficPolicy" | "externalTrafficPolicy":
            patch: Json = {what: drawing.policy()}
        case "affinity":
            patch = {"sessionAffinityConfig": None, **drawing.affinity()}
        case "externalIPs":
            patch = {what: drawing.external_ips(name) if drawing.chance(0.7) else None}
        case "ranges":
            patch = {"loadBalancerSourceRanges": drawing.ranges() if drawing.chance(0.7) else None}
        case _:
            patch = {"ports": drawing.ports()}
    spec |= patch
    return ObjectChange(before, drawing.drawn, "patch", SERVICES, name, {"spec": patch})


def _edit_status(drawing: Drawing, before: DrawnNamespace) -> ObjectChange | None:
    """Change load balancer addresses."""
    name, service = _some_service(drawing)
    if service is None or service["spec"]["type"] != "LoadBalancer":
        return None
    balancer = {"ingress": drawing.ingress(name, service["spec"].get("externalIPs") or ())}
    if ingress(service) == balancer["ingress"]:
        return None
    service["status"] = {"loadBalancer": balancer}
    return ObjectChange(
        before,
        drawing.drawn,
        "patch",
        SERVICES,
        name,
        {"status": {"loadBalancer": {"ingress": balancer["ingress"] or None}}},
        is_status=True,
    )


def _relabel(drawing: Drawing, before: DrawnNamespace) -> ObjectChange | None:
    """Label a Service for another proxy, or remove that label."""
    name, service = _some_service(drawing)
    if service is None:
        return None
    key = "service.kubernetes.io/service-proxy-name"
    value = None if key in service["metadata"]["labels"] else "another"
    patch = {"metadata": {"labels": {key: value}}}
    if value is None:
        del service["metadata"]["labels"][key]
    else:
        service["metadata"]["labels"][key] = value
    return ObjectChange(before, drawing.drawn, "patch", SERVICES, name, patch)


def _remake_service(drawing: Drawing, before: DrawnNamespace) -> ObjectChange | None:
    """Delete a Service but not its slices; or create one."""
    names = sorted(drawing.drawn.services)
    if len(names) > 2 and drawing.chance(0.5):
        name = drawing.rng.choice(names)
        del drawing.drawn.services[name]
        return ObjectChange(before, drawing.drawn, "delete", SERVICES, name, {})
    free = [name for number in range(_MOST_SERVICES) if (name := f"svc-{number}") not in names]
    if not free:
        return None
    name = drawing.rng.choice(free)
    made = drawing.drawn.services[name] = drawing.service(name)
    return ObjectChange(before, drawing.drawn, "create", SERVICES, name, made)


_Draw = Callable[[Drawing, DrawnNamespace], ObjectChange | None]
_DRAWN: tuple[_Draw, ...] = (
    *(_flip, _resize, _renumber, _remake_slice, _edit_service, _edit_status, _relabel, _remake_service),
)
_WEIGHTS = (40, 16, 5, 9, 18, 5, 2, 5)


def _some_slice(drawing: Drawing) -> Json | None:
    names = sorted(drawing.drawn.slices)
    return drawing.drawn.slices[drawing.rng.choice(names)] if names else None


def _some_service(drawing: Drawing) -> tuple[str, Json | None]:
    names = sorted(drawing.drawn.services)
    if not names:
        return "", None
    name = drawing.rng.choice(names)
    return name, drawing.drawn.services[name]


def _replaced(drawing: Drawing, before: DrawnNamespace, one: Json) -> ObjectChange:
    name = one["metadata"]["name"]
    return ObjectChange(before, drawing.drawn, "put", SLICES, name, one)
