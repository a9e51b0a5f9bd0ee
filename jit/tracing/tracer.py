"""``Tracer``: stands for an array while a function runs once to be recorded.

It answers NumPy's protocols (``__array_ufunc__``, ``__array_function__``, the operators, indexing and the usual
methods), and every operation becomes instructions of the graph that is being built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import ElementType
from hlojit.ir.graph import Value
from hlojit.ir.types import TensorType


class TracingError(HlojitError, TypeError):
    """A traced function did something that a compiled one cannot do."""


Kind = np.dtype[Any] | ElementType
"""See ``hlojit.tracing.kinds``."""


def kind_of_element(element: ElementType) -> Kind:
    """NumPy's dtype of an element type, or itself if it has none."""
    return element.dtype or element


class Tracer(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of known shape and dtype whose elements are computed later.

    ``value`` is the graph's value; ``context`` the ``hlojit.tracing.dispatch.Dispatch`` that builds on it.  ``weak`` is
    ``int``, ``float`` or ``complex`` for an argument that is a Python number: as in NumPy 2, it takes the dtype of what it meets.
    """

    __slots__ = ("context", "value", "weak")
    __array_priority__ = 1000

    def __init__(self, value: Value, context: Any, weak: type | None = None):
        self.value = value
        self.context = context
        self.weak = weak

    # ------------------------------------------------------------ description

    @property
    def type(self) -> TensorType:
        """Tensor type of the value."""
        return self.value.tensor_type

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, as of an array."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype; a format that has none is refused with what to do."""
        dtype = self.type.element_type.dtype
        if dtype is None:
            raise TracingError(
                f"this needs a NumPy dtype, and {self.type.element_type} has none; convert the array first, for example "
                "with .astype(np.float32)"
            )
        return dtype

    @property
    def kind(self) -> Kind:
        """NumPy's dtype, or the element type if it has none."""
        return kind_of_element(self.type.element_type)

    @property
    def element_type(self) -> ElementType:
        """The element type, as of an ``hlojit.Array``."""
        return self.type.element_type

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.type.rank

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.type.size

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<traced array of shape {self.shape}, dtype {self.kind}>"

    # --------------------------------------------------------------- protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return self.context.ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[Any], arguments: Any, options: Any
    ) -> Any:
        return self.context.function(function, arguments, options)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TracingError(
            "a traced array has no elements yet, so it cannot become a NumPy array here; use NumPy functions on it, or "
            "pass the argument as static"
        )

    def _no_value(self, what: str, instead: str) -> NoReturn:
        raise TracingError(
            f"{what} needs the elements of a traced array of shape {self.shape}, dtype {self.kind}, which are known only "
            f"when the compiled function runs; {instead}"
        )

    def __bool__(self) -> bool:  # noqa: PLE0304
        self._no_value("an `if`, `while`, `and`, `or` or `not`", "use np.where, or make the argument static")

    def __int__(self) -> int:
        self._no_value("int()", "use .astype, or make the argument static")

    __index__ = __int__

    def __float__(self) -> float:
        self._no_value("float()", "use .astype, or make the argument static")

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("iteration over an array without dimensions")
        return (self[index] for index in range(self.shape[0]))

    def __getitem__(self, key: Any) -> Tracer:
        result: Tracer = self.context.get_item(self, key)
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        self.value = self.context.set_item(self, key, value).value

    def __hash__(self) -> int:
        return id(self)

    # ----------------------------------------------------------------- methods

    @property
    def T(self) -> Tracer:
        """Transposed."""
        return self.transpose()

    @property
    def real(self) -> Tracer:
        """The real part; of real numbers, themselves."""
        part: Tracer = self._call(np.real)
        return part

    @property
    def imag(self) -> Tracer:
        """The imaginary part; of real numbers, zeros."""
        part: Tracer = self._call(np.imag)
        return part

    def transpose(self, *axes: Any) -> Tracer:
        """``numpy.ndarray.transpose``."""
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
            axes = tuple(axes[0] or ())
        transposed: Tracer = self._call(np.transpose, axes or None)
        return transposed

    def reshape(self, *shape: Any) -> Tracer:
        """``numpy.ndarray.reshape``."""
        reshaped: Tracer = self._call(np.reshape, shape[0] if len(shape) == 1 else shape)
        return reshaped

    def astype(self, dtype: Any) -> Tracer:
        """Converted to another dtype, or to an element type (``"acme8"``) that has none."""
        result: Tracer = self.context.astype(self, dtype)
        return result

    def to_values(self) -> Tracer:
        """As ``hlojit.Array.to_values``: decoded to the format's compute type."""
        result: Tracer = self.context.to_values(self)
        return result

    def copy(self) -> Tracer:
        """An array of its own (updates of it leave this one alone)."""
        return Tracer(self.value, self.context)

    def item(self) -> NoReturn:
        """Not possible: raises ``TracingError``."""
        self._no_value(".item()", "return the array instead")

    def tolist(self) -> NoReturn:
        """Not possible: raises ``TracingError``."""
        self._no_value(".tolist()", "return the array instead")

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return self.context.function(function, (self, *arguments), options)


_METHODS = {
    name: getattr(np, name)
    for name in (
        "all any argmax argmin argsort clip cumsum cumprod diagonal dot max mean min prod ravel repeat round squeeze std "
        "sum swapaxes take trace var"
    ).split()
} | {"flatten": np.ravel, "conj": np.conjugate, "conjugate": np.conjugate}


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Tracer, *arguments: Any, **options: Any) -> Any:
        if isinstance(function, np.ufunc):
            return function(self, *arguments, **options)
        return self._call(function, *arguments, **options)

    call.__doc__ = f"``numpy.ndarray`` method: see ``numpy.{function.__name__}``."
    return call


for _name, _function in _METHODS.items():
    setattr(Tracer, _name, _method(_function))
