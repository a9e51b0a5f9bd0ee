"""Types of values: immutable and interned, so that equal types are one object and compare by identity.

A type lives as long as something refers to it.  Element types that have one name and differ otherwise (two plugins' formats,
in scopes of their own) make different tensor types.

>>> tensor((2, 3), "f32")
tensor<2x3xf32>
"""

from __future__ import annotations

import math
import operator
import re
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, cast
from weakref import WeakValueDictionary

from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.current_process import in_children
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import ElementType, FloatFormat, element_type

DYNAMIC: Final = -1
"""A dimension whose size is known only at run time (``?`` in the text)."""

BOUNDS_PREFIX: Final = "#stablehlo.bounds<"
"""How an encoding begins that gives bounds; one size or ``?`` for each dimension follows."""


class Type:
    """Base of all types."""

    def __init__(self, **fields: Any):
        # What is computed from the fields (``cached_property``) comes beside them later.
        vars(self).update(fields)

    def __setattr__(self, name: str, value: object) -> None:
        raise HlojitError(f"types are immutable; make another one instead of setting {name!r} of {self}")

    def __delattr__(self, name: str) -> None:
        raise HlojitError(f"types are immutable; {name!r} of {self} stays")

    def __repr__(self) -> str:
        return str(self)


_BOUNDS: Final = re.compile(r"#stablehlo\.(?:bounds\s*<|type_extensions\s*<\s*bounds\s*=\s*\[)([\d?,\s-]*)\]?\s*>")


class TensorType(Type):
    """``tensor<2x?x3xf32>``; ``encoding`` is opaque MLIR attribute text, kept as it was read.

    Create through ``tensor(...)``.  ``shape`` has ``DYNAMIC`` where a size is unknown; ``bounds`` holds upper bounds of
    such dimensions (``#stablehlo.bounds``), or is empty.
    """

    shape: tuple[int, ...]
    element_type: ElementType
    encoding: str

    def __init__(self, shape: tuple[int, ...], element: ElementType, encoding: str = ""):
        super().__init__(shape=shape, element_type=element, encoding=encoding)

    @cached_property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @cached_property
    def is_static(self) -> bool:
        """Whether every dimension is known."""
        return DYNAMIC not in self.shape

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """Upper bounds of the dimensions that are not known, ``DYNAMIC`` where there is none; empty without any."""
        match = _BOUNDS.fullmatch(self.encoding)
        words = match[1].replace(" ", "").split(",") if match is not None else []
        found = tuple(int(word) if word.isdecimal() else DYNAMIC for word in words)
        return found if len(found) == self.rank else ()

    @cached_property
    def size(self) -> int:
        """Number of elements (static shapes only)."""
        assert self.is_static
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Bytes in a buffer, of blocks in all of their parts (static shapes only)."""
        element = self.element_type
        if isinstance(element, BlockFormat):
            parts = zip(element.part_shapes(self.shape), element.part_formats)
            return sum(math.prod(shape) * row.itemsize for shape, row in parts)
        return self.size * element.itemsize

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Row-major strides, in elements."""
        strides = []
        step = 1
        for extent in reversed(self.shape):
            strides.append(step)
            step *= extent
        return tuple(reversed(strides))

    def with_shape(self, shape: Sequence[int]) -> TensorType:
        """The same element type in another shape."""
        return tensor(shape, self.element_type)

    def refined(self, shape: Sequence[int]) -> TensorType:
        """The type with sizes of ``shape`` where its own are not known; bounds stay where sizes are still unknown."""
        merged = tuple(found if own == DYNAMIC else own for own, found in zip(self.shape, shape, strict=True))
        if merged == self.shape:
            return self
        if not self.bounds:
            return tensor(merged, self.element_type, self.encoding)
        bounds = [bound if extent == DYNAMIC else DYNAMIC for bound, extent in zip(self.bounds, merged)]
        return tensor(merged, self.element_type, bounds_text(bounds))

    def with_element_type(self, element: ElementType | str) -> TensorType:
        """The same shape of another element type."""
        return tensor(self.shape, element)

    @cached_property
    def _text(self) -> str:
        dimensions = "".join("?x" if extent == DYNAMIC else f"{extent}x" for extent in self.shape)
        encoding = f", {self.encoding}" if self.encoding else ""
        return f"tensor<{dimensions}{self.element_type.name}{encoding}>"

    def __str__(self) -> str:
        return self._text


