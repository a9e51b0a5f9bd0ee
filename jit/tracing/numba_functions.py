"""Functions of ``numba.njit`` that traced functions call: parts of the compiled program, without Python in between.

    @numba.njit
    def relax(u, omega): ...            # writes u, and returns a number

    @hlojit.jit
    def solve(u):
        error = relax(u, 1.5)           # one call of numba's code; u is written, error is a float of Python's

A function of numbers that cannot raise becomes arithmetic of the kernel around it.  Any other one becomes a call of the program:
numba compiles it with checked indices, for arrays in row-major order that it may only read; those that it writes, which
numba's types tell, are copied for it, and the copies are written back as an assignment of the traced function's would be.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hlojit.extensions.calls.array_calls import ArrayCall
from hlojit.extensions.calls.elementwise_calls import ElementwiseCall, elementwise_record
from hlojit.extensions.functions.array_functions import ArrayFunction
from hlojit.extensions.functions.numba_arrays import compile_arrays
from hlojit.extensions.functions.numba_bridge import numbas_lock
from hlojit.ir.code_reads import reads
from hlojit.ir.errors import PluginError
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.formats import element_type_of
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.known_modules import known_version
from hlojit.ir.types import TensorType, tensor
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numba_callers import is_of_jitted
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

Shape = tuple[int, ...]

_private: Final = itertools.count()


def is_numba_function(function: Any) -> bool:
    """Whether numba compiles a function for the CPU when this is called; numba is not loaded to know."""
    module: Any = sys.modules.get("numba.core.registry")
    return module is not None and isinstance(function, module.CPUDispatcher)


def called(ops: Operations, function: Any, *arguments: Any, **named: Any) -> Any:
    """A call in a traced function; one without traced arguments is made while the function is traced."""
    if not any(isinstance(each, Tracer) for each in (*arguments, *named.values())):
        return function(*arguments, **named)
    return _traced(ops, function, arguments, named, None)


def numba_call(function: Any, *arguments: Any, shape: Any, **named: Any) -> Any:
    """A call of a function of ``numba.njit`` that returns arrays, of these shapes: ``hlojit.numba_call(f, x, shape=(3, 4))``.

    For several arrays ``shape`` is a list of shapes.  Outside of jitted functions ``function`` is called as it is.  Raises
    ``TracingError`` where ``function`` is no function of numba's; a result of another shape ends the call with an error.
    """
    if not is_numba_function(function):
        raise TracingError(f"hlojit.numba_call takes a function of numba.njit, not {function!r}")
    shapes = shape if isinstance(shape, list) else [shape]
    ops = Operations.in_work.get()
    if ops is None or not any(isinstance(each, Tracer) for each in (*arguments, *named.values())):
        return function(*arguments, **named)
    return _traced(ops, function, arguments, named, [tuple(map(int, each)) for each in shapes])


# ------------------------------------------------------------------------------------------------------ what is called


@dataclass(frozen=True)
class _Result:
    """One thing that a function returns: a number, or an array of a shape."""

    dtype: np.dtype[Any]
    shape: Shape | None

    @property
    def type(self) -> TensorType:
        """Numbers are arrays without dimensions."""
        return tensor(self.shape or (), element_type_of(self.dtype))


@dataclass(frozen=True)
class _Site:
    """A call: the function, what each argument is, which of them are written, and what is returned."""

    function: Any
    operands: tuple[TensorType, ...]
    numbers: tuple[bool, ...]
    """Which of the operands are numbers."""
    written: tuple[int, ...]
    results: tuple[_Result, ...]
    is_tuple: bool

    @property
    def types(self) -> list[TensorType]:
        """Of all that the call gives: what is returned, then what is written."""
        return [*(each.type for each in self.results), *(self.operands[number] for number in self.written)]


def _traced(
    ops: Operations, function: Any, arguments: Sequence[Any], named: dict[str, Any], shapes: list[Shape] | None
) -> Any:
    ops.mark()
    name = function.py_func.__qualname__
    given = _bound(function, name, arguments, named)
    values = [_value(ops, name, number, each) for number, each in enumerate(given)]
    numbers = tuple(not _is_array(each) for each in given)
    with numbas_lock():
        site = _site(function, name, [value.tensor_type for value in values], numbers, shapes)
    for number in site.written:
        _require_alone(name, number, given)
    found = _inlined(ops, site, values) or _call(ops, site, values)
    for number, value in zip(site.written, found[len(site.results) :]):
        given[number][...] = ops.wrap(value)
    returned = tuple(_returned(ops, result, value) for result, value in zip(site.results, found))
    return returned if site.is_tuple else returned[0] if returned else None


def _bound(function: Any, name: str, arguments: Sequence[Any], named: dict[str, Any]) -> list[Any]:
    """The arguments by position."""
    bound = inspect.signature(function.py_func).bind(*arguments, **named)
    bound.apply_defaults()
    if bound.kwargs:
        raise TracingError(f"{name}, a function of numba's, takes no keyword-only arguments in a jitted function")
    return list(bound.args)


def _is_array(argument: Any) -> bool:
    return not argument.is_scalar if isinstance(argument, Tracer) else isinstance(argument, np.ndarray)


def _value(ops: Operations, name: str, number: int, argument: Any) -> Value:
    """An argument as a value of the graph, with the type that numba gives it: Python's numbers have 64 bits."""
    if not isinstance(argument, (Tracer, np.ndarray, np.generic, bool, int, float, complex)):
        raise TracingError(
            f"argument {number} of {name}, a function of numba's, is {type(argument).__name__}; in a jitted function it takes "
            "arrays and numbers (let a function of numba.njit that has the others as constants call it)"
        )
    if isinstance(argument, Tracer) and argument.element_type.dtype is None:
        raise TracingError(
            f"argument {number} of {name}, a function of numba's, is of {argument.element_type}, which numba does not have; "
            "convert it with .astype(np.float32)"
        )
    if not isinstance(argument, (Tracer, np.ndarray, np.generic)):
        argument = np.asarray(argument)
    return ops.value(argument)


