"""What the functions take, checked before anything is compiled: keys, shapes, dtypes, parameters."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from hlojit.arrays import Array
from hlojit.ir.errors import ArgumentError
from hlojit.random.generators import GENERATORS
from hlojit.tracing.arrays.kinds import as_kind
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

_FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
_OF_DTYPE: Final = {each.dtype: each for each in GENERATORS.values()}


def dtype_of(value: Any) -> Any:
    """The dtype of an array or a NumPy scalar, also of one on a device; None of everything else."""
    return value.element_type.dtype if type(value) is Array else getattr(value, "dtype", None)


def as_array(value: Any) -> Any:
    """Lists as arrays; what is one already, or a number, as it is."""
    if isinstance(value, (list, tuple)):
        operations = Operations.in_work.get()
        return np.asarray(value) if operations is None else operations.tracer(value)
    return value


def checked_key(function: str, key: Any) -> Any:
    """``key`` as it is; raises ``ArgumentError`` where it is no key, or several."""
    if type(key) is np.ndarray and (own := _OF_DTYPE.get(key.dtype)) is not None and key.shape == (own.words,):
        return key
    shape, dtype = getattr(key, "shape", None), dtype_of(key)
    generator = GENERATORS.get(str(dtype))
    if generator is not None and shape == (generator.words,):
        return key
    if isinstance(key, (list, tuple)) or shape is None or dtype is None:
        raise _no_key(function, key)
    if generator is not None and len(shape) > 1 and shape[-1] == generator.words:
        raise ArgumentError(
            f"{function}: key holds {int(np.prod(shape[:-1]))} keys (shape {tuple(shape)}): take one of them, key[0], or all by "
            f"hlojit.vmap(lambda key: hlojit.random.{function}(key, ...))(key)"
        )
    if str(dtype).startswith("key<"):
        raise ArgumentError(
            f"{function}: key is one of JAX's that hides its words: give jax.random.key_data(key), two words of uint32"
        )
    raise ArgumentError(
        f"{function}: key is {dtype} of shape {tuple(shape)}; a key is uint32 of shape (2,) for Threefry, uint64 of shape (1,) "
        "for Philox: hlojit.random.key(seed) makes one"
    )


def _no_key(function: str, key: Any) -> ArgumentError:
    if type(key) is int:
        return ArgumentError(f"{function}: key is the number {key}; hlojit.random.key({key}) makes a key of a seed")
    if isinstance(key, (np.random.Generator, np.random.RandomState)):
        what = "a generator of NumPy's, which changes as it is used"
    else:
        what = f"{type(key).__name__}, which is no key"
    return ArgumentError(
        f"{function}: key is {what}; make a key of a seed, key = hlojit.random.key(0), and keys of it with "
        "hlojit.random.split(key)"
    )


def checked_shape(function: str, shape: Any, *parameters: tuple[str, Any]) -> tuple[int, ...]:
    """The shape of the result: as given, or that of the parameters; these must be broadcast to it."""
    if not parameters and type(shape) is tuple and all(type(each) is int and each >= 0 for each in shape):
        return shape
    shapes = [np.shape(value) for _, value in parameters]
    if shape is None:
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            listed = ", ".join(f"{name} {each}" for (name, _), each in zip(parameters, shapes))
            raise ArgumentError(f"{function}: parameters of shapes that do not fit each other: {listed}") from None
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    try:
        found = tuple(map(operator.index, sizes))
    except TracingError:
        raise
    except TypeError:
        raise ArgumentError(f"{function}: shape is {shape!r}, and must be a tuple of whole numbers") from None
    if any(each < 0 for each in found):
        raise ArgumentError(f"{function}: shape is {found}, and has a negative number")
    for (name, _), own in zip(parameters, shapes):
        require_broadcast(function, name, own, found)
    return found


def require_broadcast(function: str, name: str, own: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Raise ``ArgumentError`` for a parameter that is larger than the result."""
    offset = len(shape) - len(own)
    if offset < 0 or any(each not in (1, whole) for each, whole in zip(own, shape[offset:])):
        raise ArgumentError(f"{function}: {name} of shape {own} cannot be broadcast to shape={shape}")


def float_dtype(function: str, dtype: Any, *, is_complex: bool = False) -> np.dtype[Any]:
    """A dtype of floats (or complex numbers), as NumPy's."""
    kind = _numbers(dtype) if isinstance(dtype, (type, np.dtype)) else _named(function, dtype)
    if kind is not None and (kind.name in _FLOATS or (is_complex and kind.kind == "c")):
        return kind
    allowed = ", ".join((*_FLOATS, *(("complex64", "complex128") if is_complex else ())))
    raise ArgumentError(f"{function}: dtype is {_shown(dtype)}; one of {allowed} is needed")


def integer_dtype(function: str, dtype: Any, *, signed: bool | None = None) -> np.dtype[Any]:
    """A dtype of integers of 8 to 64 bits; of unsigned ones where ``signed`` is False."""
    kind = _numbers(dtype) if isinstance(dtype, (type, np.dtype)) else _named(function, dtype)
    if kind is not None and kind.kind in ("iu" if signed is None else "i" if signed else "u"):
        return kind
    sort = "integers" if signed is None else f"{'' if signed else 'un'}signed integers"
    raise ArgumentError(f"{function}: dtype is {_shown(dtype)}; one of {sort} of 8, 16, 32 or 64 bits is needed")


def _named(function: str, dtype: Any) -> np.dtype[Any] | None:
    try:
        kind = as_kind(dtype)
    except TypeError as error:
        raise ArgumentError(f"{function}: dtype is {dtype!r}: {error}") from error
    return _numbers(kind) if isinstance(kind, np.dtype) else None


@functools.lru_cache(maxsize=128)
def _numbers(dtype: Any) -> np.dtype[Any] | None:
    """A dtype in the machine's own order that hlojit has an element type of; None of any other."""
    try:
        kind = np.dtype(dtype)
    except TypeError:
        return None
    is_known = kind.kind in "iu" or kind.name in (*_FLOATS, "complex64", "complex128")
    return kind if is_known and kind.isnative else None


def _shown(dtype: Any) -> str:
    return dtype.__name__ if isinstance(dtype, type) else str(dtype)


def parameter(function: str, name: str, value: Any) -> Any:
    """A parameter as the compiled function takes it: a number or an array of real numbers."""
    value = as_array(value)
    if isinstance(value, (bool, int, float)):
        return value
    dtype = dtype_of(value)
    kind = None if dtype is None else dtype.kind
    # ml_dtypes' formats are of the kind "V".
    if kind is None or kind in "cOSUmM":
        what = f"{type(value).__name__}" if kind is None else f"{dtype} numbers"
        raise ArgumentError(f"{function}: {name} is {what}; a real number or an array of them is needed")
    return value


def parameter_dtype(values: Sequence[Any]) -> np.dtype[Any]:
    """What is computed in: the floats of the parameters, float64 of Python's numbers and integers."""
    kinds = {dtype for value in values if not _is_weak(value) and (dtype := dtype_of(value)) is not None}
    floats = [each for each in kinds if each.kind == "f" or each.name == "bfloat16"]
    return np.result_type(*floats) if floats and len(floats) == len(kinds) else np.dtype(np.float64)


def _is_weak(value: Any) -> bool:
    return isinstance(value, Tracer) and value.weak is not None
