# SPDX-License-Identifier: Apache-2.0
"""All kinds that are synced: without being named in the configuration, and by their names in it. Pure."""

from collections.abc import Iterable, Mapping

from syncer.kinds import configmap, endpoints, namespace, secret, service, service_account
from syncer.kinds.pod import sync as pod
from syncer.kinds.port import KindSync

DEFAULT: tuple[KindSync, ...] = (
    namespace.SYNC,
    service_account.SYNC,
    configmap.SYNC,
    secret.SYNC,
    service.SYNC,
    endpoints.SYNC,
    pod.SYNC,
)

OPTIONAL: Mapping[str, KindSync] = {}
"""By their names in `resources` of the configuration, which are upstream's."""


def kinds(resources: Iterable[str]) -> tuple[KindSync, ...]:
    """The default kinds, and those of these names."""
    return (*DEFAULT, *(OPTIONAL[name] for name in resources))


def optional_names() -> frozenset[str]:
    """The names that `resources` of the configuration may have."""
    return frozenset(OPTIONAL)
