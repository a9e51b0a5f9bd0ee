"""What traced functions call in the place of functions that would ask traced values for their numbers.

Python's own functions, those of ``math``, NumPy's functions that make arrays (what is made can be written with traced values),
and SciPy's; and the user's functions, rewritten.
"""

from __future__ import annotations

import bisect
import builtins
import functools
import heapq
import operator
import warnings
from collections.abc import Callable
from types import BuiltinMethodType, FunctionType, MethodDescriptorType, MethodType, ModuleType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from hlojit.tracing import numba_functions, texts
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow import arrays, generators, numpy_objects, orderings, python_functions, walks
from hlojit.tracing.flow.mutations import CHANGING, CONTAINERS
from hlojit.tracing.flow.refusals import of_today, refuse, with_errors
from hlojit.tracing.numpy_functions import numpy_parts
from hlojit.tracing.numpy_functions.functions import FUNCTIONS, OF_SEVERAL
from hlojit.tracing.numpy_functions.numpy_source import FUNCTIONS as SOURCES
from hlojit.tracing.numpy_functions.numpy_source import is_numpys, is_numpys_file
from hlojit.tracing.operations import Operations
from hlojit.tracing.rewriting import Site, is_library, rewritten, substitute
from hlojit.tracing.scipy_functions.functions import replacement_for
from hlojit.tracing.selection.selected import Selected
from hlojit.tracing.tracer import Tracer

_MOST_SORTED: Final = 256
"""Numbers that ``sorted`` takes apart."""

_STACKING: Final = frozenset({np.concatenate, np.concat, np.stack, np.vstack, np.hstack, np.dstack, np.column_stack})
_CHANGING_FIRST: Final = CHANGING | {"__setattr__", "__delattr__", "__ior__", "__imul__"}
_CHANGERS: Final = frozenset({
    builtins.setattr, builtins.delattr, operator.setitem, operator.delitem, operator.iadd, operator.iconcat, operator.imul,
    operator.ior, heapq.heappush, heapq.heappop, heapq.heapify, heapq.heapreplace, heapq.heappushpop, bisect.insort_left,
    bisect.insort_right,
})  # fmt: skip

if TYPE_CHECKING:
    from hlojit.tracing.flow.runtime import TracedRuntime


def stand_in(runtime: TracedRuntime, site: Site, function: Any) -> Callable[..., Any]:
    """What is called instead; mostly the function itself."""
    if not is_numpys_file(site.file):
        refuse(site, function)
        if function is np.errstate or function is np.seterr:
            return with_errors(function)
        making = generators.maker(function) or of_today(function)
        if making is not None:
            return making
    try:
        rule = _RULES.get(function)
    except TypeError:
        rule = None
    if is_numpys_file(site.file) and rule is None:
        rule = _of_numpys_code(function)
    standing = numpy_objects.stand_in(runtime.ops, function)
    if standing is not None:
        return standing
    if numba_functions.is_numba_function(function):
        return functools.partial(numba_functions.called, runtime.ops, function)
    if function is builtins.next:
        return functools.partial(_next, runtime, site)
    if function is warnings.warn:
        if not is_numpys_file(site.file):
            return functools.partial(texts.warned, runtime.ops)
        if runtime.regions:
            # What depends on traced values comes without NumPy's warnings.
            return _silent
    if rule is not None:
        return functools.partial(rule, runtime.ops)
    if isinstance(function, (BuiltinMethodType, MethodType)):
        owner = function.__self__
        if is_opaque(owner) and not _is_users(function):
            runtime.require_own(site, owner)
        drawn = generators.method_of(runtime.ops, function)
        if drawn is not None:
            return drawn
    if _changes_its_first(function):
        return functools.partial(_with_change, runtime, site, function)
    if isinstance(function, BuiltinMethodType):
        return _method(runtime, site, function)
    if is_numpys_file(site.file) and _is_partition(function):
        return functools.partial(numpy_parts.sorted_in_place, runtime.ops, function.__self__)
    if is_numpys(function) and is_numpys_file(site.file):
        return rewritten(function).function
    if _takes_lists(function):
        return functools.partial(_of_numpy, runtime.ops, function)
    replaced = replacement_for(function)
    return substitute(function) if replaced is None else replaced


