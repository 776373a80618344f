# SPDX-License-Identifier: Apache-2.0
"""The ports for bearer tokens, each with the keys of its file: for each process that serves connections."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from daemonkit.files.watched import Watched
from vnagent.config import TokenListener
from vnagent.core import jwks
from vnagent.core.bearer_token import TokenTerms
from vnagent.core.jwks import JwksError, MissingLibraryError
from vnagent.downstream.token_port import TokenPort
from vnagent.metrics import AgentMetrics
from vnagent.reload import Reloadable

if TYPE_CHECKING:
    from vnagent.token_keys import TokenKey


def load_keys(path: Path) -> "dict[str, TokenKey]":
    """The keys of the file by their `kid`. Raises JwksError, whose text does not name the file."""
    # 12 MB, which a node without such a listener does not need. vcnode-agent only recommends them.
    try:
        from vnagent.token_keys import load
    except ImportError as error:
        raise MissingLibraryError(f"the Python library {error.name} is not installed") from None
    return load(path)


class ConfiguredTokenPort:
    """One port. `problem` is why the file of its keys cannot be used now; the last good keys stay."""

    def __init__(self, config: TokenListener, metrics: AgentMetrics, now_s: float) -> None:
        """Load the keys, as far as there are any. `now_s` is monotonic."""
        self._config = config
        terms = TokenTerms(config.tenant, config.issuer, config.audience, frozenset(config.subjects))
        count = functools.partial(metrics.count_token_refusal, config.tenant)
        self.port = TokenPort(config.port, terms, count, now_s)
        self.problem: str | None = None
        self._watched = Watched.files((config.jwks_file,), max_file_bytes=jwks.MAX_BYTES)
        self._watched.poll()  # so that the present content is not a change later
        self._load()  # `start_check` has logged a problem

    @property
    def reloadable(self) -> Reloadable:
        """The file of the keys."""

        async def reload() -> str | None:
            self._load()
            return None if self.problem is None else f"{self._config.jwks_file}: {self.problem}"

        return Reloadable(f"token keys of {self._config.tenant}", self._watched.poll, reload)

    def _load(self) -> None:
        """Use the keys of the file, or keep the last good ones."""
        self.problem = None
        try:
            self.port.use_keys(load_keys(self._config.jwks_file))
        except JwksError as error:
            self.problem = str(error)
