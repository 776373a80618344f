# SPDX-License-Identifier: Apache-2.0
"""Reads a daemon's configuration file into a tree of frozen dataclasses.

The file has the form of Kubernetes component configuration: `apiVersion`, `kind`, camelCase keys. The
dataclasses are the schema: `setting` adds range, choices and purpose to a type, and `problems` relates fields
to each other. A reader gets the whole tree or every error at once, so that an operator mends all faults in
one restart.
"""

import collections
import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, overload

from daemonkit.config import yaml_values
from daemonkit.config.yaml_values import Value, YamlError

API_VERSION = "vcnode.io/v1alpha1"

# The largest file of this kind that makes sense is a tenant with a few certificates: some 20 KB.
MAX_FILE_BYTES = 1 << 20

_SHOWN_CHARACTERS = 60
_METADATA_KEY = "daemonkit.setting"

T = TypeVar("T")


class ConfigError(Exception):
    """A file that cannot be used. `errors` holds every fault as `path.to.key: what is wrong`."""

    def __init__(self, source: str, errors: Iterable[str]) -> None:
        self.source = source
        self.errors: tuple[str, ...] = tuple(errors)
        super().__init__(source, self.errors)

    def __str__(self) -> str:
        return "\n".join(f"{self.source}: {error}" for error in self.errors)


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What a field has beyond its type."""

    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] | None = None
    key: str | None = None
    is_secret: bool = False
    doc: str = ""
    minimum_length: int = 0


@overload
def setting(
    default: T,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Iterable[str] | None = None,
    key: str | None = None,
    is_secret: bool = False,
    doc: str = "",
    minimum_length: int = 0,
) -> T: ...


@overload
def setting(
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Iterable[str] | None = None,
    key: str | None = None,
    is_secret: bool = False,
    doc: str = "",
    minimum_length: int = 0,
) -> Any: ...


def setting(
    default: Any = dataclasses.MISSING,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Iterable[str] | None = None,
    key: str | None = None,
    is_secret: bool = False,
    doc: str = "",
    minimum_length: int = 0,
) -> Any:
    """Declare a dataclass field; without `default` it is required.

    `minimum` and `maximum` are inclusive and hold for a number or for each item of a list, as do
    `choices` and `minimum_length` for a string. `key` is the name in the file where camelCase of the field's
    name is not it. The value of a field with `is_secret` appears in no error. `doc` gives unit and purpose.
    """
    limits = Setting(
        minimum, maximum, None if choices is None else tuple(choices), key, is_secret, doc, minimum_length
    )
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={_METADATA_KEY: limits})
    return dataclasses.field(default=default, metadata={_METADATA_KEY: limits})


def repeated(where: str, keys: Iterable[str]) -> Iterator[str]:
    """For a `problems`: one error for each key that the list `where` has more than once."""
    for key, count in sorted(collections.Counter(keys).items()):
        if count > 1:
            yield f"{where}: {key} is listed more than once"


def load(path: Path, cls: type[T], *, kind: str) -> T:
    """Read the file as `cls`. Relative paths in it count from its directory, as the kubelet's do.

    Raises `ConfigError` when it cannot be read or anything in it is wrong.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(str(path), (f"cannot be read: {error.strerror}",)) from None
    # Absolute: some paths are passed to other programs.
    return parse(data, cls, kind=kind, source=str(path), directory=path.parent.absolute())


def parse(data: bytes, cls: type[T], *, kind: str, source: str, directory: Path | None = None) -> T:
    """Read `data`, the content of `source`, as `cls`; relative paths count from `directory`.

    Raises `ConfigError` with everything that is wrong.
    """
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(source, (f"larger than {MAX_FILE_BYTES} bytes",))
    try:
        document = yaml_values.decode(data.decode())
    except UnicodeDecodeError:
        raise ConfigError(source, ("not UTF-8",)) from None
    except YamlError as error:
        raise ConfigError(source, (str(error),)) from None
    if not isinstance(document, dict):
        raise ConfigError(source, (f"expected a mapping, got {_shown(document)}",))
    binder = _Binder(directory, takes_defaults=True)
    header = _header(document, kind, binder.errors)
    if header not in (None, kind):
        # A file of another kind is full of unknown keys: one error suffices.
        raise ConfigError(source, binder.errors)
    rest = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
    bound = binder.mapping(rest, cls, "")
    if not binder.errors:
        return bound
    # `problems` also runs where fields are wrong, with guesses in their place. An error that depends on the
    # guess is not an error of the file.
    other = _Binder(directory, takes_defaults=False)
    _header(document, kind, other.errors)
    other.mapping(rest, cls, "")
    raise ConfigError(source, (error for error in binder.errors if error in other.errors))


