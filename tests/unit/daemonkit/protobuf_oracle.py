# SPDX-License-Identifier: Apache-2.0
"""google.protobuf as the judge of `daemonkit.protobuf`: random messages, and how ours should read.

Needs grpc_tools, which brings the compiler as a module: no process is started.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from hypothesis import strategies as st

# These have no types.
protoc: Any = importlib.import_module("grpc_tools.protoc")
descriptor_pb2: Any = importlib.import_module("google.protobuf.descriptor_pb2")
descriptor_pool: Any = importlib.import_module("google.protobuf.descriptor_pool")
message_factory: Any = importlib.import_module("google.protobuf.message_factory")
unknown_fields: Any = importlib.import_module("google.protobuf.unknown_fields")
DecodeError: type[Exception] = importlib.import_module("google.protobuf.message").DecodeError

_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_SCALARS: Mapping[str, st.SearchStrategy[Any]] = {
    "TYPE_BOOL": st.booleans(),
    "TYPE_INT32": st.integers(-(1 << 31), (1 << 31) - 1),
    "TYPE_ENUM": st.one_of(st.integers(0, 12), st.integers(-(1 << 31), (1 << 31) - 1)),
    "TYPE_INT64": st.integers(-(1 << 63), (1 << 63) - 1),
    "TYPE_UINT32": st.integers(0, (1 << 32) - 1),
    "TYPE_UINT64": st.integers(0, (1 << 64) - 1),
    "TYPE_STRING": st.one_of(_TEXT, st.just("x" * 300)),
    "TYPE_BYTES": st.binary(max_size=200),
}


class Oracle:
    """The messages of one .proto file. `imports_from` is the directory that its imports count from."""

    def __init__(self, file: Path, imports_from: Path, scratch: Path) -> None:
        out = scratch / "descriptors"
        arguments = [
            "protoc",
            f"-I{imports_from}",
            f"--descriptor_set_out={out}",
            "--include_imports",
            str(file),
        ]
        assert protoc.main(arguments) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
        pool = descriptor_pool.DescriptorPool()
        for each in files:
            pool.Add(each)
        self.descriptor: Any = pool.FindFileByName(files[-1].name)

    @staticmethod
    def unknown_numbers(message: Any) -> set[int]:
        """The numbers of the fields that the judge has kept as unknown."""
        return {each.field_number for each in unknown_fields.UnknownFieldSet(message)}

    def message(self, name: str) -> Any:
        """The judge's class of that message."""
        return message_factory.GetMessageClass(self.descriptor.message_types_by_name[name])

    def check_declarations(self, *modules: ModuleType) -> None:
        """Every message of the file has its dataclass with the same fields and numbers."""
        for name, descriptor in self.descriptor.message_types_by_name.items():
            ours = _find(name, modules)
            numbers = {
                field.name: field.metadata["daemonkit.protobuf"][0]
                for field in cast("Any", ours).__dataclass_fields__.values()
            }
            assert numbers == {field.name: field.number for field in descriptor.fields}, name

    def calls(self, service: str) -> set[tuple[str, str, str, bool, bool]]:
        """Path, request, reply and which of them are streams, of each of a service's methods."""
        return {
            (
                f"/{method.containing_service.full_name}/{method.name}",
                method.input_type.name,
                method.output_type.name,
                method.client_streaming,
                method.server_streaming,
            )
            for method in self.descriptor.services_by_name[service].methods
        }


def messages(descriptor: Any) -> st.SearchStrategy[Any]:
    """Messages of the judge's with anything in them."""
    made = message_factory.GetMessageClass(descriptor)
    return st.builds(
        lambda given: made(**given),
        st.fixed_dictionaries(
            {}, optional={field.name: _value(field) for field in descriptor.fields if _is_ours(field)}
        ),
    )


def _is_ours(field: Any) -> bool:
    return field.message_type is not None or _type(field) in _SCALARS


def _type(field: Any) -> str:
    return next(
        name for name in dir(field) if name.startswith("TYPE_") and getattr(field, name) == field.type
    )


def _value(field: Any) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = _value(field.message_type.fields_by_name["value"])
        key = _SCALARS[_type(field.message_type.fields_by_name["key"])]
        return st.dictionaries(key, value, max_size=3)
    one = messages(field.message_type) if field.message_type is not None else _SCALARS[_type(field)]
    return st.lists(one, max_size=3) if field.is_repeated else one


def as_ours(theirs: Any, modules: Sequence[ModuleType], cls: type | None = None) -> Any:
    """What a dataclass, by default that of the message's name, has fields for of the judge's message."""
    ours: Any = cls or _find(theirs.DESCRIPTOR.name, modules)
    fields = theirs.DESCRIPTOR.fields_by_name
    return ours(**{name: _our_value(theirs, fields[name], modules) for name in ours.__dataclass_fields__})


def _our_value(theirs: Any, field: Any, modules: Sequence[ModuleType]) -> Any:
    value = getattr(theirs, field.name)
    if field.message_type is None:
        return tuple(value) if field.is_repeated else value
    if field.message_type.GetOptions().map_entry:
        is_message = field.message_type.fields_by_name["value"].message_type is not None
        return {key: as_ours(value[key], modules) if is_message else value[key] for key in value}
    if field.is_repeated:
        return tuple(as_ours(each, modules) for each in value)
    return as_ours(value, modules) if theirs.HasField(field.name) else None


def _find(name: str, modules: Sequence[ModuleType]) -> Callable[..., Any]:
    for module in modules:
        if hasattr(module, name):
            return cast("Callable[..., Any]", getattr(module, name))
    raise AssertionError(f"no dataclass for message {name}")
