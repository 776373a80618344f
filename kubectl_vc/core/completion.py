# SPDX-License-Identifier: Apache-2.0
"""What a shell may complete: kubectl passes the words behind `vc`, the last of which is to be completed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Cobra's ShellCompDirectiveNoFileComp: the shell adds no files of its own.
_NO_FILES = ":4"
_FILES = ":0"


class WordPlace(NamedTuple):
    """What stands at the place: a verb, a flag, or the value of an argument (`kind` is its name)."""

    kind: str
    verb: str = ""
    name: str = ""
    namespace: str = ""


class VerbWords(NamedTuple):
    """Of one verb: its flags, by flag the argument that the next word is for (empty: none), and the
    positional arguments, of which the last may repeat."""

    flags: Mapping[str, str]
    positionals: tuple[str, ...]


def place_of(words: Sequence[str], verbs: Mapping[str, VerbWords]) -> WordPlace:
    """What the last of the words is."""
    *before, last = words or [""]
    every_flag = {flag: kind for each in verbs.values() for flag, kind in each.flags.items()}
    # One flag may be of two kinds: `-o` is a format, or a file.
    every_flag |= next((verbs[word].flags for word in before if word in verbs), {})
    values: dict[str, str] = {}
    positionals: list[str] = []
    pending = ""
    for word in before:
        if pending:
            values[pending] = word
            pending = ""
        elif word.startswith("-"):
            flag, has_value, value = word.partition("=")
            if has_value:
                values[every_flag.get(flag, "")] = value
            else:
                pending = every_flag.get(flag, "")
        else:
            positionals.append(word)
    verb = positionals[0] if positionals else ""
    name = positionals[1] if len(positionals) > 1 else ""
    found = WordPlace("", verb, name, values.get("namespace", ""))
    if pending:
        return found._replace(kind=pending)
    if last.startswith("-"):
        flag, has_value, _ = last.partition("=")
        return found._replace(kind=every_flag.get(flag, "") if has_value else "flag")
    if not verb:
        return found._replace(kind="verb")
    if verb not in verbs:
        return found
    places = verbs[verb].positionals
    at = len(positionals) - 1
    # `get` and `rotate` repeat their last one.
    kind = places[min(at, len(places) - 1)] if places and (at < len(places) or places[-1] == "names") else ""
    return found._replace(kind=kind)


def lines(candidates: Sequence[str], last: str, *, has_files: bool) -> list[str]:
    """What kubectl reads: candidates that begin as the word does, and a directive."""
    flag, has_value, value = last.partition("=") if last.startswith("--") else ("", "", last)
    prefix = f"{flag}=" if has_value else ""
    begun = value if has_value or not flag else last
    return [
        *(f"{prefix}{each}" for each in candidates if each.startswith(begun)),
        _FILES if has_files else _NO_FILES,
    ]
