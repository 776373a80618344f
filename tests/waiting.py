# SPDX-License-Identifier: Apache-2.0
"""Waits for a condition of another task or process. A failure shows the last values.

    await until(lambda: len(server.requests) == 2)
    AssertionError: not within 20 s: len(server.requests) == 2
      len(server.requests) = 1

The text and the values come from the lambda itself: its operands are evaluated once more at the end. Another
function is called once more, and shows its variables and its result.
"""

import ast
import asyncio
import contextlib
import linecache
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from types import FrameType, FunctionType, MethodType
from typing import TypeVar

DEADLINE_S = 20.0
_POLL_S = 0.01
_PATIENT_POLL_S = 0.02
_SHOWN_CHARACTERS = 2000
_RESULT = "its result"

T = TypeVar("T")


async def until(
    condition: Callable[[], object], *, within_s: float = DEADLINE_S, context: Callable[[], str] = str
) -> None:
    """Return as soon as `condition` is true. `context` adds to the failure, for example a log's end.

    Raises `AssertionError` with the last values.
    """
    end_s = asyncio.get_running_loop().time() + within_s
    while not condition():
        if asyncio.get_running_loop().time() > end_s:
            raise AssertionError(failure(condition, within_s, context))
        await asyncio.sleep(_POLL_S)


async def until_it_succeeds(
    call: Callable[[], Awaitable[T]], error: type[Exception], *, within_s: float = DEADLINE_S
) -> T:
    """Repeat an awaited call until it raises no `error`, and return its result.

    Raises `AssertionError` with the error of the last call.
    """
    end_s = asyncio.get_running_loop().time() + within_s
    while True:
        try:
            return await call()
        except error as last:
            if asyncio.get_running_loop().time() > end_s:
                raise AssertionError(f"{_message(call, within_s, [])}\n  it raised {last!r}") from last
        await asyncio.sleep(_POLL_S)


def wait_until(
    condition: Callable[[], object],
    *,
    within_s: float = DEADLINE_S,
    poll_s: float = _POLL_S,
    context: Callable[[], str] = str,
) -> float:
    """The same where no loop runs. Returns the seconds that it took."""
    begin_s = time.monotonic()
    while not condition():
        if time.monotonic() - begin_s > within_s:
            raise AssertionError(failure(condition, within_s, context))
        time.sleep(poll_s)
    return time.monotonic() - begin_s


def holds_within(condition: Callable[[], object], within_s: float) -> bool:
    """Whether the condition comes true in this time, for callers that report it themselves."""
    end_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        # Polling more often would take CPU time from the polled process.
        time.sleep(_PATIENT_POLL_S)
    return True


def failure(condition: Callable[[], object], within_s: float, context: Callable[[], str] = str) -> str:
    """The message of a failed wait: the condition and its last values."""
    return _message(condition, within_s, last_seen(condition), context)


async def awaited_failure(condition: Callable[[], object], within_s: float) -> str:
    """The same, where the condition may be an `async def`."""
    with _watched(condition) as seen:
        try:
            result = condition()
            if not asyncio.iscoroutine(result):
                return failure(condition, within_s)
            text = _shown(await result)
        except Exception as error:  # noqa: BLE001 - the message shows the exception
            text = _shown(error)
    return _message(condition, within_s, [*seen.items(), (_RESULT, text)])


def _message(
    condition: Callable[[], object],
    within_s: float,
    values: Iterable[tuple[str, str]],
    context: Callable[[], str] = str,
) -> str:
    lines = [f"not within {within_s:g} s: {source(condition)}"]
    lines += (f"  {name} = {value}" for name, value in values)
    lines += filter(None, [context()])
    return "\n".join(lines)


def source(condition: Callable[[], object]) -> str:
    """The text of a lambda's body; of anything else its name."""
    expression = _body(condition)
    if expression is not None:
        return ast.unparse(expression)
    return str(getattr(condition, "__qualname__", condition))


def last_seen(condition: Callable[[], object]) -> Iterator[tuple[str, str]]:
    """What the condition depends on, with the values now.

    Of a lambda: the operands of its body, but for constants. Of another function: its variables and result.
    """
    expression = _body(condition)
    if expression is None or not isinstance(condition, FunctionType):
        with _watched(condition) as seen:
            result = _evaluated(condition)
        yield from [*seen.items(), (_RESULT, result)]
        return
    closure = zip(condition.__code__.co_freevars, condition.__closure__ or (), strict=True)
    names = {**condition.__globals__, **{name: cell.cell_contents for name, cell in closure}}
    for operand in dict.fromkeys(map(ast.unparse, _operands(expression))):
        # A part of the test's own text.
        yield operand, _evaluated(partial(eval, operand, names))


@contextlib.contextmanager
def _watched(condition: Callable[[], object]) -> Iterator[dict[str, str]]:
    """Records the variables that the condition has when it returns."""
    seen: dict[str, str] = {}
    function = condition.__func__ if isinstance(condition, MethodType) else condition
    code = getattr(function, "__code__", None)

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code is code:
            seen.update((name, _shown(value)) for name, value in frame.f_locals.items())

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def _evaluated(call: Callable[[], object]) -> str:
    try:
        return _shown(call())
    except Exception as error:  # noqa: BLE001 - the message shows the exception
        return _shown(error)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - an object that a bug left half made
        text = repr(error)
    return textwrap.shorten(text, _SHOWN_CHARACTERS, placeholder=" ...")


def _body(condition: Callable[[], object]) -> ast.expr | None:
    """The expression of a lambda: the shortest one in its file that spans its instructions."""
    if not isinstance(condition, FunctionType) or condition.__name__ != "<lambda>":
        return None
    code = condition.__code__
    positions = {(line, column) for line, _, column, end in code.co_positions() if line and column and end}
    text = "".join(linecache.getlines(code.co_filename))
    lambdas = (node.body for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda))
    around = [body for body in lambdas if all(_spans(body, position) for position in positions)]
    return min(around, key=lambda body: len(ast.unparse(body)), default=None)


def _spans(body: ast.expr, position: tuple[int, int]) -> bool:
    end = (body.end_lineno or body.lineno, body.end_col_offset or 0)
    return (body.lineno, body.col_offset) <= position <= end


def _operands(expression: ast.expr) -> Iterator[ast.expr]:
    match expression:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _operands(value)
        case ast.UnaryOp(operand=operand):
            yield from _operands(operand)
        case ast.Compare(left=left, comparators=others):
            for value in (left, *others):
                yield from _operands(value)
        case ast.Constant():
            pass
        case _:
            yield expression
