# SPDX-License-Identifier: Apache-2.0
"""The part of every daemon's configuration for its log."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from daemonkit import logs
from daemonkit.config.binding import setting

# Whether lines are JSON; None where that depends on stderr.
_IS_JSON = {"auto": None, "json": True, "text": False}


@dataclass(frozen=True, slots=True)
class LoggingConfig:
    """What is logged, and in which form."""

    level: str = setting(
        "info",
        choices=logs.LEVELS,
        doc="the least level that is logged; `vcnode log-level` changes it until a restart or SIGHUP",
    )
    format: str = setting(
        "auto", choices=_IS_JSON, doc="of a line; `auto` is text if stderr is a terminal, else JSON"
    )

    @property
    def is_json(self) -> bool | None:
        """The form for `daemonkit.logs.configure`."""
        return _IS_JSON[self.format]


@runtime_checkable
class HasLogging(Protocol):
    """A configuration with this part."""

    @property
    def logging(self) -> LoggingConfig: ...


def apply_logging(config: object) -> None:
    """Log as `config` has it from now on, if it is a daemon's configuration."""
    if isinstance(config, HasLogging):
        logs.configure(level=config.logging.level, is_json=config.logging.is_json)
