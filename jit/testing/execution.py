"""Running a program on a back end, and what came of it.

    outcome = execute(module, "cpu", arguments)
    outcome.results                  # arrays in storage form, or None
    outcome.describe()               # "PluginError: ..." where it failed

``isolated`` runs something in a child process, where it may crash or never end.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hlojit.arrays import Array, from_storage
from hlojit.compiler import compile as compile_program
from hlojit.compiler import default_pipeline
from hlojit.extensions import CompileOptions, Device, registry
from hlojit.extensions.calls.elementwise_calls import one_compilation
from hlojit.ir.environment import scope_for
from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.graph import Instruction, Module, Value
from hlojit.ir.interpreter import Interpreter
from hlojit.ir.resolution import resolved
from hlojit.ir.scalar.arrays import to_compute, to_storage
from hlojit.ir.types import TensorType
from hlojit.placement import get, put
from hlojit.testing.effects import Effect, effect_of, is_effect, stand_ins
from hlojit.testing.memory import OF_MEANING, PATTERNS, unwritten_memory

NDArray = np.ndarray[Any, Any]

MOST_EVALUATIONS = 50_000
"""Of instructions, by the interpreter, beyond which a program counts as endless."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results in storage form; or how the program was ``refused``, ended in an ``error``, a ``crash``, or was ``endless``."""

    results: tuple[NDArray, ...] | None = None
    kind: str = "results"
    message: str = ""

    @property
    def is_good(self) -> bool:
        """Whether there are results."""
        return self.results is not None

    def describe(self) -> str:
        """One line for a message."""
        if self.results is None:
            return f"{self.kind}: {self.message}"
        return ", ".join(np.array2string(each, threshold=16, edgeitems=4, separator=", ") for each in self.results)


def result_types(module: Module) -> list[TensorType]:
    """Types of the entry function's results, which must be tensors."""
    return [value.tensor_type for value in module.main.body.returned]


def argument_types(module: Module) -> list[TensorType]:
    """Types of the entry function's arguments, which must be tensors."""
    return [argument.tensor_type for argument in module.main.body.arguments]


def execute(
    module: Module,
    backend: str | Sequence[str],
    arguments: Sequence[NDArray],
    options: CompileOptions | Mapping[str, Any] | None = None,
    *,
    place: Device | None = None,
) -> Outcome:
    """Compile and run once, with arguments on a device if one is given; no exception but ``KeyboardInterrupt`` leaves."""
    try:
        executable = compile_program(module, backend=backend, options=options)
        with unwritten_memory(PATTERNS[0]):
            return run_executable(executable, module, arguments, place)
    except UnsupportedError as error:
        return Outcome(None, "refused", str(error))
    except Exception as error:
        return Outcome(None, "error", f"{type(error).__name__}: {error}")


def run_executable(
    executable: Any, module: Module, arguments: Sequence[NDArray], place: Device | None = None
) -> Outcome:
    """Call an executable of a module; arguments and results in storage form."""
    try:
        given: list[Any] = list(map(from_storage, arguments, argument_types(module)))
        results = executable(*given if place is None else [put(each, place) for each in given])
    except HlojitError as error:
        return Outcome(None, "error", f"{type(error).__name__}: {error}")
    types = result_types(module)
    found = results if len(types) != 1 else (results,)
    if place is not None:
        found = tuple(map(get, found))
    return Outcome(tuple(storage_of(each, kind) for each, kind in zip(found, types, strict=True)))


class _Bounded(Interpreter):
    """An interpreter that gives up: programs that are made smaller may have loops without an end."""

    left = MOST_EVALUATIONS
    told: list[Effect] | None = None
    """Where calls with effects are written down; then nobody needs to know what they give."""

    def evaluate(self, instruction: Instruction, operands: list[Any], environment: dict[Value, Any]) -> list[Any]:
        self.left -= 1
        if self.left < 0:
            raise _EndlessError
        if self.told is not None and is_effect(instruction):
            self.told.append(effect_of(instruction, operands))
            return list(stand_ins(instruction))
        return super().evaluate(instruction, operands, environment)


class _EndlessError(Exception):
    pass


def interpret(module: Module, arguments: Sequence[NDArray], told: list[Effect] | None = None) -> Outcome:
    """The meaning of a program by the records' NumPy semantics, whatever a back end may say; ``endless`` if it takes too long.

    With ``told`` calls with effects are written down there, and give zeros.
    """
    scope = scope_for(module.environment).snapshot()
    try:
        with scope.activate(), np.errstate(all="ignore"):
            current = resolved(module, scope)
            kinds = argument_types(current)
            entered = [to_compute(array, kind.element_type) for array, kind in zip(arguments, kinds, strict=True)]
            interpreter = _Bounded(current)
            interpreter.told = told
            results = interpreter.call(current.main.name, entered)
            kinds = result_types(current)
            stored = [
                to_storage(np.asarray(each), kind.element_type) for each, kind in zip(results, kinds, strict=True)
            ]
    except _EndlessError:
        return Outcome(None, "endless", f"more than {MOST_EVALUATIONS} instructions")
    except Exception as error:
        return Outcome(None, "error", f"{type(error).__name__}: {error}")
    return Outcome(tuple(np.array(each) for each in stored))


