"""How a tensor lies in memory: one description for kernels that read it and for the planner that places it.

>>> storage = Storage.of(tensor((2, 3), "f32"))
>>> storage.strides, storage.nbytes, storage.is_plain
((3, 1), 24, True)
>>> storage.with_layout((1, 0)).strides                      # the first dimension's elements are neighbours
(1, 2)

The plain form - row-major, an element a byte or more, in the host's memory, from the buffer's first byte on - is what
every kernel takes; emitters that take others say so (see ``Body`` in ``elements.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hlojit.ir.sizes import Size, add, divide_up, extent, multiply
from hlojit.ir.types import DYNAMIC, TensorType

HOST = "host"
"""The memory space that the host program itself reads and writes.  Devices name theirs (``cuda:0``)."""


@dataclass(frozen=True)
class Storage:
    """Where the elements of a tensor are, counted from the first byte of its buffer.

    ``element`` is the element type's name and ``itemsize`` the bytes of one element; of a packed tensor they are the
    bytes that hold ``packing`` elements, the first one in the lowest bits.  ``strides`` count elements.  ``offset`` is
    the byte where element 0 lies.  A ``donated`` tensor is given up by the caller: the program may write its memory.
    """

    element: str
    itemsize: int
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    packing: int = 1
    space: str = HOST
    offset: int = 0
    donated: bool = False

    @classmethod
    def of(cls, type: TensorType, *, space: str = HOST, donated: bool = False, argument: int | None = None) -> Storage:
        """The plain storage of a type; dynamic dimensions are those of input number ``argument``."""
        shape = tuple(_extent(type, argument, dimension) for dimension in range(type.rank))
        element = type.element_type
        strides = type.strides if type.is_static else row_major(shape)
        return cls(element.name, element.itemsize, shape, strides, space=space, donated=donated)

    @classmethod
    def raw(cls, nbytes: Size, *, space: str = HOST) -> Storage:
        """So many bytes without a type: workspace, memory that holds several tensors in turn."""
        return cls("ui8", 1, (nbytes,), (1,), space=space)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @cached_property
    def size(self) -> Size:
        """Number of elements."""
        return multiply(*self.shape) if self.shape else 1

    @cached_property
    def span(self) -> Size:
        """Elements from the first to behind the last one, gaps included."""
        if 0 in self.shape:
            return 0
        reach = [multiply(step, add(size, -1)) for size, step in zip(self.shape, self.strides)]
        return add(1, *reach)

    @cached_property
    def nbytes(self) -> Size:
        """Bytes from the buffer's first one to behind the last element."""
        span = self.size if self.is_row_major else self.span
        if self.packing > 1:
            span = divide_up(span, self.packing)
        return add(self.offset, multiply(span, self.itemsize))

    @cached_property
    def is_row_major(self) -> bool:
        """Whether the last dimension's elements are neighbours and nothing lies between rows."""
        return self.strides == row_major(self.shape)

    @property
    def is_plain(self) -> bool:
        """Whether every kernel can read and write it."""
        return self.packing == 1 and self.space == HOST and self.offset == 0 and self.is_row_major

    def with_layout(self, minor_to_major: Sequence[int]) -> Storage:
        """Dense, with the dimensions in this order from the innermost to the outermost."""
        strides: list[Size] = [0] * self.rank
        step: Size = 1
        for dimension in minor_to_major:
            strides[dimension] = step
            step = multiply(step, self.shape[dimension])
        return replace(self, strides=tuple(strides))

    def packed(self, count: int) -> Storage:
        """With ``count`` elements in the bytes of one."""
        return replace(self, packing=count)

    def __str__(self) -> str:
        shape = "x".join([*map(str, self.shape), self.element])
        notes = [] if self.is_row_major else [f"strides {list(self.strides)}"]
        notes += [f"{self.packing} in {self.itemsize} B"] * (self.packing > 1)
        notes += [f"at +{self.offset}"] * (self.offset > 0) + [self.space] * (self.space != HOST)
        notes += ["donated"] * self.donated
        return " ".join([shape, *notes])


def row_major(shape: Sequence[Size]) -> tuple[Size, ...]:
    """Strides, in elements, of a dense tensor whose last dimension's elements are neighbours."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        step = multiply(step, size)
    return tuple(reversed(strides))


def _extent(type: TensorType, argument: int | None, dimension: int) -> Size:
    size = type.shape[dimension]
    if size != DYNAMIC:
        return size
    if argument is None:
        raise ValueError(f"{type}: the extent of dimension {dimension} is no argument's")
    return extent(argument, dimension)
