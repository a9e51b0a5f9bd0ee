"""Kinds of op attributes: how a generic MLIR attribute becomes the Python value of an op record, and back.

>>> I64_ARRAY.to_generic((0, 1))
DenseArrayAttr(element_type='i64', values=(0, 1))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from hlojit.ir.attributes import (
    ArrayAttr,
    Attribute,
    BoolAttr,
    Dense,
    DenseArrayAttr,
    ElidedElements,
    FloatAttr,
    IntegerAttr,
    MeshAxes,
    OpaqueAttr,
    StringAttr,
    SymbolAttr,
    UnitAttr,
)
from hlojit.ir.errors import HlojitError
from hlojit.ir.types import tensor


class AttributeKind(ABC):
    """One kind of attribute."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """What a message says was expected."""

    @abstractmethod
    def from_generic(self, attribute: Attribute) -> Any:
        """Convert; raise ``HlojitError`` saying what was expected if the attribute is of another kind."""

    @abstractmethod
    def to_generic(self, value: Any) -> Attribute | None:
        """The generic attribute that says the value; None for a value that is said by leaving the attribute out."""

    def refuse(self, attribute: Attribute) -> HlojitError:
        """The error for an attribute of another kind."""
        return HlojitError(f"expected {self.expected}, found {type(attribute).__name__}")


@dataclass(frozen=True)
class IntegerKind(AttributeKind):
    """An integer of one type."""

    type: str = "i64"

    @property
    def expected(self) -> str:
        return f"an integer of type {self.type}"

    def from_generic(self, attribute: Attribute) -> int:
        if isinstance(attribute, IntegerAttr):
            return attribute.value
        raise self.refuse(attribute)

    def to_generic(self, value: int) -> IntegerAttr:
        return IntegerAttr(value, self.type)


@dataclass(frozen=True)
class FloatKind(AttributeKind):
    """A float of one type."""

    type: str = "f32"

    @property
    def expected(self) -> str:
        return f"a float of type {self.type}"

    def from_generic(self, attribute: Attribute) -> float:
        if isinstance(attribute, FloatAttr):
            return attribute.value
        if isinstance(attribute, IntegerAttr):
            return float(attribute.value)
        raise self.refuse(attribute)

    def to_generic(self, value: float) -> FloatAttr:
        return FloatAttr(value, self.type)


@dataclass(frozen=True)
class BoolKind(AttributeKind):
    """``true`` or ``false``."""

    @property
    def expected(self) -> str:
        return "true or false"

    def from_generic(self, attribute: Attribute) -> bool:
        if isinstance(attribute, BoolAttr):
            return attribute.value
        if isinstance(attribute, UnitAttr):
            return True
        raise self.refuse(attribute)

    def to_generic(self, value: bool) -> BoolAttr:
        return BoolAttr(value)


@dataclass(frozen=True)
class UnitKind(AttributeKind):
    """``unit``: True if present (``use_global_device_ids``)."""

    @property
    def expected(self) -> str:
        return "a unit attribute, which is just its name"

    def from_generic(self, attribute: Attribute) -> bool:
        if isinstance(attribute, UnitAttr):
            return True
        if isinstance(attribute, BoolAttr):
            return attribute.value
        raise self.refuse(attribute)

    def to_generic(self, value: bool) -> UnitAttr | None:
        return UnitAttr() if value else None


@dataclass(frozen=True)
class StringKind(AttributeKind):
    """A string."""

    @property
    def expected(self) -> str:
        return "a string"

    def from_generic(self, attribute: Attribute) -> str:
        if isinstance(attribute, StringAttr):
            return attribute.value
        raise self.refuse(attribute)

    def to_generic(self, value: str) -> StringAttr:
        return StringAttr(value)


@dataclass(frozen=True)
class SymbolKind(AttributeKind):
    """A symbol reference."""

    @property
    def expected(self) -> str:
        return "a symbol such as @function"

    def from_generic(self, attribute: Attribute) -> str:
        if isinstance(attribute, SymbolAttr):
            return attribute.name
        if isinstance(attribute, StringAttr):
            return attribute.value
        raise self.refuse(attribute)

    def to_generic(self, value: str) -> SymbolAttr:
        return SymbolAttr(value)


@dataclass(frozen=True)
class IntegerArrayKind(AttributeKind):
    """``array<i64: ...>``, or the older ``dense<...> : tensor<Nxi64>``; a tuple of integers."""

    type: str = "i64"

    @property
    def expected(self) -> str:
        return f"array<{self.type}: ...>"

    def from_generic(self, attribute: Attribute) -> tuple[Any, ...]:
        if isinstance(attribute, DenseArrayAttr):
            return tuple(attribute.values)
        if isinstance(attribute, Dense) and attribute.array.dtype.kind in "iub":
            return tuple(attribute.array.ravel().tolist())
        if isinstance(attribute, ArrayAttr) and all(isinstance(e, (IntegerAttr, BoolAttr)) for e in attribute.elements):
            return tuple(e.value for e in attribute.elements if isinstance(e, (IntegerAttr, BoolAttr)))
        raise self.refuse(attribute)

    def to_generic(self, value: tuple[Any, ...]) -> DenseArrayAttr:
        return DenseArrayAttr(self.type, tuple(value))


@dataclass(frozen=True)
class IntegerMatrixKind(AttributeKind):
    """``dense<[[1, 1], [0, 0]]> : tensor<2x2xi64>`` (padding, replica groups); a tuple of tuples of integers."""

    @property
    def expected(self) -> str:
        return "a dense matrix of i64"

    def from_generic(self, attribute: Attribute) -> tuple[tuple[int, ...], ...]:
        if isinstance(attribute, Dense) and attribute.array.ndim == 2 and attribute.array.dtype.kind in "iub":
            return tuple(tuple(row) for row in attribute.array.tolist())
        raise self.refuse(attribute)

    def to_generic(self, value: Any) -> Attribute:
        # Without rows the width is not known; every such attribute of StableHLO then has pairs.
        shape = (len(value), len(value[0]) if value else 2)
        return Dense(tensor(shape, "i64"), np.array(value, np.int64).reshape(shape))


@dataclass(frozen=True)
class GroupsKind(IntegerMatrixKind):
    """Groups of processes: ``dense<[[0, 1]]> : tensor<1x2xi64>``, a tuple of tuples, or ``MeshAxes``."""

    @property
    def expected(self) -> str:
        return "a dense matrix of i64 or #stablehlo.replica_group_mesh_axes<...>"

    def from_generic(self, attribute: Attribute) -> Any:
        return attribute if isinstance(attribute, MeshAxes) else super().from_generic(attribute)

    def to_generic(self, value: Any) -> Attribute:
        return value if isinstance(value, MeshAxes) else super().to_generic(value)


@dataclass(frozen=True)
class ElementsKind(AttributeKind):
    """The elements of a constant."""

    @property
    def expected(self) -> str:
        return "dense elements"

    def from_generic(self, attribute: Attribute) -> Dense:
        if isinstance(attribute, Dense):
            return attribute
        raise self.refuse(attribute)

    def to_generic(self, value: Dense) -> Dense:
        return value


@dataclass(frozen=True)
class WrittenElementsKind(ElementsKind):
    """The elements of a constant, or what a text that was printed without them has in their place."""

    def from_generic(self, attribute: Attribute) -> Any:
        return attribute if isinstance(attribute, ElidedElements) else super().from_generic(attribute)


@dataclass(frozen=True)
class EnumKind(AttributeKind):
    """``#stablehlo<comparison_direction LT>``; the value is the keyword."""

    type: str
    keywords: tuple[str, ...]
    dialect: str = "stablehlo"

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.keywords)}"

    def from_generic(self, attribute: Attribute) -> str:
        text = ""
        if isinstance(attribute, StringAttr):
            text = attribute.value
        elif isinstance(attribute, OpaqueAttr) and attribute.text.startswith(f"#{self.dialect}<{self.type} "):
            text = attribute.text.split()[-1].rstrip(">")
        if text in self.keywords:
            return text
        raise self.refuse(attribute)

    def to_generic(self, value: str) -> OpaqueAttr:
        return OpaqueAttr(f"#{self.dialect}<{self.type} {value}>")


