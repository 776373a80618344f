# SPDX-License-Identifier: Apache-2.0
"""Rights in a tenant's control plane: vc-syncer's, without which it cannot begin, and its administrators'."""

from collections.abc import Sequence
from typing import Any

from tenant_operator.defaults.documents import read_manifests
from tenant_operator.model.objects import Object

SYNCER_FILE = "vc-syncer.yaml"
ADMINS_FILE = "tenant-admins.yaml"

RIGHTS_FILES = (SYNCER_FILE, ADMINS_FILE)

_SYNCER_ROLE = "vcnode:vc-syncer"


def syncer_role(text: str, more_rules: Sequence[Object] = ()) -> tuple[Object, ...]:
    """The ClusterRoles of `vcnode:vc-syncers` and their bindings, as SYNCER_FILE has them.

    `more_rules` are for vc-syncer's `customResources`, which the operator's configuration repeats.
    """
    manifests = read_manifests(text, SYNCER_FILE)
    return tuple(_with_rules(each, more_rules) for each in manifests)


def _with_rules(manifest: Object, more_rules: Sequence[Object]) -> Object:
    is_role = manifest["kind"] == "ClusterRole" and manifest["metadata"]["name"] == _SYNCER_ROLE
    if not (is_role and more_rules):
        return manifest
    rules: list[Any] = manifest["rules"]
    return {**manifest, "rules": [*rules, *more_rules]}
