# SPDX-License-Identifier: Apache-2.0
"""A node with tenants a and b, what its engine leaves to the next one, and a text that lost its server."""

from devkit.kube.storage import Storage
from dnsconfig.cluster.snapshot import Picture
from dnsconfig.retention.resolver_retention import Keeping
from dnsconfig.retention.sandbox_networks import Attachments
from dnsconfig.saved_state import Restored, attachments_of, keeping_of, picture_of, state_of
from tests.unit.dnsconfig.node import Node
from tests.unit.dnsconfig.objects import tenant


def node(storage: Storage | None = None) -> Node:
    made = Node(storage)
    if storage is None:
        made.put(*tenant("a", default="10.96.0.10", blue="10.96.0.11"), *tenant("b", default="10.96.0.20"))
    return made


def as_saved(before: Node) -> tuple[Picture, Keeping, Attachments]:
    """What the next one finds on disk."""
    engine = before.engine
    state = state_of(engine.picture, engine.keeping, engine.attachments, 0.0)
    restored = Restored(
        picture_of(state),
        state.given,
        0.0,
        state.origins,
        state.losses,
        state.given_networks,
        state.attachments,
    )
    return restored.picture, keeping_of(restored, 0.0, before.clock()), attachments_of(restored)


def without_server(uid_text: str) -> None:
    """A text with a line that says why, and with no server."""
    assert uid_text == (
        "# The DNS server of network blue (Service kube-system/kube-dns-blue) is gone, "
        "and its address may be somebody else's by now.\n"
        "search shop.svc.cluster.local svc.cluster.local cluster.local\n"
        "options ndots:5\n"
    )
