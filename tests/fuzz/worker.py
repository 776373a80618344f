# SPDX-License-Identifier: Apache-2.0
"""Runs one target under atheris: `python -m tests.fuzz.worker TARGET LIBFUZZER-ARGUMENT...`."""

import shlex
import sys
from importlib import import_module
from random import Random
from typing import Any

from tests.fuzz.edits import one_more_edit
from tests.fuzz.target import load
from tests.packages import PACKAGES


def main() -> None:
    """Returns never: libFuzzer ends the process."""
    # It has no types.
    atheris: Any = import_module("atheris")
    name, *arguments = sys.argv[1:]
    # Comparisons of text lead the fuzzer to the words that a parser looks for.
    atheris.enabled_hooks.add("str")
    with atheris.instrument_imports(include=list(PACKAGES), enable_loader_override=False):
        target = load(name)
    # The first word is what libFuzzer starts again, by a shell, to merge corpora.
    itself = shlex.join([sys.executable, "-m", "tests.fuzz.worker", name])

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)  # noqa: S311 - test data, no secret
        if target.seeds and random.randrange(2):
            return one_more_edit(data, target.seeds, random)[:max_size]
        mutated: bytes = atheris.Mutate(data, max_size)
        return mutated

    atheris.Setup([itself, *arguments], target.one_input, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