def _header(document: dict[str, Value], kind: str, errors: list[str]) -> Value:
    for key, wanted in (("apiVersion", API_VERSION), ("kind", kind)):
        if key not in document:
            errors.append(f"{key}: required; expected {wanted!r}")
        elif document[key] != wanted:
            errors.append(f"{key}: expected {wanted!r}, got {_shown(document[key])}")
    return document.get("kind")


class _WrongError(Exception):
    """One value is wrong; the text completes `path: `."""


class _Binder:
    """Binds plain values to dataclasses and collects what does not fit.

    A wrong value is replaced by a guess, so that `problems` can still run: the field's default with
    `takes_defaults`, else a sample.
    """

    def __init__(self, directory: Path | None, *, takes_defaults: bool) -> None:
        self.errors: list[str] = []
        self._directory = directory
        self._takes_defaults = takes_defaults
        self._wrong: set[str] = set()

    def mapping(self, value: Value, cls: type[T], path: str) -> T:
        """Build a `cls`; after adding at least one error, with guesses in it."""
        if not isinstance(value, dict):
            self._add(path, f"expected a mapping, got {_shown(value)}")
            self._wrong.add(path)
            return typing.cast("T", _sample(cls, Setting()))
        arguments: dict[str, Any] = {}
        fields = keys(typing.cast("typing.Hashable", cls))
        for key, (name, hint, limits, default) in fields.items():
            if key in value:
                arguments[name] = self._field(value[key], hint, limits, _join(path, key), default)
            elif default is dataclasses.MISSING:
                self._add(_join(path, key), "required")
                self._wrong.add(_join(path, key))
                arguments[name] = self._guess(hint, limits, default)
        for key in value:
            if key not in fields:
                self._add(_join(path, _key(key)), "unknown key" + _suggestion(key, fields))
        bound = cls(**arguments)
        for problem in _problems(bound):
            where, colon, what = problem.partition(": ")
            # A path has no space in it; a sentence before a colon has.
            is_pathed = colon and " " not in where
            if _join(path, where) not in self._wrong:
                self._add(_join(path, where) if is_pathed else path, what if is_pathed else problem)
        return bound

    def _field(
        self, value: Value, hint: Any, limits: Setting, path: str, default: Any = dataclasses.MISSING
    ) -> Any:
        try:
            return self._value(value, hint, limits, path)
        except _WrongError as wrong:
            self._add(path, str(wrong))
            self._wrong.add(path)
            return self._guess(hint, limits, default)

    def _value(self, value: Value, hint: Any, limits: Setting, path: str) -> Any:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            if value is None:
                return None
            (hint,) = (argument for argument in arguments if argument is not types.NoneType)
            return self._value(value, hint, limits, path)
        if origin is tuple:
            if not isinstance(value, list):
                raise _WrongError(f"expected a list, got {_shown(value, limits)}")
            item = arguments[0]
            return tuple(self._field(each, item, limits, f"{path}[{i}]") for i, each in enumerate(value))
        if origin is dict:
            if not isinstance(value, dict):
                raise _WrongError(f"expected a mapping, got {_shown(value, limits)}")
            return {
                key: self._field(each, arguments[1], limits, _join(path, _key(key)))
                for key, each in value.items()
            }
        if dataclasses.is_dataclass(hint):
            return self.mapping(value, typing.cast(type, hint), path)
        return _leaf(value, hint, limits, self._directory)

    def _guess(self, hint: Any, limits: Setting, default: Any) -> Any:
        has_default = self._takes_defaults and default is not dataclasses.MISSING
        return default if has_default else _sample(hint, limits)

    def _add(self, path: str, what: str) -> None:
        self.errors.append(f"{path}: {what}" if path else what)