def _require_alone(name: str, number: int, given: Sequence[Any]) -> None:
    """What is written is written through one argument, into memory that the traced function knows."""
    target = given[number]
    if not isinstance(target, Tracer):
        raise TracingError(
            f"{name}, a function of numba's, writes argument {number}, an array that is not made in the jitted function; pass a "
            "copy (x.copy()), or make the array an argument of the jitted function"
        )
    for other, argument in enumerate(given):
        if other != number and isinstance(argument, Tracer) and argument.window.storage is target.window.storage:
            raise TracingError(
                f"{name}, a function of numba's, writes argument {number}, which is of the same memory as argument {other}; pass "
                "a copy of one of them (x.copy())"
            )


def _returned(ops: Operations, result: _Result, value: Value) -> Tracer:
    """Numbers come from numba's functions as Python's."""
    wrapped = ops.wrap(value)
    return wrapped if result.shape is not None else ops.python_number(wrapped)


# ------------------------------------------------------------------------------------------------- what numba says of it


def _site(
    function: Any, name: str, operands: list[TensorType], numbers: tuple[bool, ...], shapes: list[Shape] | None
) -> _Site:
    """What a function does with arguments of these types; raises ``TracingError`` where numba has no answer."""
    from numba import types

    count = len(operands)
    arrays = [number for number in range(count) if not numbers[number]]
    written: tuple[int, ...] = ()
    try:
        returned = _inferred(function, operands, numbers, written)
    except TracingError:
        raise
    except Exception as error:
        if not arrays:
            raise _not_typed(name, error) from error
        try:
            _inferred(function, operands, numbers, tuple(arrays))
        except TracingError:
            raise
        except Exception as other:
            raise _not_typed(name, other) from other
        # What cannot be compiled for an array that is only read is taken to write it.
        written = tuple(
            each
            for each in arrays
            if not _compiles(function, operands, numbers, tuple(other for other in arrays if other != each))
        )
        returned = _inferred(function, operands, numbers, written)
    is_tuple = isinstance(returned, types.BaseTuple)
    kinds = list(returned) if is_tuple else [] if returned is types.none else [returned]
    results = _results(name, kinds, shapes)
    return _Site(function, tuple(operands), numbers, written, results, is_tuple)


def _compiles(function: Any, operands: Sequence[TensorType], numbers: Sequence[bool], written: tuple[int, ...]) -> bool:
    try:
        _inferred(function, operands, numbers, written)
    except Exception:
        return False
    return True


def _not_typed(name: str, error: Exception) -> TracingError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next(
        (line for line in lines if not line.startswith(("Failed in", "During:", "File "))), type(error).__name__
    )
    return TracingError(f"numba cannot compile {name} for these arguments: {said[:300]}")


def _inferred(function: Any, operands: Sequence[TensorType], numbers: Sequence[bool], written: tuple[int, ...]) -> Any:
    """numba's type of what is returned; all arrays but those that are written are read-only."""
    import numba
    from numba import types
    from numba.np.numpy_support import from_dtype

    kinds: list[Any] = []
    for number, operand in enumerate(operands):
        element = from_dtype(_dtype(operand))
        array = types.Array(element, operand.rank, "C", readonly=number not in written)
        kinds.append(element if numbers[number] else array)
    made = numba.njit(error_model=_error_model(function))(function.py_func)
    made.compile(tuple(kinds))
    overload = made.overloads[tuple(kinds)]
    for inner in _overloads(overload, set()):
        _require_no_jitted(function, inner)
    for what in (what for inner in _overloads(overload, set()) for what in _unseen_writes(inner)):
        raise TracingError(
            f"{function.py_func.__qualname__}, a function of numba's, uses {what}, which may write to an array without numba's "
            "types telling; write by indices (x[i] = ..., x[...] = ...)"
        )
    return overload.signature.return_type