@dataclass(frozen=True)
class ArrayOfKind(AttributeKind):
    """``[a, b]`` of one other kind; a tuple."""

    element: AttributeKind

    @property
    def expected(self) -> str:
        return f"an array, each element {self.element.expected}"

    def from_generic(self, attribute: Attribute) -> tuple[Any, ...]:
        if isinstance(attribute, ArrayAttr):
            return tuple(self.element.from_generic(element) for element in attribute.elements)
        raise self.refuse(attribute)

    def to_generic(self, value: tuple[Any, ...]) -> ArrayAttr:
        elements = map(self.element.to_generic, value)
        return ArrayAttr(tuple(element for element in elements if element is not None))


@dataclass(frozen=True)
class RecordKind(AttributeKind):
    """One of the attribute records (``DotDimensionNumbers`` ...), which the parser reads and the printer spells."""

    record: type[Attribute]

    @property
    def expected(self) -> str:
        return f"a {self.record.__name__} attribute"

    def from_generic(self, attribute: Attribute) -> Attribute:
        if isinstance(attribute, self.record):
            return attribute
        raise self.refuse(attribute)

    def to_generic(self, value: Attribute) -> Attribute:
        return value


@dataclass(frozen=True)
class GenericKind(AttributeKind):
    """Any attribute, kept as it is (``backend_config``)."""

    @property
    def expected(self) -> str:
        return "an attribute"

    def from_generic(self, attribute: Attribute) -> Attribute:
        return attribute

    def to_generic(self, value: Attribute) -> Attribute:
        return value


I64 = IntegerKind("i64")
I32 = IntegerKind("i32")
UI64 = IntegerKind("ui64")
F32 = FloatKind("f32")
F64 = FloatKind("f64")
BOOL = BoolKind()
UNIT = UnitKind()
STRING = StringKind()
SYMBOL = SymbolKind()
I64_ARRAY = IntegerArrayKind("i64")
BOOL_ARRAY = IntegerArrayKind("i1")
I64_MATRIX = IntegerMatrixKind()
GROUPS = GroupsKind()
ELEMENTS = ElementsKind()
WRITTEN_ELEMENTS = WrittenElementsKind()
GENERIC = GenericKind()