def _sample(hint: Any, limits: Setting) -> Any:
    """A valid value for the field, as neutral as possible."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (hint,) = (argument for argument in arguments if argument is not types.NoneType)
        return _sample(hint, limits)
    if origin is tuple:
        return (_sample(arguments[0], limits),)
    if origin is dict:
        return {}
    if dataclasses.is_dataclass(hint):
        fields = keys(typing.cast("typing.Hashable", hint)).values()
        required = {
            name: _sample(inner, its_limits)
            for name, inner, its_limits, default in fields
            if default is dataclasses.MISSING
        }
        return typing.cast(type, hint)(**required)
    if hint is bool or hint is Path:
        return hint() if hint is bool else Path("/sample")
    if hint is str:
        return limits.choices[0] if limits.choices else "sample"
    if issubclass(hint, enum.Enum):
        return next(iter(hint))
    least = limits.minimum if limits.minimum is not None else limits.maximum
    return hint(1 if least is None else least)


def _leaf(value: Value, hint: Any, limits: Setting, directory: Path | None) -> Any:
    wrong = _WrongError(f"expected {_expected(hint, limits)}, got {_shown(value, limits)}")
    if hint is bool or hint is str or hint is Path:
        if not isinstance(value, bool if hint is bool else str):
            is_quotable = hint is not bool and isinstance(value, int | float)
            raise _WrongError(f"{wrong}; put it in quotes") if is_quotable else wrong
        if hint is Path:
            return _path(value, wrong, directory)
        if limits.choices is not None and value not in limits.choices:
            raise wrong
        if isinstance(value, str) and len(value) < limits.minimum_length:
            raise wrong
        return value
    if issubclass(hint, enum.Enum):
        for member in hint:
            if member.value == value and type(member.value) is type(value):
                return member
        raise wrong
    if isinstance(value, bool) or not isinstance(value, int if hint is int else (int, float)):
        raise wrong
    if not math.isfinite(value) or not _is_within(value, limits):
        raise wrong
    return hint(value)


def _path(value: object, wrong: _WrongError, directory: Path | None) -> Path:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise wrong
    return Path(value) if directory is None else directory / value


def _is_within(value: float, limits: Setting) -> bool:
    return (limits.minimum is None or value >= limits.minimum) and (
        limits.maximum is None or value <= limits.maximum
    )


def _expected(hint: Any, limits: Setting) -> str:
    if hint is bool:
        return "true or false"
    if hint is Path:
        return "a file path"
    if hint is str:
        noun = "a string" if limits.minimum_length == 0 else "a string that is not empty"
        return noun if limits.choices is None else _one_of(limits.choices)
    if issubclass(hint, enum.Enum):
        return _one_of(str(member.value) for member in hint)
    noun = "an integer" if hint is int else "a number"
    if limits.minimum is not None and limits.maximum is not None:
        return f"{noun} between {limits.minimum} and {limits.maximum}"
    if limits.minimum is not None:
        return f"{noun} of at least {limits.minimum}"
    if limits.maximum is not None:
        return f"{noun} of at most {limits.maximum}"
    return noun


def _one_of(choices: Iterable[str]) -> str:
    return "one of " + ", ".join(choice or "''" for choice in choices)


def _shown(value: Value, limits: Setting | None = None) -> str:
    """Name a value in an error without ever printing a secret, a certificate or a page of text."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if limits is not None and limits.is_secret:
        return "a value that is not shown"
    if isinstance(value, str):
        if len(value) > _SHOWN_CHARACTERS or not value.isprintable() or "-----" in value:
            return f"a text of {len(value)} characters"
        return repr(value)
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _key(key: str) -> str:
    """A key as a part of a path: quoted and cut unless it is an identifier."""
    return key if key.isidentifier() and len(key) <= _SHOWN_CHARACTERS else repr(key[:60])


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key


def _suggestion(key: str, known: Iterable[str]) -> str:
    import difflib  # only on the way to an error

    close = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _problems(bound: object) -> Iterator[str]:
    check = getattr(bound, "problems", None)
    return iter(()) if check is None else check()


class ConfigKey(typing.NamedTuple):
    """A key of the file and the field that it fills. `default` is MISSING where it is required."""

    field: str
    hint: Any
    setting: Setting
    default: Any


@functools.cache
def keys(cls: Any) -> dict[str, ConfigKey]:
    """The keys of the dataclass `cls` in a file, for reading it and for its reference."""
    hints = typing.get_type_hints(cls)
    result = {}
    for field in dataclasses.fields(cls):
        limits = field.metadata.get(_METADATA_KEY, Setting())
        default: Any = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        result[limits.key or _camel(field.name)] = ConfigKey(field.name, hints[field.name], limits, default)
    return result


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