def _dtype(operand: TensorType) -> np.dtype[Any]:
    dtype = operand.element_type.dtype
    assert dtype is not None
    return dtype


def _overloads(overload: Any, seen: set[int]) -> Iterator[Any]:
    """A compiled function and those that it calls."""
    from numba.core import types

    if id(overload) in seen:
        return
    seen.add(id(overload))
    yield overload
    for kind in overload.type_annotation.typemap.values():
        if isinstance(kind, types.Dispatcher):
            for other in kind.dispatcher.overloads.values():
                yield from _overloads(other, seen)


def _require_no_jitted(function: Any, overload: Any) -> None:
    from numba.core import types

    for kind in overload.type_annotation.typemap.values():
        if isinstance(kind, types.Dispatcher) and is_of_jitted(kind.dispatcher):
            raise TracingError(
                f"{function.py_func.__qualname__}, a function of numba's, calls {kind.dispatcher.py_func.__name__}, a function "
                "under hlojit.jit, which is part of no other program: call that one itself in the jitted function"
            )


def _unseen_writes(overload: Any) -> Iterator[str]:
    """What writes even to arrays that are read-only by their types.

    Iterators ``.flat`` and outputs of ufuncs, for which this is true as well, are refused with every function of arrays.
    """
    annotation = overload.type_annotation
    for expression in annotation.calltypes:
        if getattr(expression, "op", None) == "call":
            key = getattr(annotation.typemap.get(expression.func.name), "typing_key", None)
            if key is np.nditer:
                yield "np.nditer"
            elif key is np.dot and len(expression.args) + len(expression.kws) > 2:
                yield "np.dot with an output"
            elif key is np.nan_to_num and (len(expression.args) > 1 or "copy" in dict(expression.kws)):
                yield "np.nan_to_num with copy="


def _results(name: str, kinds: Sequence[Any], shapes: list[Shape] | None) -> tuple[_Result, ...]:
    from numba import types
    from numba.np.numpy_support import as_dtype

    arrays = [kind for kind in kinds if isinstance(kind, types.Array)]
    if arrays and shapes is None:
        raise TracingError(
            f"{name}, a function of numba's, returns {arrays[0]}, whose shape nobody knows before it runs: say it, "
            "hlojit.numba_call(function, ..., shape=(3, 4)), or let the function write to an array that it is given"
        )
    if len(shapes or ()) != len(arrays):
        raise TracingError(
            f"{name}, a function of numba's, returns {len(arrays)} arrays; shape= says {len(shapes or ())}"
        )
    left = iter(shapes or ())
    results = []
    for kind in kinds:
        if isinstance(kind, types.Array):
            shape = next(left)
            if len(shape) != kind.ndim:
                raise TracingError(f"{name}, a function of numba's, returns {kind}; shape= says {shape}")
            results.append(_Result(as_dtype(kind.dtype), shape))
        elif isinstance(kind, (types.Number, types.Boolean)):
            results.append(_Result(as_dtype(kind), None))
        else:
            raise TracingError(f"{name}, a function of numba's, returns {kind}, which is no array and no number")
    return tuple(results)


def _error_model(function: Any) -> str:
    """numba's option, which must be one for the function and those that it calls: they become one piece of code."""
    models = set(_error_models(function, set()))
    if len(models) > 1:
        raise TracingError(
            f"{function.py_func.__qualname__} and functions of numba's that it calls differ in error_model=; give all "
            "of them the same one"
        )
    return models.pop()


def _error_models(function: Any, seen: set[int]) -> Sequence[str]:
    seen.add(id(function))
    found = [function.targetoptions.get("error_model", "python")]
    for value in reads(
        function.py_func, lambda module: known_version(module.__name__, vars(module)) is not None
    ).values():
        if is_numba_function(value) and id(value) not in seen:
            found += _error_models(value, seen)
    return found


# ------------------------------------------------------------------------------------------------------------ the code


def _named(function: Any, python: Any) -> str:
    """A name for what is called; the same for the same content."""
    try:
        said = fingerprint((python, function.targetoptions.get("error_model", "python")))
    except NotKeyable:
        said = f"private{next(_private)}"
    plain = re.sub(r"\W+", "_", function.py_func.__name__).strip("_")
    return f"numba.{plain}.{said[:16]}"


