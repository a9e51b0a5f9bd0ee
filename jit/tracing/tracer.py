"""``Tracer``: stands for an array while a function runs once to be recorded.

It answers NumPy's protocols (``__array_ufunc__``, ``__array_function__``, the operators, indexing and the usual
methods), and every operation becomes instructions of the graph that is being built.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

import numpy as np
from hlojit.arrays import Array
from hlojit.ir.formats import ElementType
from hlojit.ir.graph import Value
from hlojit.ir.types import TensorType
from hlojit.tracing.arrays.flat import Flat
from hlojit.tracing.arrays.layouts import Flags
from hlojit.tracing.arrays.storage import View
from hlojit.tracing.calls.specializing import NeedsValues
from hlojit.tracing.errors import TracingError

Kind = np.dtype[Any] | ElementType
"""See ``hlojit.tracing.arrays.kinds``."""


def kind_of_element(element: ElementType) -> Kind:
    """NumPy's dtype of an element type, or itself if it has none."""
    return element.dtype or element


_MOST_LISTED: Final = 256
"""Elements that ``.tolist()`` makes numbers of the program of."""


class Tracer(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of known shape and dtype whose elements are computed later; or a number, NumPy's or Python's.

    ``window`` says which elements of which storage it shows; ``context`` is the ``hlojit.tracing.dispatch.Dispatch`` that builds.
    ``is_scalar``: it stands for a NumPy scalar, which never changes, rather than for an array without dimensions.
    ``weak`` is ``bool``, ``int``, ``float`` or ``complex`` for a Python number: as in NumPy 2, it takes the dtype of what it
    meets, and arithmetic among such numbers is Python's.
    """

    __slots__ = ("__weakref__", "context", "is_scalar", "weak", "window")
    __array_priority__ = 1000

    def __init__(self, window: View, context: Any, *, is_scalar: bool = False, weak: type | None = None):
        self.window = window
        window.storage.live += 1
        self.context = context
        self.is_scalar = is_scalar or weak is not None
        self.weak = weak

    def __del__(self) -> None:
        self.window.storage.live -= 1

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What ``isinstance`` goes by, so that code which asks takes the branch that it takes with NumPy."""
        if self.weak is not None:
            return self.weak
        dtype = self.window.type.element_type.dtype
        if dtype is None:
            return Array
        return dtype.type if self.is_scalar else np.ndarray

    @property
    def value(self) -> Value:
        """The graph's value of the elements as they are now."""
        value: Value = self.window.read(self.context)
        return value

    # ------------------------------------------------------------ description

    @property
    def type(self) -> TensorType:
        """Tensor type of the value."""
        return self.window.type

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
        if self.weak is not None:
            return f"<traced {self.weak.__name__}>"
        if self.is_scalar:
            return f"<traced {self.kind} number>"
        return f"<traced array of shape {self.shape}, dtype {self.kind}>"

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from an element to the next along each dimension."""
        return tuple(stride * self.itemsize for stride in self.context.known_strides(self))

    # --------------------------------------------------------------- protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return self.context.ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[Any], arguments: Any, options: Any
    ) -> Any:
        return self.context.function(function, arguments, options)

    def __array_namespace__(self, *, api_version: Any = None) -> Any:
        """NumPy, as an array of NumPy's answers: its functions take traced arrays."""
        return np.empty(0).__array_namespace__(api_version=api_version)

    def _known(self) -> Any:
        """The elements, as NumPy or Python has them, of what is the same at every call; else None."""
        array = self.context.known(self)
        if array is None:
            return None
        array = array.astype(self.dtype, copy=False)
        if self.weak is not None:
            return array.item()
        return array[()] if self.is_scalar else array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        known = self._known()
        if known is not None:
            return np.array(known, dtype)
        self._no_value("a NumPy array made here", "use NumPy functions on it, or make the argument static")

    def _repeats(self, other: Any) -> bool:
        """Whether it is a Python integer beside a list or text, which it repeats."""
        return self.weak in (bool, int) and isinstance(other, (list, tuple, str, bytes))

    def _no_value(self, what: str, instead: str) -> NoReturn:
        parameters = self.context.parameters_behind(self)
        if parameters:
            raise NeedsValues(parameters)
        raise TracingError(
            f"{what} needs the elements of {self!r}, which are known only when the compiled function runs; {instead}"
        )

    def __bool__(self) -> bool:
        known = self._known()
        if known is not None:
            return bool(known)
        self._no_value(
            "an `if`, `while`, `and`, `or` or `not`",
            "use np.where, hlojit.cond or hlojit.while_loop, or make the argument static",
        )

    def __int__(self) -> int:
        known = self._known()
        if known is not None:
            return int(known)
        self._no_value("int()", "use .astype, or make the argument static")

    def __index__(self) -> int:
        known = self._known()
        if known is not None:
            return operator.index(known)
        self._no_value(
            "a number of elements, steps or positions",
            "make the argument static (static_argnames), or compute the number outside and pass it",
        )

    def __float__(self) -> float:
        known = self._known()
        if known is not None:
            return float(known)
        self._no_value("float()", "use .astype, or make the argument static")

    def __round__(self, ndigits: int | None = None) -> Any:
        known = self._known()
        if known is not None:
            return round(known, ndigits)
        self._no_value("round()", "use np.round")

    def __complex__(self) -> complex:
        known = self._known()
        if known is not None:
            return complex(known)
        self._no_value("complex()", "use .astype, or make the argument static")

    def __format__(self, specification: str) -> str:
        known = self._known()
        if known is not None:
            return format(known, specification)
        if specification:
            self._no_value("a formatted text", "return the array, and format the result")
        return repr(self)

    def __contains__(self, element: object) -> bool:
        known = self._known()
        if known is not None:
            return element in known
        self._no_value("`in`", "use np.any(array == element)")

    def __hash__(self) -> int:
        if not self.is_scalar:
            raise TypeError("unhashable type: 'numpy.ndarray'")
        known = self._known()
        if known is not None:
            return hash(known)
        self._no_value("a key of a dictionary or set", "make the argument static, or use arrays (np.bincount counts)")

    def __getattr__(self, name: str) -> NoReturn:
        kind = self.__class__
        if hasattr(kind, name) and not name.startswith("_"):
            raise AttributeError(
                f".{name} of {self!r} cannot be compiled yet; compute it outside, or express it through other NumPy functions"
            )
        raise AttributeError(f"{_spelt(kind)!r} object has no attribute {name!r}")

    def __reduce__(self) -> NoReturn:
        self._no_value("pickle", "pickle the result")

    def __copy__(self) -> Tracer:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self.copy()

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("iteration over an array without dimensions")
        return (self[index] for index in range(self.shape[0]))

    def __getitem__(self, key: Any) -> Tracer:
        result: Tracer = self.context.get_item(self, key)
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.is_scalar:
            raise TypeError(f"{self.__class__.__name__!r} object does not support item assignment")
        self.context.set_item(self, key, value)

    def __delitem__(self, key: Any) -> NoReturn:
        raise ValueError("cannot delete array elements")

    # ----------------------------------------------------------------- methods

    @property
    def T(self) -> Tracer:
        """Transposed."""
        return self.transpose()

    @property
    def mT(self) -> Tracer:
        """The last two dimensions exchanged."""
        transposed: Tracer = self._call(np.matrix_transpose)
        return transposed

    @property
    def real(self) -> Tracer:
        """The real part; of real numbers, themselves."""
        if self.weak is not None:
            return self._of_number(np.real)
        part: Tracer = self._call(np.real)
        return part

    @property
    def imag(self) -> Any:
        """The imaginary part; of real numbers, zeros."""
        if self.weak is not None:
            return self._of_number(np.imag)
        part: Tracer = self._call(np.imag)
        return part

    def transpose(self, *axes: Any) -> Tracer:
        """``numpy.ndarray.transpose``."""
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list, np.ndarray))):
            axes = (None,) if axes[0] is None else (tuple(axes[0]),)
        elif axes:
            axes = (axes,)
        transposed: Tracer = self._call(np.transpose, *axes)
        return transposed

    def reshape(self, *shape: Any, **options: Any) -> Tracer:
        """``numpy.ndarray.reshape``."""
        reshaped: Tracer = self._call(np.reshape, shape[0] if len(shape) == 1 else shape, **options)
        return reshaped

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Tracer:
        """Converted to another dtype, or to an element type (``"acme8"``) that has none."""
        result: Tracer = self.context.astype(self, dtype, order, casting, copy)
        return result

    def to_values(self) -> Tracer:
        """As ``hlojit.Array.to_values``: decoded to the format's compute type."""
        result: Tracer = self.context.to_values(self)
        return result

    def copy(self, order: str = "C") -> Tracer:
        """An array of its own (updates of it leave this one alone)."""
        copied: Tracer = self.context.copied(self, order)
        return copied

    def item(self, *position: Any) -> Tracer:
        """The one element, or that at a position, as a Python number."""
        number: Tracer = self.context.python_number(self.reshape(-1)[position] if position else self)
        return number

    def is_integer(self) -> Any:
        """Of a number: whether it is a whole one, as a Python ``bool``."""
        if self.shape or not (self.is_scalar or self.weak is not None):
            raise AttributeError(f"{_spelt(self.__class__)!r} object has no attribute 'is_integer'")
        return self.context.python_number(np.isfinite(self) & (np.floor(self) == self))

    def fill(self, value: Any) -> None:
        """Write one number everywhere."""
        self[...] = value

    def sort(self, axis: int = -1, **options: Any) -> None:
        """Sorted in place."""
        self[...] = self._call(np.sort, axis, **options)

    def nonzero(self) -> Any:
        """``numpy.ndarray.nonzero``."""
        return self._call(np.nonzero)

    def compress(self, condition: Any, axis: int | None = None) -> Any:
        """``numpy.ndarray.compress``."""
        return self.context.function(np.compress, (condition, self, axis), {})

    def put(self, indices: Any, values: Any, mode: str = "raise") -> None:
        """``numpy.ndarray.put``."""
        self._call(np.put, indices, values, mode)

    @property
    def flags(self) -> Flags:
        """How the elements lie."""
        return Flags(self.shape, self.context.known_strides(self))

    @property
    def device(self) -> str:
        """As NumPy has it."""
        return "cpu"

    def partition(self, kth: Any, axis: int = -1, **options: Any) -> None:
        """Partitioned in place."""
        self[...] = self._call(np.partition, kth, axis, **options)

    def view(self, dtype: Any) -> Tracer:
        """The same bits as another dtype of the same width."""
        seen: Tracer = self.context.bits(self, dtype)
        return seen

    def flatten(self, order: str = "C") -> Tracer:
        """A copy in one dimension."""
        flat: Tracer = self._call(np.ravel, order)
        return flat.copy()

    @property
    def flat(self) -> Flat:
        """The elements in C order."""
        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        Flat(self)[:] = value

    def tolist(self) -> Any:
        """Python's numbers in lists in lists: of many elements only of what is the same at every call, else ``TracingError``."""
        known = self._known()
        if known is not None:
            return known.tolist()
        if self.size > _MOST_LISTED:
            self._no_value(".tolist()", "return the array instead")
        return [each.tolist() for each in self] if self.shape else self.item()

    def _of_number(self, function: Callable[..., Any]) -> Any:
        """A part of a Python number, as Python has it."""
        if self.weak is complex:
            return self.context.python_number(function(self))
        if function is np.imag:
            return 0.0 if self.weak is float else 0
        return +self

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return self.context.function(function, (self, *arguments), options)