def bounds_text(bounds: Sequence[int]) -> str:
    """The encoding of a tensor type with these upper bounds, of which ``DYNAMIC`` is none; empty without any."""
    if all(bound == DYNAMIC for bound in bounds):
        return ""
    return f"{BOUNDS_PREFIX}{', '.join('?' if bound == DYNAMIC else str(bound) for bound in bounds)}>"


class UnrankedTensorType(Type):
    """``tensor<*xf32>``: a tensor of which not even the rank is known.  Create through ``unranked``.

    StableHLO has none; CHLO's ops and those of other dialects that stand beside them take it.
    """

    element_type: ElementType

    def __init__(self, element: ElementType):
        super().__init__(element_type=element)

    def refined(self, shape: Sequence[int]) -> TensorType:
        """The type of a tensor that has a shape."""
        return tensor(tuple(shape), self.element_type)

    def __str__(self) -> str:
        return f"tensor<*x{self.element_type.name}>"


class BufferType(Type):
    """``memref<2x3xf32>``: memory that custom calls read and write; ``layout`` is what follows the element type, as it was read.

    Create through ``buffer_type``.
    """

    shape: tuple[int, ...]
    element_type: ElementType
    layout: str

    def __init__(self, shape: tuple[int, ...], element: ElementType, layout: str = ""):
        super().__init__(shape=shape, element_type=element, layout=layout)

    def __str__(self) -> str:
        dimensions = "".join("?x" if extent == DYNAMIC else f"{extent}x" for extent in self.shape)
        return f"memref<{dimensions}{self.element_type.name}{f', {self.layout}' if self.layout else ''}>"


class FutureType(Type):
    """``!stablehlo.future<tensor<f32>>``: values that an asynchronous op gives later.  Create through ``future_type``."""

    elements: tuple[Type, ...]

    def __init__(self, elements: tuple[Type, ...]):
        super().__init__(elements=elements)

    def __str__(self) -> str:
        return f"!stablehlo.future<{', '.join(map(str, self.elements))}>"


class TupleType(Type):
    """``tuple<tensor<f32>, tensor<i32>>``.  Create through ``tuple_type``."""

    elements: tuple[Type, ...]

    def __init__(self, elements: tuple[Type, ...]):
        super().__init__(elements=elements)

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.elements))}>"


class TokenType(Type):
    """``!stablehlo.token``: an order among effects, no data."""

    def __str__(self) -> str:
        return "!stablehlo.token"


class OpaqueType(Type):
    """A type of a dialect that hlojit does not know, kept as its text.  Create through ``opaque_type``."""

    text: str

    def __init__(self, text: str):
        super().__init__(text=text)

    def __str__(self) -> str:
        return self.text


class ScalarType(Type):
    """``index``, ``i32``, ``f32``: a single number, as other dialects' ops compute with.  Create through ``scalar``.

    StableHLO's values are tensors; shape computations that exports mix in have such numbers.
    """

    element_type: ElementType

    def __init__(self, element: ElementType):
        super().__init__(element_type=element)

    def __str__(self) -> str:
        return self.element_type.name