def _changes_its_first(function: Any) -> bool:
    """Functions of libraries, and methods by their class, that change what they are given first."""
    if type(function) in (MethodDescriptorType, WrapperDescriptorType):
        return function.__name__ in _CHANGING_FIRST
    try:
        return function in _CHANGERS
    except TypeError:
        return False


def _with_change(runtime: TracedRuntime, site: Site, function: Any, thing: Any, *arguments: Any, **named: Any) -> Any:
    if type(thing) is not Tracer:
        runtime.change(site, thing)
    return function(thing, *arguments, **named)


def _of_numpys_code(function: Any) -> Callable[..., Any] | None:
    try:
        return numpy_parts.RULES.get(function)
    except TypeError:
        return None


def _is_partition(function: Any) -> bool:
    """Of a traced array, by NumPy's own code."""
    is_method = isinstance(function, MethodType) and isinstance(function.__self__, Tracer)
    return is_method and function.__name__ == "partition"


def _takes_lists(function: Any) -> bool:
    try:
        return isinstance(function, np.ufunc) or function in FUNCTIONS or function in SOURCES
    except TypeError:
        return False


def _of_numpy(ops: Operations, function: Any, *arguments: Any, **named: Any) -> Any:
    """NumPy asks lists for no rule of what is in them, and does not hand on ``out=...``, which asks for an array."""
    dispatch: Any = ops
    if any(type(each) in (list, tuple) and arrays.holds_tracers(each) for each in (*arguments, *named.values())):
        if isinstance(function, np.ufunc) or function not in OF_SEVERAL:
            arguments = tuple(ops.tracer(each) if arrays.holds_tracers(each) else each for each in arguments)
        else:
            if function in _STACKING:
                arguments = tuple(_rows(ops, each) if type(each) in (list, tuple) else each for each in arguments)
            return dispatch.function(function, arguments, named)
    if isinstance(function, np.ufunc) and named.get("out") is ...:
        return dispatch.as_arrays(function(*arguments, **named))
    return function(*arguments, **named)


def _rows(ops: Operations, several: Any) -> Any:
    """Several arrays, of which some may be written as lists."""
    listed = [type(each) in (list, tuple) and arrays.holds_tracers(each) for each in several]
    return type(several)(ops.tracer(each) if is_list else each for each, is_list in zip(several, listed))


def _silent(*arguments: Any, **named: Any) -> None:
    pass


def _method(runtime: TracedRuntime, site: Site, function: Any) -> Callable[..., Any]:
    """Of Python's containers and of arrays."""
    owner = function.__self__
    if type(owner) is str and function.__name__ in ("format", "join"):
        return functools.partial(_method_of_text, runtime.ops, function)
    if isinstance(owner, CONTAINERS):
        if function.__name__ in CHANGING:
            runtime.change(site, owner)
    elif type(owner) is np.ndarray and function.__name__ in ("copy", "astype"):
        return functools.partial(arrays.made, runtime.ops, function)
    replaced: Callable[..., Any] | None = replacement_for(function)
    return function if replaced is None else replaced


def _is_users(method: Any) -> bool:
    """Whether it is written in Python, by the user: then it is rewritten, and what it changes is seen."""
    function = getattr(method, "__func__", None)
    return isinstance(function, FunctionType) and not is_library(function)


def is_opaque(owner: Any) -> bool:
    """Whether methods of an object may change what nobody here sees: generators of random numbers, iterators, files."""
    if isinstance(owner, (*_UNCHANGING, *CONTAINERS)) or type(owner) is Tracer:
        return False
    return type(owner).__module__.partition(".")[0] != "hlojit"


_UNCHANGING: Final = (
    type, ModuleType, str, bytes, int, float, complex, tuple, frozenset, range, np.ndarray, np.generic, np.dtype, np.ufunc,
    type(None), FunctionType,
)  # fmt: skip


def _next(runtime: TracedRuntime, site: Site, iterator: Any, *default: Any) -> Any:
    runtime.require_own(site, iterator)
    return next(iterator, *default)


def _len(ops: Operations, value: Any) -> Any:
    if type(value) is Selected:
        return value.shape[0]
    return value.count if isinstance(value, walks.Walk) else len(value)


def _range(ops: Operations, *bounds: Any) -> Any:
    known = [each for each in map(ops.known_index, bounds) if each is not None]
    return range(*known) if len(known) == len(bounds) else walks.traced_range(ops, *bounds)


def _enumerate(ops: Operations, iterable: Any, start: Any = 0) -> Any:
    return walks.enumerated(iterable, start)


