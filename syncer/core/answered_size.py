# SPDX-License-Identifier: Apache-2.0
"""How many bytes an object has when an API server answers with it. Pure.

Go's encoder writes `<`, `>`, `&` and the line separators U+2028 and U+2029 as six bytes each
(https://pkg.go.dev/encoding/json#Marshal, as of Go 1.25; backspace and form feed too before 1.22). Ours does
not, and a tenant's API server may be any program. So what was read in one cluster may be up to six times as
large in the other. An object above the read limit there could not be cached, nor counted by the quota.
"""

MAX_ANSWERED_BYTES = 7 << 19
"""What goes to either cluster has no more: 3.5 of the 5 MiB that are read of an object
(`daemonkit.kube.object_limits`). What the server adds has the rest, above all `managedFields`, which repeat
all keys. A ConfigMap that etcd takes has 1.5 MiB, and so much only where much of it is such characters."""
MOST_TIMES = 6
"""How much larger it may get."""
# What our encoder writes, and by how many bytes Go's is longer.
_MORE_BYTES = (
    (b"<", 5),
    (b">", 5),
    (b"&", 5),
    ("\u2028".encode(), 3),
    ("\u2029".encode(), 3),
    (rb"\b", 4),
    (rb"\f", 4),
)


def answered_bytes(encoded: bytes) -> int:
    """The bytes of JSON that our encoder has written, as Go's encoder writes it; at least as many."""
    return len(encoded) + sum(more * encoded.count(text) for text, more in _MORE_BYTES)
