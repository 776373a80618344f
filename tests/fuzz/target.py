# SPDX-License-Identifier: Apache-2.0
"""What a module of `tests.fuzz.targets` defines as `TARGET`."""

import linecache
import reprlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.fuzz.edits import message_of

CORPUS = Path(__file__).parent / "corpus"
# Of each value in the message of an assertion.
_VALUES = reprlib.Repr()
_VALUES.maxstring = _VALUES.maxother = 280
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
        """Check what an input stands for. Raises what the invariants raise: an assertion with its values."""
        message = message_of(data, self.seeds, self.tokens)
        try:
            self.check(message)
        except AssertionError as error:
            raise AssertionError(_explained(error)) from error


def _explained(error: AssertionError) -> str:
    """The line that failed, and the values there: targets are not read by pytest, which shows both."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    values = [f"{name} = {_VALUES.repr(value)}" for name, value in frame.f_locals.items()]
    return "\n".join(
        [linecache.getline(frame.f_code.co_filename, line).strip(), *map(str, error.args), *values]
    )


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
