# SPDX-License-Identifier: Apache-2.0
"""The page `/log-level`: the one thing that a daemon's status server changes.

`PUT /log-level?level=debug` changes the level until SIGHUP or a restart returns to the configured one. Each
level is a risk where others may choose it: `debug` fills the disk, `error` hides what happens. So only root
and the daemon's own user may, and only over the unix socket, where the kernel names the peer.
"""

from collections.abc import Mapping

from daemonkit import logs

PATH = b"/log-level"
DENIED = b"denied: the log level changes only over the unix socket, for root and the daemon's own user\n"

_log = logs.get(__name__)


def document() -> dict[str, str]:
    """The level now, and the one to which SIGHUP returns."""
    return {"level": logs.level_name(), "configured": logs.configured_level()}


def change(query: Mapping[str, str]) -> str:
    """Set the level that `query` has; return what is wrong with the query, else an empty text."""
    level, previous = query.get("level", ""), logs.level_name()
    if level not in logs.LEVELS:
        return f"level must be one of {', '.join(logs.LEVELS)}"
    is_quieter = logs.LEVELS[level] > logs.LEVELS[previous]
    if not is_quieter:
        logs.set_level(level)
    # While the lower of both levels is in use, or it would not be in the log.
    _log.warning("log level changed", log_level=level, previous=previous)
    logs.set_level(level)
    return ""
