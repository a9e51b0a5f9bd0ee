"""Jitted functions in code that numba compiles: what numba is told of them.

    @hlojit.jit
    def model(x, w): ...

    @numba.njit
    def simulate(x, w, steps):
        for _ in range(steps):
            x = model(x, w)             # one call of the compiled program
        return x

numba's types have no sizes, and a trace has to: the types of the results are those of a trace with sizes that are made
up, and every result of a call is held against them.  Calls with sizes that were seen before run the program without Python
(``numba_direct.py``); any other one, and one that failed, is that of the jitted function, so that guards, written arguments
and exceptions are what they are elsewhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from hlojit.ir.errors import ArgumentError
from hlojit.tracing.calls.descriptions import ShapeDtypeStruct
from hlojit.tracing.calls.direct_calls import DirectCalls
from hlojit.tracing.numba_direct import direct_call, nesting_of, parameters_of

if TYPE_CHECKING:
    from hlojit.tracing.jitted_functions import JittedFunction

_SIZES: Final = (4, 3, 2, 1, 8, 16)
"""Of the dimensions of arrays, for the trace that tells types: the first for which there is one."""
_kept: Final[dict[int, tuple[Any, Any]]] = {}
"""Functions that numba has seen, and numba's for them: code that numba has compiled never ends."""


def numba_type(function: JittedFunction) -> Any:
    """The type that numba gives a jitted function: that of a function of numba's that calls it."""
    from numba import types

    if id(function) not in _kept:
        _kept.setdefault(id(function), (function, _caller(function)))
    return types.Dispatcher(_kept[id(function)][1])


def is_of_jitted(dispatcher: Any) -> bool:
    """Whether a function of numba's is the one that stands for a jitted function."""
    return any(dispatcher is each for _, each in _kept.copy().values())


def _caller(function: JittedFunction) -> Any:
    """A function of ``numba.njit`` with the parameters of the jitted function, all of which have to be given."""
    import numba
    from numba import extending

    name = str(getattr(function, "__name__", "call"))

    def called(*arguments: Any) -> Any:
        return function(*arguments)

    @extending.overload(called, strict=False, prefer_literal=False)  # type: ignore[untyped-decorator]
    def typed(*kinds: Any) -> Any:
        return _typed_call(function, name, kinds)

    _require_plain(function, name)
    parameters = ", ".join(function.signature.parameters)
    scope: dict[str, Any] = {"called": called, "__name__": __name__}
    exec(f"def call({parameters}):\n    return called({parameters})", scope)
    made = scope["call"]
    made.__name__ = made.__qualname__ = name if name.isidentifier() else "call"
    return numba.njit(made)


def _require_plain(function: JittedFunction, name: str) -> None:
    if function.static_argnames:
        raise _refused(
            f"{name} has static arguments; in numba's code call a jitted function that has them as constants"
        )
    if any(each.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for each in function.signature.parameters.values()):
        raise _refused(
            f"{name} has parameters that are not plain ones (*args, **named, a, /, *, b); numba's code takes plain ones"
        )


def _refused(said: str) -> Exception:
    from numba.core.errors import TypingError

    error: Exception = TypingError(f"a jitted function in code of numba's: {said}")
    return error


# ------------------------------------------------------------------------------------------------------ numba's types


def _typed_call(function: JittedFunction, name: str, kinds: tuple[Any, ...]) -> Callable[..., Any]:
    """What numba compiles for arguments of these types."""
    from numba import objmode

    kind = _result_type(function, name, kinds)
    parameters = parameters_of(kinds)
    calls = DirectCalls(function, parameters, nesting_of(kind)) if parameters is not None else None
    entered = _Entered(function, name, kinds, kind, calls)
    names = "".join(f"x{number}, " for number in range(len(kinds)))
    scope: dict[str, Any] = {"__name__": __name__}
    exec((_CALL if calls is not None else _CALL_OF_PYTHON).format(names=names), scope)
    direct = direct_call(calls, kind) if calls is not None else None
    made: Callable[..., Any] = scope["make"](objmode, entered, kind, direct)
    return made


