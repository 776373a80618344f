# SPDX-License-Identifier: Apache-2.0
"""A registry's metrics as a scrape has them, without those of the process."""

from daemonkit.metrics import Registry
from daemonkit.status import exposition


def page_of(registry: Registry) -> str:
    """The page in the text format."""
    return exposition.render(registry.snapshot()).decode()


def samples_of(registry: Registry) -> dict[str, float]:
    """The value of each series, which is named as on the page."""
    lines = (line.rpartition(" ") for line in page_of(registry).splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}
