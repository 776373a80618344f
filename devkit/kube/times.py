# SPDX-License-Identifier: Apache-2.0
"""Times as Kubernetes writes them."""

import datetime as dt


def at(now_s: float) -> str:
    """A time in whole seconds (meta/v1 Time)."""
    return f"{dt.datetime.fromtimestamp(int(now_s), dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
