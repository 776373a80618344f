# SPDX-License-Identifier: Apache-2.0
"""Resizes that may not go down: by the tenant's quota, and by admission of the super cluster."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.images import AGNHOST, BUSYBOX
from tests.k8s.ring.pods import container
from tests.k8s.syncer import policies
from tests.k8s.syncer.shops import Shop, is_ready, object_of, pod, pod_spec, service

pytestmark = pytest.mark.timeout(300)

_SMALL, _LARGE = "100m", "600m"
_QUOTA = {"hard": {"requests.cpu": "1"}}

# Ends when a file asks for it, and is never ready again.
_FALLER = """
[ -e /shared/fell ] && exec sleep 100000
: > /shared/ready
while [ ! -e /shared/fall ]; do sleep 0.1; done
rm /shared/ready; : > /shared/fell; exit 3
"""


def test_a_pod_grows_to_its_quota_and_no_further(shop: Shop) -> None:
    """Container by container, and with another image: what the API server makes of each patch is counted."""
    names = ("one", "two", "three")
    spec = {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            container(name, ["sh", "-c", "exec sleep 100000"], resources=_resources(_SMALL)) for name in names
        ],
    }
    with policies.applied(shop.super_api, quota=_QUOTA):
        shop.apply(pod("web", spec, labels={"app": "web"}))
        shop.wait_running("app=web")
        _resize(shop, one=_LARGE)
        shop.wait("one has grown", lambda: _cpus(shop) == {"one": _LARGE, "two": _SMALL, "three": _SMALL})
        # Both count until the kubelet has carried a resize out; what it has comes up.
        shop.wait("the kubelet has", lambda: _allocated(shop)["one"] == _LARGE)
        _resize(shop, two=_LARGE)
        shop.wait("it is refused", lambda: "requests.cpu" in shop.reports("Pod", "web", "SyncRefused"))
        shop.kubectl("set", "image", "pod/web", f"two={AGNHOST}").check()
        _resize(shop, three=_LARGE)
        _wait_for_later(shop)
        assert _cpus(shop) == {"one": _LARGE, "two": _SMALL, "three": _SMALL}
        assert _images(shop) == {"one": BUSYBOX, "two": AGNHOST, "three": BUSYBOX}
        assert _condition(shop, "vcnode.io/Synced") == "False"
        # Within the quota again, it is as its owner wrote it, although the kubelet still has more for one.
        _resize(shop, one=_SMALL, three=_SMALL)
        shop.wait("two has grown", lambda: _cpus(shop) == {"one": _SMALL, "two": _LARGE, "three": _SMALL})
        shop.wait("that is reported", lambda: _condition(shop, "vcnode.io/Synced") == "True")


def test_a_refused_resize_hides_no_crash(shop: Shop) -> None:
    """The super cluster refuses what goes down. What comes up is the truth, and Services follow it."""
    spec = pod_spec(_FALLER, volumes=[{"name": "shared", "emptyDir": {}}])
    main = spec["containers"][0]
    main |= {
        "resources": {**_resources(_SMALL), "limits": {"cpu": "1"}},
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
        "readinessProbe": {"exec": {"command": ["test", "-e", "/shared/ready"]}, "periodSeconds": 1},
    }
    shop.apply(service("web", "web", 80), pod("web", spec, labels={"app": "web"}))
    shop.wait_running("app=web")
    shop.wait("it has its endpoint", lambda: _ready_endpoints(shop) == [True])
    limits = object_of(
        "v1", "LimitRange", "most", spec={"limits": [{"type": "Container", "max": {"cpu": "500m"}}]}
    )
    shop.super_api.create(f"/api/v1/namespaces/{shop.super_namespace}/limitranges", limits)
    resized = f"/api/v1/namespaces/{shop.super_namespace}/pods/web/resize?dryRun=All"
    body = json.dumps(_sizes(main=_LARGE)).encode()
    content = {"Content-Type": "application/strategic-merge-patch+json"}
    ask = partial(shop.super_api.endpoint.request, "PATCH", resized, body=body, headers=content)
    # An API server enforces limits a moment after they are made.
    shop.wait("limits are enforced", lambda: ask().status == 403)
    _resize(shop, main=_LARGE)
    shop.wait("it is refused", lambda: "maximum cpu" in shop.reports("Pod", "web", "FailedCreate"))
    shop.sh("web", ": > /shared/fall").check()
    shop.wait("its crash is above", lambda: _restarts(shop) == 1)
    shop.wait("it is not ready", lambda: not is_ready(shop.get("pods", "web")))
    shop.wait("no Service leads to it", lambda: _ready_endpoints(shop) == [False])
    assert _cpus(shop) == {"main": _SMALL}
    assert _condition(shop, "vcnode.io/Synced") == "False"


def _resources(cpu: str) -> JsonObject:
    return {"requests": {"cpu": cpu}}


def _sizes(**cpus: str) -> JsonObject:
    return {
        "spec": {"containers": [{"name": name, "resources": _resources(cpu)} for name, cpu in cpus.items()]}
    }


def _resize(shop: Shop, **cpus: str) -> None:
    shop.kubectl("patch", "pod", "web", "--subresource=resize", "--patch", json.dumps(_sizes(**cpus))).check()


def _wait_for_later(shop: Shop) -> None:
    """Until what the tenant made after all else is below."""
    shop.apply(object_of("v1", "ConfigMap", "later", data={"a": "b"}))
    shop.wait("a later object is below", lambda: shop.in_super("configmaps", "later") is not None)


def _below(shop: Shop) -> list[JsonObject]:
    found = shop.in_super("pods", "web")
    assert found is not None
    containers: list[JsonObject] = found["spec"]["containers"]
    return containers


def _cpus(shop: Shop) -> dict[str, str]:
    return {each["name"]: each["resources"]["requests"]["cpu"] for each in _below(shop)}


def _allocated(shop: Shop) -> dict[str, str]:
    """The CPU that the kubelet has set aside for each container, as the tenant sees it."""
    statuses = shop.get("pods", "web")["status"]["containerStatuses"]
    return {each["name"]: each.get("allocatedResources", {}).get("cpu", "") for each in statuses}


def _images(shop: Shop) -> dict[str, str]:
    return {each["name"]: each["image"] for each in _below(shop)}


def _condition(shop: Shop, kind: str) -> str:
    conditions = shop.get("pods", "web")["status"]["conditions"]
    return next((str(each["status"]) for each in conditions if each["type"] == kind), "")


def _restarts(shop: Shop) -> int:
    (status,) = shop.get("pods", "web")["status"]["containerStatuses"]
    return int(status["restartCount"])


def _ready_endpoints(shop: Shop) -> list[bool]:
    """Of the tenant's slices: whether each endpoint is ready."""
    return [
        each["conditions"]["ready"]
        for found in shop.items("endpointslices")
        for each in found.get("endpoints") or []
    ]