def _zip(ops: Operations, *iterables: Any, strict: bool = False) -> Any:
    return walks.zipped(*iterables, strict=strict)


def _reversed(ops: Operations, value: Any) -> Any:
    return walks.backwards(value)


def _sorted(ops: Operations, iterable: Any, /, *, key: Any = None, reverse: Any = False, **named: Any) -> list[Any]:
    if named:
        # Raises.
        return sorted(iterable, key=key, reverse=reverse, **named)
    if key is not None:
        return orderings.sorted_by_key(ops, iterable, key, reverse)
    if type(iterable) is not Tracer:
        iterable = list(iterable)
    if texts.is_traced(ops, iterable):
        return _sorted_numbers(ops, iterable, reverse)
    return sorted(iterable, reverse=reverse)


def _sorted_numbers(ops: Operations, numbers: Any, reverse: Any) -> list[Any]:
    """Of one array, or of Python's numbers of one type."""
    if type(numbers) is Tracer and numbers.shape == (0,):
        return []
    listed = list(numbers) if type(numbers) is not Tracer or (numbers.shape and numbers.size <= _MOST_SORTED) else []
    kinds = {each.weak or each.dtype if type(each) is Tracer else type(each) for each in listed}
    if len(kinds) != 1 or any(np.ndim(each) for each in listed) or type(reverse) not in (bool, int):
        raise TracingError("sorted() asks for numbers that are known only when the compiled function runs; use np.sort")
    array: Any = ops.tracer(listed)
    if array.dtype.kind == "c":
        raise TypeError("'<' not supported between instances of 'complex' and 'complex'")
    if array.dtype.kind == "f":
        ops.check(ops.value(np.isnan(array)), ValueError, "sorted() of NaN has no order")
    made = np.flip(np.sort(np.flip(array), kind="stable")) if reverse else np.sort(array, kind="stable")
    is_pythons = type(listed[0]) is not Tracer or listed[0].weak is not None
    return [ops.python_number(each) if is_pythons else each for each in made]


def _hasattr(ops: Operations, value: Any, name: str) -> bool:
    """Whether what is traced has an attribute, and not its tracer."""
    return hasattr(value.__class__ if type(value) is Tracer else value, name)


def _getattr(ops: Operations, value: Any, name: str, *default: Any) -> Any:
    if type(value) is Tracer and not hasattr(value.__class__, name):
        if default:
            return default[0]
        raise AttributeError(f"{value.__class__.__name__!r} object has no attribute {name!r}")
    return getattr(value, name, *default)


def _type(ops: Operations, *arguments: Any, **named: Any) -> Any:
    """``type(x) is np.ndarray`` answers as ``isinstance`` does."""
    if len(arguments) == 1 and not named and type(arguments[0]) in (Tracer, Selected, texts.Text):
        return arguments[0].__class__
    return type(*arguments, **named)


def _str(ops: Operations, *arguments: Any, **named: Any) -> Any:
    if len(arguments) == 1 and not named:
        return texts.shown(ops, str, *arguments)
    return str(*arguments, **named)


def _repr(ops: Operations, value: Any) -> Any:
    return texts.shown(ops, repr, value)


def _format(ops: Operations, value: Any, specification: Any = "") -> Any:
    return texts.formatted(ops, [(value, "", specification)])


def _method_of_text(ops: Operations, function: Any, *arguments: Any, **named: Any) -> Any:
    """Of a ``str``: ``format`` and ``join``, of traced values too."""
    if function.__name__ == "join" and len(arguments) == 1:
        arguments = (list(arguments[0]),)
        given: tuple[Any, ...] = arguments
    else:
        given = (arguments, named)
    if not texts.is_traced(ops, given):
        return function(*arguments, **named)
    return texts.made(ops, function.__name__, function.__self__, *given)


_RULES: Final[dict[Any, Callable[..., Any]]] = {
    builtins.type: _type,
    builtins.sorted: _sorted,
    builtins.hasattr: _hasattr,
    builtins.getattr: _getattr,
    builtins.str: _str,
    builtins.repr: _repr,
    builtins.format: _format,
    builtins.print: texts.printed,
    builtins.len: _len,
    builtins.range: _range,
    builtins.enumerate: _enumerate,
    builtins.zip: _zip,
    builtins.reversed: _reversed,
    **python_functions.RULES,
    **arrays.RULES,
}