def meaning_of(module: Module, arguments: Sequence[NDArray]) -> Outcome:
    """What a program means: by the records' semantics, or, where calls have none, as the reference back end expands them."""
    with unwritten_memory(OF_MEANING):
        meant = interpret(module, arguments)
        return _expanded_meaning(module, arguments) if meant.kind == "error" else meant


def _expanded_meaning(module: Module, arguments: Sequence[NDArray]) -> Outcome:
    """The same with calls bound: by the interpreter too, which gives up what never ends."""
    scope = scope_for(module.environment).snapshot()
    try:
        with one_compilation(), scope.activate():
            working = module.clone()
            working.environment = scope
            default_pipeline(registry().backend("reference"), CompileOptions()).run(working)
    except UnsupportedError as error:
        return Outcome(None, "refused", str(error))
    except Exception as error:
        return Outcome(None, "error", f"{type(error).__name__}: {error}")
    return interpret(working, arguments)


def storage_of(result: Any, kind: TensorType) -> NDArray:
    """A result as it lies in memory: the storage dtype of its element type."""
    array = result.storage if isinstance(result, Array) else np.asarray(result)
    element = kind.element_type
    return array if array.dtype == element.storage else array.astype(element.storage)


# ------------------------------------------------------------------- children


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child process ended: with a ``value``, or with a ``reason`` (signal, time, exit); ``trace`` is what it said last."""

    value: Any = None
    reason: str = ""
    trace: str = ""


def can_isolate() -> bool:
    """Whether the system has what ``isolated`` needs."""
    return hasattr(os, "fork")


def isolated(function: Callable[[Callable[[str], None]], Any], *, seconds: float = 60.0) -> Ended:
    """Call ``function(say)`` in a forked child and return its (pickled) value, or how the child died.

    What it said last (``say(text)``) is told when it dies.  Without ``os.fork`` it is called in this process.
    """
    if not can_isolate():
        return Ended(function(lambda text: None))
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _child(function, reader, writer)
    os.close(writer)
    try:
        data, late = _read_all(reader, time.monotonic() + seconds)
    finally:
        os.close(reader)
    if late:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    trace, value = _messages(data)
    if late:
        return Ended(None, f"did not end within {seconds:g} s", trace)
    if os.WIFSIGNALED(status):
        return Ended(None, f"died of {signal.Signals(os.WTERMSIG(status)).name}", trace)
    if value is None:
        return Ended(None, f"left with status {os.waitstatus_to_exitcode(status)}", trace)
    return Ended(value[0], "", trace)


def _child(function: Callable[[Callable[[str], None]], Any], reader: int, writer: int) -> None:
    """The child: never returns."""
    os.close(reader)
    faulthandler.disable()
    # How it dies is told by its status, not by what is written on the way.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    status = 1
    with contextlib.suppress(BaseException):

        def send(what: tuple[str, Any]) -> None:
            content = pickle.dumps(what)
            payload = memoryview(len(content).to_bytes(8, "little") + content)
            while payload:
                payload = payload[os.write(writer, payload) :]

        value = function(lambda text: send(("say", text)))
        send(("value", value))
        status = 0
    os._exit(status)


def _read_all(reader: int, until: float) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return b"".join(parts), True
        part = os.read(reader, 1 << 20)
        if not part:
            return b"".join(parts), False
        parts.append(part)


def _messages(data: bytes) -> tuple[str, tuple[Any] | None]:
    """The last thing said, and the value, if it came."""
    said, value, place = "", None, 0
    while place + 8 <= len(data):
        size = int.from_bytes(data[place : place + 8], "little")
        if place + 8 + size > len(data):
            break
        what, content = pickle.loads(data[place + 8 : place + 8 + size])
        place += 8 + size
        if what == "say":
            said = content
        else:
            value = (content,)
    return said, value


def execute_isolated(
    module: Module,
    backend: str | Sequence[str],
    arguments: Sequence[NDArray],
    options: CompileOptions | Mapping[str, Any] | None = None,
    *,
    seconds: float = 60.0,
) -> Outcome:
    """As ``execute``, in a child process: a crash is an outcome."""
    ended = isolated(lambda say: execute(module, backend, arguments, options), seconds=seconds)
    if ended.reason:
        return Outcome(None, "endless" if "did not end" in ended.reason else "crash", ended.reason)
    found: Outcome = ended.value
    return found
