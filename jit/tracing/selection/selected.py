"""``Selected``: an array some of whose lengths are known when the function runs; ``x[x > 0]``.

It answers NumPy's protocols as ``Tracer`` does, by rules of its own; what has none is refused: no function of NumPy's takes the
elements that do not count for some that do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn, final

import numpy as np
from hlojit.tracing.calls.containers import Parted
from hlojit.tracing.errors import TracingError
from hlojit.tracing.selection.extents import Extent
from hlojit.tracing.tracer import Kind, Tracer

Extents = tuple[Extent | None, ...]
"""For each dimension; None of those whose length is known."""

_COPIES: Final = (
    "an array whose length depends on values is written, and NumPy would have a slice of it show that (or it is such a "
    "slice): here such slices are copies; slice a copy, v[1:].copy(), or write in one step, v[1:] = ..."
)


@final
class Selected(np.lib.mixins.NDArrayOperatorsMixin, Parted):
    """``elements`` at capacity, and which of them count.

    ``viewed`` is the array that NumPy would make it a view of, where it is a copy.
    """

    __slots__ = ("context", "elements", "extents")
    __array_priority__ = 1001

    def __init__(self, elements: Any, extents: Sequence[Extent | None], viewed: Selected | None = None):
        self.elements: Tracer = elements
        self.extents = tuple(extents)
        self.context = elements.context
        if viewed is not None:
            elements.window.storage.is_copied(viewed.elements.window.storage, _COPIES)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What ``isinstance`` goes by."""
        return np.ndarray

    # ------------------------------------------------------------ containers

    def parts(self) -> tuple[Any, tuple[Any, ...]]:
        """As ``Parted.parts``: the elements, then of each extent the mask or the count."""
        said = [self.context.wrap(e.said.value) if e.said.shape else e.said for e in self.extents if e is not None]
        return tuple(None if e is None else e.is_packed for e in self.extents), (self.elements, *said)

    @staticmethod
    def of(keys: Any, parts: Sequence[Any]) -> Any:
        """As ``Parted.of``: of what a program made the array itself."""
        elements, said = parts[0], iter(parts[1:])
        if np.ndim(elements) != len(keys):
            raise TracingError(
                "an array whose length depends on values (x[mask]) is stacked or batched (vmap, scan, jacobians): lengths differ "
                "from one to the next; keep a length that is known: np.where(mask, x, 0)"
            )
        if not isinstance(elements, Tracer):
            return exact(elements, [None if key is None else next(said) for key in keys])
        ops = elements.context
        extents: list[Extent | None] = []
        for key, capacity in zip(keys, elements.shape):
            if key is None:
                extents.append(None)
            else:
                one = next(said)
                extents.append(Extent.of_count(ops, one, capacity) if key else Extent.of_mask(ops, one))
        return Selected(elements, extents)

    # ----------------------------------------------------------- description

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype."""
        return self.elements.dtype

    @property
    def kind(self) -> Kind:
        """As ``Tracer.kind``."""
        return self.elements.kind

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.elements.ndim

    @property
    def shape(self) -> tuple[Any, ...]:
        """The lengths; those that are known at run time only are traced numbers."""
        return tuple(n if e is None else e.length for n, e in zip(self.elements.shape, self.extents))

    @property
    def size(self) -> Any:
        """Number of elements."""
        size: Any = 1
        for each in self.shape:
            size = each * size
        return size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.elements.itemsize

    @property
    def nbytes(self) -> Any:
        """Bytes of all elements."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        if self.extents[0] is None:
            return self.elements.shape[0]
        self._refuse("its length is asked for where a number must be known (len, in code that is not rewritten)")

    def __repr__(self) -> str:
        lengths = ", ".join(str(n) if e is None else f"at most {n}" for n, e in zip(self.elements.shape, self.extents))
        return f"<traced array of shape ({lengths}{',' if self.ndim == 1 else ''}), dtype {self.kind}>"

    def _refuse(self, why: str) -> NoReturn:
        raise TracingError(
            f"{self!r} has a length that depends on values, and {why}; use NumPy's functions on it, or keep a length that "
            "is known: np.where(mask, x, 0)"
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        self._refuse("its elements are asked for while the function is traced")

    def __bool__(self) -> NoReturn:  # noqa: PLE0304
        self._refuse("NumPy would ask for its truth; use .any(), .all() or .size")

    def __int__(self) -> NoReturn:
        self._refuse("int() needs one number; index it: v[0]")

    def __float__(self) -> NoReturn:
        self._refuse("float() needs one number; index it: v[0]")

    def __index__(self) -> NoReturn:
        raise TypeError("only integer scalar arrays can be converted to a scalar index")

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(np.ndarray, name) and not name.startswith("__"):
            raise AttributeError(f".{name} of {self!r} cannot be compiled; use NumPy's functions on it")
        raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'numpy.ndarray'")

    def __iter__(self) -> Any:
        if self.extents[0] is None:
            return (self[index] for index in range(self.elements.shape[0]))
        self._refuse("Python iterates over it where no loop can be made of that; write a `for` statement")

    # ------------------------------------------------------------- protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return self.context.ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[Any], arguments: Any, options: Any
    ) -> Any:
        return self.context.function(function, arguments, options)

    def __getitem__(self, key: Any) -> Any:
        return self.context.get_selected(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.context.set_selected(self, key, value)

    # ---------------------------------------------------------------- methods

    @property
    def T(self) -> Any:
        """Transposed."""
        return np.transpose(self)

    @property
    def real(self) -> Any:
        """The real part."""
        return np.real(self)

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        return np.imag(self)

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        """Converted to another dtype."""
        return Selected(self.elements.astype(dtype, order, casting, subok), self.extents)

    def copy(self, order: str = "C") -> Selected:
        """An array of its own."""
        return Selected(self.elements.copy(), self.extents)

    def fill(self, value: Any) -> None:
        """Write one number everywhere."""
        self[...] = value

    def sort(self, axis: int = -1, **options: Any) -> None:
        """Sorted in place."""
        self[...] = np.sort(self, axis, **options)

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """``numpy.ndarray.reshape``."""
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, **options)

    def transpose(self, *axes: Any) -> Any:
        """``numpy.ndarray.transpose``."""
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
            axes = () if axes[0] is None else tuple(axes[0])
        return np.transpose(self, axes or None)

    def flatten(self, order: str = "C") -> Any:
        """A copy in one dimension."""
        return np.ravel(self, order).copy()  # type: ignore[call-overload]

    def item(self, *position: Any) -> Any:
        """The one element, or that at a position, as a Python number."""
        ops = self.context
        if position:
            return ops.python_number(self[position if len(position) > 1 else position[0]])
        (extent,) = self.extents
        assert extent is not None
        bad = np.not_equal(extent.count, 1)
        ops.check(ops.tracer(bad).value, ValueError, "can only convert an array of size 1 to a Python scalar")
        return ops.python_number(self[0])

    def tolist(self) -> NoReturn:
        """Not of what is traced."""
        self._refuse("its elements are asked for while the function is traced; return the array")

    def nonzero(self) -> Any:
        """``numpy.ndarray.nonzero``."""
        return np.nonzero(self)

    def compress(self, condition: Any, axis: int | None = None) -> Any:
        """``numpy.ndarray.compress``."""
        return np.compress(condition, self, axis)


