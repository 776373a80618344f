# SPDX-License-Identifier: Apache-2.0
"""What a module of `tests.fuzz.targets` defines as `TARGET`."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.fuzz.edits import message_of

CORPUS = Path(__file__).parent / "corpus"
_TARGETS = Path(__file__).parent / "targets"


@dataclass(frozen=True, slots=True)
class FuzzTarget:
    """A parser and what must hold for whatever it is given.

    `check` raises for a message that breaks an invariant. `seeds` are whole, mostly valid messages, and
    `tokens` pieces of the grammar: inputs that are edits of seeds get past the parser's first check.
    """

    check: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    tokens: tuple[bytes, ...] = ()
    max_bytes: int = 4096

    def one_input(self, data: bytes) -> None:
        """Check what an input stands for. Raises what the invariants raise."""
        self.check(message_of(data, self.seeds, self.tokens))


def names() -> list[str]:
    """All targets."""
    return sorted(path.stem for path in _TARGETS.glob("[a-z]*.py"))


def load(name: str) -> FuzzTarget:
    """Import one target alone: the fuzzer instruments what is imported for it."""
    target: FuzzTarget = import_module(f"tests.fuzz.targets.{name}").TARGET
    return target


def corpus_of(name: str) -> list[Path]:
    """The inputs that are checked in."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
