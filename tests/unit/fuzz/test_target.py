# SPDX-License-Identifier: Apache-2.0
"""The corpora that fuzzing has gathered, without the fuzzer: each input keeps its target's invariants."""

import pytest

from tests.fuzz.target import CORPUS, FuzzTarget, corpus_of, load, names

MAX_CORPORA_BYTES = 400 << 10


@pytest.mark.parametrize("name", names())
def test_each_input_of_the_corpus_keeps_the_invariants(name: str) -> None:
    target = load(name)
    inputs = [*((str(number), seed) for number, seed in enumerate(target.seeds))]
    inputs += [(path.name, path.read_bytes()) for path in corpus_of(name)]
    assert len(inputs) > len(target.seeds), "no corpus: python -m tests.fuzz NAME --merge"
    broken = [f"{each}: {error!r}" for each, data in inputs if (error := _error(name, data)) is not None]
    assert broken == []


def _error(name: str, data: bytes) -> Exception | None:
    try:
        load(name).one_input(data)
    except Exception as error:  # noqa: BLE001 - reported with the input's name
        return error
    return None


def test_corpora_are_small_and_have_a_target() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == set(names())
    assert all(path.parent.parent == CORPUS for path in files)
    assert sum(path.stat().st_size for path in files) < MAX_CORPORA_BYTES


def test_a_finding_says_what_does_not_hold() -> None:
    def check(data: bytes) -> None:
        raise AssertionError("too long")

    with pytest.raises(AssertionError) as found:
        FuzzTarget(check, seeds=()).one_input(b"x" * 400)
    line, *values = str(found.value).splitlines()
    assert line == 'raise AssertionError("too long")'
    assert [value[:20] for value in values] == ["too long", "data = b'xxxxxxxxxxx"]
    assert len(values[1]) < 300, "a value is cut"