_METHODS = {
    name: getattr(np, name)
    for name in (
        "all any argmax argmin argpartition argsort choose clip cumsum cumprod diagonal dot max mean min prod ravel "
        "repeat round squeeze std searchsorted sum swapaxes take trace var"
    ).split()
} | {"conj": np.conjugate, "conjugate": np.conjugate}


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Tracer, *arguments: Any, **options: Any) -> Any:
        if self.weak is not None:
            if name != "conjugate":
                raise AttributeError(f"{self.weak.__name__!r} object has no attribute {name!r}")
            return self._of_number(np.conjugate)
        if function is np.conjugate and not (arguments or options) and self.dtype.kind != "c":
            return self  # the array itself; the ufunc makes int8 of truth values
        if isinstance(function, np.ufunc):
            return function(self, *arguments, **options)
        return self._call(function, *arguments, **options)

    call.__doc__ = f"``numpy.ndarray`` method: see ``numpy.{function.__name__}``."
    return call


for _name, _function in _METHODS.items():
    setattr(Tracer, _name, _method(_name, _function))


# ------------------------------------------------------------------------------------------------------- operators

_BINARY: Final = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "divmod": np.divmod, "pow": np.power, "matmul": np.matmul, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift,
}  # fmt: skip
_COMPARED: Final = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_UNARY: Final = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}


