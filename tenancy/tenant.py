# SPDX-License-Identifier: Apache-2.0
"""A tenant as the node knows it: its key, its certificate authorities, its registered clients."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_CLUSTER_DOMAIN = "cluster.local"


class Role(enum.Enum):
    """What a registered client may ask for.

    An apiserver may use every endpoint that is open to tenants, a metrics client the pages only.
    """

    APISERVER = "apiserver"
    METRICS = "metrics"


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant's registration.

    `authorities` are DER certificates. `clients` maps the lower-case hex SHA-256 of a leaf's
    SubjectPublicKeyInfo (RFC 5280, 4.1.2.7) to its role: a key, not a certificate, so that a
    renewal with the same key passes, and a map, so that old and new keys overlap in a rotation.
    """

    key: str
    authorities: tuple[bytes, ...]
    clients: Mapping[str, Role]
    cluster_domain: str = DEFAULT_CLUSTER_DOMAIN