def _inlined(ops: Operations, site: _Site, values: Sequence[Value]) -> list[Value] | None:
    """As arithmetic of the kernel around it: functions of numbers that cannot raise; None of others."""
    if not all(site.numbers) or not site.results or any(each.shape is not None for each in site.results):
        return None
    if len(site.results) > 1 or any(_dtype(each).kind not in "bif" for each in (*site.operands, *site.types)):
        return None  # numba's unsigned integers are not those of scalar functions
    python = site.function.py_func
    call = ElementwiseCall(_named(site.function, python), function=python)
    wrapper = _filling(site)
    try:
        code, _ = compile_arrays(wrapper, site.operands, site.types, call.user)
        if code.failures:
            return None
        return _elementwise(ops, call, site, values)
    except PluginError:
        return None


def _elementwise(ops: Operations, call: ElementwiseCall, site: _Site, values: Sequence[Value]) -> list[Value]:
    record = elementwise_record(call)
    location = ops.builder.location
    made = Instruction(record, tuple(values), site.types, {}, location=location)
    return [ops.builder.insert(made).result]


def _call(ops: Operations, site: _Site, values: Sequence[Value]) -> list[Value]:
    """As one step of the program."""
    wrapper = _filling(site)
    call = ArrayCall(
        _named(site.function, wrapper.function), function=wrapper.function, error_model=wrapper.error_model
    )
    location = ops.builder.location
    compile_arrays(wrapper, site.operands, site.types, call.user)  # what is wrong with it shows here
    (record,) = call.records()
    made = Instruction(record, tuple(values), site.types, {"place": str(location)}, location=location)
    return list(ops.builder.insert(made).results)


def _filling(site: _Site) -> ArrayFunction:
    """The function as one that fills arrays: what it returns and what it writes."""
    _teach_numba()
    count, results = len(site.operands), range(len(site.results))
    targets = {number: f"w{number}" for number in site.written}
    lines = [f"{name}[...] = x{number}" for number, name in targets.items()]
    passed = ", ".join(f"x{n}[()]" if site.numbers[n] else targets.get(n, f"x{n}") for n in range(count))
    lines.append(f"found = function({passed})")
    for number, result in enumerate(site.results):
        got = f"found[{number}]" if site.is_tuple else "found"
        if result.shape is None:
            lines.append(f"r{number}[()] = {got}")
            continue
        lines.append(
            f"if {got}.shape != {result.shape}: raise ValueError('returned an array of another shape than shape= says')"
        )
        others = [f"x{n}" for n in range(count) if not site.numbers[n] and n not in targets] + list(targets.values())
        if site.is_tuple:
            others += [f"found[{n}]" for n in results if n < number and site.results[n].shape is not None]
        lines += [
            f"if overlap({got}, {other}): raise ValueError('returned an array of the memory of another one: return a copy')"
            for other in others
        ]
        lines.append(f"r{number}[...] = {got}")
    parameters = [*(f"x{n}" for n in range(count)), *(f"r{n}" for n in results), *targets.values()]
    body = "\n        ".join(lines)
    scope: dict[str, Any] = {"overlap": overlap, "__name__": __name__}
    exec(f"def make(function):\n    def call({', '.join(parameters)}):\n        {body}\n    return call", scope)
    made: Callable[..., Any] = scope["make"](site.function)
    made.__qualname__ = made.__name__ = site.function.py_func.__name__
    return ArrayFunction(made, error_model=_error_model(site.function))


def overlap(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays may be of the same memory; numba's form is in ``_teach_numba``."""
    return np.may_share_memory(one, other)


@functools.cache
def _teach_numba() -> None:
    """numba has no function of NumPy's that tells whether arrays share memory."""
    from numba import extending

    @extending.register_jitable  # type: ignore[untyped-decorator]
    def extent(array: Any) -> tuple[int, int]:
        first = last = array.ctypes.data
        for size, stride in zip(array.shape, array.strides):
            if stride < 0:
                first += (size - 1) * stride
            else:
                last += (size - 1) * stride
        return first, last + array.itemsize

    @extending.overload(overlap)  # type: ignore[untyped-decorator]
    def overlap_by_addresses(one: Any, other: Any) -> Any:
        def compared(one: Any, other: Any) -> bool:
            if one.size == 0 or other.size == 0:
                return False
            begin, end = extent(one)
            other_begin, other_end = extent(other)
            return begin < other_end and other_begin < end

        def compared_numbers(one: Any, other: Any) -> bool:
            begin, other_begin = one.ctypes.data, other.ctypes.data
            return begin == other_begin

        return compared if one.ndim and other.ndim else compared_numbers