def _spelt(kind: type) -> str:
    """How Python's messages call a class."""
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _leaves_it_to(other: Any) -> bool:
    """Whether an operand wants no part in NumPy's ufuncs."""
    return getattr(other, "__array_ufunc__", True) is None


def _forward(name: str, ufunc: np.ufunc) -> Callable[[Tracer, Any], Any]:
    def operator(self: Tracer, other: Any) -> Any:
        if _leaves_it_to(other) or (ufunc is np.multiply and self._repeats(other)):
            return NotImplemented
        return self.context.operator(name, ufunc, self, other)

    return operator


def _backward(name: str, ufunc: np.ufunc) -> Callable[[Tracer, Any], Any]:
    def operator(self: Tracer, other: Any) -> Any:
        if _leaves_it_to(other) or (ufunc is np.multiply and self._repeats(other)):
            return NotImplemented
        return self.context.operator(name, ufunc, other, self)

    return operator


def _in_place(name: str, ufunc: np.ufunc) -> Callable[[Tracer, Any], Any]:
    def operator(self: Tracer, other: Any) -> Any:
        if self.is_scalar or _leaves_it_to(other):
            # A number is not written: Python binds the name to the result.
            return NotImplemented
        ufunc(self, other, out=(self,))
        return self

    return operator


def _on_one(name: str, ufunc: np.ufunc) -> Callable[[Tracer], Any]:
    return lambda self: self.context.operator(name, ufunc, self)


for _name, _ufunc in _BINARY.items():
    setattr(Tracer, f"__{_name}__", _forward(_name, _ufunc))
    setattr(Tracer, f"__r{_name}__", _backward(_name, _ufunc))
    if _name != "divmod":
        setattr(Tracer, f"__i{_name}__", _in_place(_name, _ufunc))
for _name, _ufunc in _COMPARED.items():
    setattr(Tracer, f"__{_name}__", _forward(_name, _ufunc))
for _name, _ufunc in _UNARY.items():
    setattr(Tracer, f"__{_name}__", _on_one(_name, _ufunc))