@final
class _Entered:
    """What numba's code calls: the jitted function, with arguments and results as both sides take them."""

    def __init__(
        self, function: JittedFunction, name: str, kinds: tuple[Any, ...], kind: Any, calls: DirectCalls | None
    ):
        self._function, self._name, self._kinds, self._kind = function, name, kinds, kind
        self._calls = calls
        from numba import types
        from numba.np.numpy_support import as_dtype

        self._as_they_are = all(isinstance(each, types.Array) or each == types.float64 for each in kinds)
        self._array = (as_dtype(kind.dtype), kind.ndim) if isinstance(kind, types.Array) else None

    def __call__(self, *arguments: Any) -> Any:
        given = arguments if self._as_they_are else tuple(map(_given, self._kinds, arguments))
        result = self._function(*given)
        if self._calls is not None:
            self._calls.follow(given)
        if type(result) is np.ndarray and (result.dtype, result.ndim) == self._array and result.flags.c_contiguous:
            return result
        return _returned(self._name, self._kind, result)

    def __reduce__(self) -> Any:
        # numba takes what is not pickled for an address of this process, warns and keeps nothing; pickled, it would be the
        # function with what it captured then.
        raise ArgumentError(
            f"code of numba's that calls {self._name}, a jitted function, is not kept in a cache: leave out cache=True"
        )


_CALL_OF_PYTHON: Final = """
def make(objmode, entered, kind, direct):
    def call({names}):
        with objmode(found=kind):
            found = entered({names})
        return found
    return call
"""
_CALL: Final = """
def make(objmode, entered, kind, direct):
    def call({names}):
        answered, known = direct(({names}))
        if answered:
            return known
        with objmode(found=kind):
            found = entered({names})
        return found
    return call
"""


def _result_type(function: JittedFunction, name: str, kinds: tuple[Any, ...]) -> Any:
    """numba's type of what a call returns; raises numba's ``TypingError`` where nothing tells it."""
    first: Exception | None = None
    for size in _SIZES:
        examples = [_example(name, kind, size) for kind in kinds]
        try:
            described = function.eval_shape(*examples)
        except Exception as error:
            first = first or error
            continue
        return _type_of(name, described)
    raise _refused(f"{name} cannot be traced with arrays of {_SIZES[0]} (nor other sizes): {first}") from first


def _example(name: str, kind: Any, size: int) -> Any:
    """Something of a type, to trace with."""
    from numba import types
    from numba.np.numpy_support import as_dtype

    if isinstance(kind, types.Array):
        return ShapeDtypeStruct((size,) * kind.ndim, as_dtype(kind.dtype))
    if isinstance(kind, types.BaseTuple) and not isinstance(kind, types.BaseNamedTuple):
        return tuple(_example(name, each, size) for each in kind)
    if isinstance(kind, (types.Number, types.Boolean)):
        return _given(kind, 1)
    raise _refused(f"{name} is given {kind}; it takes arrays, numbers and tuples of these")


def _given(kind: Any, argument: Any) -> Any:
    """An argument as Python would have it: numbers of 64 bits are Python's, others NumPy's."""
    from numba import types
    from numba.np.numpy_support import as_dtype

    if isinstance(kind, types.BaseTuple):
        return tuple(map(_given, kind, argument))
    if not isinstance(kind, (types.Number, types.Boolean)):
        return argument
    dtype = as_dtype(kind)
    return dtype.type(argument).item() if dtype in ("i8", "f8", "c16", "?") else dtype.type(argument)


def _type_of(name: str, described: Any) -> Any:
    from numba import types
    from numba.np.numpy_support import from_dtype

    if described is None:
        return types.none
    if type(described) is tuple and described:
        return types.Tuple([_type_of(name, each) for each in described])
    if not isinstance(described, ShapeDtypeStruct):
        raise _refused(
            f"{name} returns {type(described).__name__}; in numba's code it returns arrays, numbers and tuples"
        )
    if not isinstance(described.dtype, np.dtype) or described.dtype.kind not in "biufc" or described.dtype == "f2":
        raise _refused(
            f"{name} returns {described.dtype}, of which numba has no arrays; convert it (.astype(np.float32))"
        )
    element = from_dtype(described.dtype)
    return types.Array(element, len(described.shape), "C") if described.shape else element


def _returned(name: str, kind: Any, result: Any) -> Any:
    """A result, as numba's code takes it: arrays by rows, numbers as Python's; raises where it is of another type."""
    from numba import types
    from numba.np.numpy_support import as_dtype

    if kind is types.none and result is None:
        return None
    if isinstance(kind, types.BaseTuple) and type(result) is tuple and len(result) == len(kind):
        return tuple(_returned(name, each, one) for each, one in zip(kind, result))
    if isinstance(kind, (types.Array, types.Number, types.Boolean)) and result is not None:
        found = np.asarray(result)
        array = isinstance(kind, types.Array)
        if found.dtype == as_dtype(kind.dtype if array else kind) and found.ndim == (kind.ndim if array else 0):
            return np.ascontiguousarray(found) if array else found.item()
        result = f"an array of {found.ndim} dimensions and type {found.dtype}"
    raise ArgumentError(
        f"{name} returned {result if isinstance(result, str) else type(result).__name__}, and numba's code was compiled for "
        f"{kind}: what it returns may not depend on sizes or values where numba calls it"
    )
