# SPDX-License-Identifier: Apache-2.0
"""What is there from the start of the ring, so that it is old enough once all else is tested.

A pod whose token is renewed, and a CronJob that fires at the next minute.
"""

from __future__ import annotations

import datetime as dt

from tenancy import keys
from tests.k8s.syncer.shops import Shop, object_of, pod, pod_spec

AGING_POD = "aging"
AGING_TOKEN = "/token/short"
CRON_JOB = "tick"
_NAMESPACE = "aging"
_SHORTEST_S = 600


def start_aging(shop: Shop) -> Shop:
    """Create both in a namespace of its own; does not wait."""
    made = Shop(shop.ring, shop.tenant, _NAMESPACE, shop.syncer)
    made.create()
    source = {"serviceAccountToken": {"expirationSeconds": _SHORTEST_S, "path": "short"}}
    spec = pod_spec(volumes=[{"name": "token", "projected": {"sources": [source]}}])
    spec["containers"][0]["volumeMounts"] = [{"name": "token", "mountPath": "/token"}]
    made.wait("its account", lambda: made.find("serviceaccounts", "default") is not None)
    # On a network of its own: the default one ends before them. A drain leaves `app` alone.
    labels = {"app": AGING_POD, keys.ARKTOS_NETWORK: AGING_POD}
    made.apply(pod(AGING_POD, spec, labels=labels))
    # Its job does not end, so that it fires once.
    job = {**pod_spec("echo ticked", "exec sleep 100000"), "restartPolicy": "Never"}
    cron = {
        "schedule": "* * * * *",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"template": {"metadata": {"labels": labels}, "spec": job}}},
    }
    made.apply(object_of("batch/v1", "CronJob", CRON_JOB, spec=cron))
    return made


def aging_began(shop: Shop) -> float:
    """When it was created, in seconds of the day's clock."""
    text = shop.get("pods", AGING_POD)["metadata"]["creationTimestamp"]
    return dt.datetime.fromisoformat(text).timestamp()
