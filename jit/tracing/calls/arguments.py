"""What can be an argument of a jitted function, and what of it a compiled form depends on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.arrays import Array, NDArray, row_of_now
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.formats import ElementType, element_type_of
from hlojit.ir.types import TensorType, tensor
from hlojit.plain_arrays import on_the_host
from hlojit.tracing.arrays.layouts import strides_of
from hlojit.tracing.arrays.outside import ADVICE
from hlojit.tracing.calls.pytrees import advice, instead_of_static, shortened

_PYTHON_NUMBERS: Final = (bool, int, float, complex)
_NUMBERS: Final = (*_PYTHON_NUMBERS, np.generic)
_PROTOCOLS: Final = ("__dlpack__", "__array__", "__array_interface__", "__array_struct__")
"""By which objects are arrays."""


def signature_of_array(leaf: Any, array: NDArray | Array) -> Hashable:
    """What of an argument a compiled form depends on."""
    if type(leaf) is np.ndarray:
        return leaf.shape, leaf.dtype, None if leaf.flags.c_contiguous else strides_of(leaf)
    # The Python type, too: a Python number takes part in arithmetic in another way than an array.
    kind = array.element_type if isinstance(array, Array) else array.dtype
    return type(leaf), array.shape, kind


def without_layout(signature: Any) -> Any:
    return (*signature[:2], "any layout") if not isinstance(signature[0], type) else signature


def as_arrays(
    leaves: Sequence[Any], names: Callable[[], Sequence[str]], others: tuple[type, ...] = ()
) -> list[NDArray | Array]:
    """The arrays of a call; raises ``ArgumentError`` that names the argument which is none, nor one of ``others``."""
    found: list[Any] = []
    for leaf in leaves:
        if type(leaf) is np.ndarray or isinstance(leaf, others):
            found.append(leaf)
            continue
        try:
            found.append(as_array(leaf, "x"))
        except ArgumentError:
            name = names()[len(found)]
            try:
                found.append(as_array(leaf, name))
            except ArgumentError as error:
                raise ArgumentError(f"argument {name}: {error}") from None
    return found


def as_array(leaf: Any, name: str) -> NDArray | Array:
    """An argument, which is called by this name, as an array."""
    if isinstance(leaf, np.ndarray):
        return _of_no_subclass(leaf, name)
    if isinstance(leaf, Array):
        return leaf
    kind = type(leaf)
    if isinstance(leaf, _PYTHON_NUMBERS) and kind not in _PYTHON_NUMBERS and not isinstance(leaf, np.generic):
        base = next(each for each in kind.__mro__ if each in _PYTHON_NUMBERS)
        raise ArgumentError(
            f"{shortened(leaf)} is of type {kind.__name__}, a subclass of {base.__name__} with a meaning of its own, which would "
            f"be lost: pass {base.__name__}({name}), or name the argument in static_argnames"
        )
    if isinstance(leaf, (str, bytes)) or callable(leaf):
        raise ArgumentError(f"{shortened(leaf)} of type {kind.__name__} is not an array; {instead_of_static(name)}")
    if not is_array_like(leaf) and hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        raise ArgumentError(
            f"{shortened(leaf)} describes an array and is none: f.lower and f.eval_shape take it, a call takes an array"
        )
    if not is_array_like(leaf):
        raise ArgumentError(f"{shortened(leaf)} of type {kind.__name__} is {advice(leaf, name)}")
    array = on_the_host(leaf, f"the {kind.__name__}")
    if type(array) is not np.ndarray:
        return _of_no_subclass(array, name)
    if array.dtype == object:
        raise ArgumentError(
            f"a {kind.__name__} gives an array of Python objects{_advice_on(array.dtype)}; or name the argument in "
            "static_argnames"
        )
    return array


def is_array_like(value: Any) -> bool:
    """Whether it is a number, or an array by one of the protocols for that."""
    return isinstance(value, _NUMBERS) or any(hasattr(value, each) for each in _PROTOCOLS) or _is_buffer(value)


def _is_buffer(leaf: Any) -> bool:
    try:
        memoryview(leaf).release()
    except TypeError:
        return False
    return True


def _of_no_subclass(leaf: NDArray, name: str) -> NDArray:
    """An array in memory or in a file; subclasses mean something else by their operators."""
    if type(leaf) in (np.ndarray, np.memmap):
        return leaf
    raise ArgumentError(
        f"it is of type {type(leaf).__name__}, a subclass of NumPy's arrays with a meaning of its own, which would be "
        f"lost: pass np.asarray({name})" + (f", or {name}.filled(...)" if hasattr(leaf, "filled") else "")
    )


def type_of(array: NDArray | Array) -> TensorType:
    if isinstance(array, Array):
        return array.type.with_element_type(row_of_now(array.element_type))
    try:
        dtype: Any = array.dtype
        return tensor(array.shape, dtype if isinstance(dtype, ElementType) else element_type_of(dtype))
    except HlojitError as error:
        raise ArgumentError(f"{error}{_advice_on(array.dtype)}") from None


def _advice_on(dtype: np.dtype[Any]) -> str:
    return f": {ADVICE[dtype.kind]}" if dtype.kind in ADVICE else ""