def exact(elements: Any, said: Sequence[Any]) -> np.ndarray[Any, Any]:
    """The elements that count, of what a program returned: the result of a call."""
    found = np.asarray(elements)
    layout = sorted(range(found.ndim), key=lambda d: -abs(found.strides[d]))
    lies = found.transpose(layout)
    for dimension, axis in enumerate(layout):
        one = said[axis]
        if one is not None:
            one = np.asarray(one)
            lies = (
                np.compress(one, lies, dimension) if one.ndim else lies[(slice(None),) * dimension + (slice(int(one)),)]
            )
    return np.ascontiguousarray(lies).transpose(np.argsort(layout))


_METHODS: Final = (
    "all any argmax argmin argsort clip conj conjugate cumsum cumprod diagonal dot max mean min prod ravel repeat round "
    "searchsorted squeeze std sum swapaxes take trace var"
).split()


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def call(self: Selected, *arguments: Any, **options: Any) -> Any:
        return function(self, *arguments, **options)

    call.__doc__ = f"``numpy.ndarray`` method: see ``numpy.{name}``."
    return call


for _name in _METHODS:
    setattr(Selected, _name, _method(_name))


# ------------------------------------------------------------------------------------------------------ in place

_IN_PLACE: Final = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift,
}  # fmt: skip


def _in_place(ufunc: np.ufunc) -> Callable[[Selected, Any], Any]:
    def operator(self: Selected, other: Any) -> Any:
        ufunc(self, other, out=(self,))
        return self

    return operator


for _name, _ufunc in _IN_PLACE.items():
    setattr(Selected, f"__i{_name}__", _in_place(_ufunc))