class FunctionType(Type):
    """``(inputs) -> (results)``.  Create through ``function_type``."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __init__(self, inputs: tuple[Type, ...], results: tuple[Type, ...]):
        super().__init__(inputs=inputs, results=results)

    def __str__(self) -> str:
        results = f"({', '.join(map(str, self.results))})"
        if len(self.results) == 1 and not isinstance(self.results[0], FunctionType):
            results = str(self.results[0])
        return f"({', '.join(map(str, self.inputs))}) -> {results}"


TOKEN: Final = TokenType()

_tensors: WeakValueDictionary[tuple[tuple[int, ...], ElementType, str], TensorType] = WeakValueDictionary()
_tuples: WeakValueDictionary[tuple[Type, ...], TupleType] = WeakValueDictionary()
_functions: WeakValueDictionary[tuple[tuple[Type, ...], tuple[Type, ...]], FunctionType] = WeakValueDictionary()
_opaque: WeakValueDictionary[str, OpaqueType] = WeakValueDictionary()
_futures: WeakValueDictionary[tuple[Type, ...], FutureType] = WeakValueDictionary()
_scalars: WeakValueDictionary[ElementType, ScalarType] = WeakValueDictionary()
_unranked: WeakValueDictionary[ElementType, UnrankedTensorType] = WeakValueDictionary()
_buffers: WeakValueDictionary[tuple[tuple[int, ...], ElementType, str], BufferType] = WeakValueDictionary()
_lock = threading.RLock()
"""Held to make a type: two threads must not make one each.  Looking one up takes no lock."""


@in_children
def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


def _intern(table: WeakValueDictionary[Any, Any], key: Any, made: Type) -> Any:
    with _lock:
        return table.setdefault(key, made)


def tensor(shape: Sequence[int], element: ElementType | str, encoding: str = "") -> TensorType:
    """Return the tensor type of this shape and element type."""
    if isinstance(element, str):
        element = element_type(element)
    key = (tuple(shape), element, encoding)
    found: TensorType | None = _tensors.get(key)
    if found is not None:
        return found
    if any(type(extent) is not int for extent in key[0]):
        # What is as good as an integer (NumPy's, or a traced one) stays out of a table that outlives it.
        key = (tuple(operator.index(each) if hasattr(each, "__index__") else each for each in key[0]), *key[1:])
    return cast(TensorType, _intern(_tensors, key, TensorType(*key)))


def tuple_type(elements: Sequence[Type]) -> TupleType:
    """Return the tuple type of these element types."""
    key = tuple(elements)
    return _tuples.get(key) or cast(TupleType, _intern(_tuples, key, TupleType(key)))


def function_type(inputs: Sequence[Type], results: Sequence[Type]) -> FunctionType:
    """Return the function type from ``inputs`` to ``results``."""
    key = (tuple(inputs), tuple(results))
    return _functions.get(key) or cast(FunctionType, _intern(_functions, key, FunctionType(*key)))


def opaque_type(text: str) -> OpaqueType:
    """Return the type of an unknown dialect that is spelled ``text``."""
    return _opaque.get(text) or cast(OpaqueType, _intern(_opaque, text, OpaqueType(text)))


def future_type(elements: Sequence[Type]) -> FutureType:
    """Return the type of futures of these types."""
    key = tuple(elements)
    return _futures.get(key) or cast(FutureType, _intern(_futures, key, FutureType(key)))


def scalar(element: ElementType) -> ScalarType:
    """Return the type of single numbers of an element type."""
    return _scalars.get(element) or cast(ScalarType, _intern(_scalars, element, ScalarType(element)))


def unranked(element: ElementType) -> UnrankedTensorType:
    """Return the type of tensors of an element type and of any rank."""
    return _unranked.get(element) or cast(UnrankedTensorType, _intern(_unranked, element, UnrankedTensorType(element)))


def buffer_type(shape: Sequence[int], element: ElementType, layout: str = "") -> BufferType:
    """Return the type of buffers of this shape and element type."""
    key = (tuple(shape), element, layout)
    return _buffers.get(key) or cast(BufferType, _intern(_buffers, key, BufferType(*key)))


def interned_count() -> int:
    """How many types there are; those that nothing refers to are gone."""
    return (
        len(_tensors)
        + len(_tuples)
        + len(_functions)
        + len(_opaque)
        + len(_futures)
        + len(_unranked)
        + len(_buffers)
        + len(_scalars)
    )


def is_float(element: ElementType) -> bool:
    """Whether the element type is a float format."""
    return isinstance(element, FloatFormat)
