"""Reading and spelling meshes of devices and references to their axes (``#stablehlo.mesh<...>`` and its kin)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from hlojit.ir.attributes import (
    ArrayAttr,
    Attribute,
    AxisRef,
    Dense,
    DenseArrayAttr,
    Mesh,
    MeshAxes,
    MeshAxis,
    SymbolAttr,
)
from hlojit.ir.text.dimension_numbers import RecordReader

A = TypeVar("A", bound=Attribute)


def _list_of(reader: RecordReader, kind: type[A], what: str) -> tuple[A, ...]:
    start = reader.cursor.pos
    found = reader.attribute()
    if not isinstance(found, ArrayAttr):
        reader.cursor.fail(f"expected a list of {what}", start)
    elements = tuple(element for element in found.elements if isinstance(element, kind))
    if len(elements) < len(found.elements):
        reader.cursor.fail(f"expected a list of {what}, of which every element is one", start)
    return elements


def _required(reader: RecordReader, readers: dict[str, Callable[[], Any]], what: str, *needed: str) -> dict[str, Any]:
    start = reader.cursor.pos
    found = reader.fields(readers, what)
    for name in needed:
        if name not in found:
            reader.cursor.fail(f"expected field {name!r} of {what}", start)
    return found


def read_mesh_axis(reader: RecordReader) -> MeshAxis:
    """``<name = "x", size = 2>``."""
    cursor = reader.cursor
    readers: dict[str, Callable[[], Any]] = {"name": cursor.string, "size": cursor.integer}
    return MeshAxis(**_required(reader, readers, "#stablehlo.mesh_axis", "name", "size"))


def read_mesh(reader: RecordReader) -> Mesh:
    """``<axes = [#stablehlo.mesh_axis<...>], device_ids = dense<[...]> : tensor<4xi64>>``."""

    def device_ids() -> tuple[int, ...]:
        start = reader.cursor.pos
        found = reader.attribute()
        if isinstance(found, Dense) and found.array.ndim == 1 and found.array.dtype.kind in "iu":
            return tuple(map(int, found.array.tolist()))
        if isinstance(found, DenseArrayAttr):
            return tuple(map(int, found.values))
        reader.cursor.fail("expected device ids such as dense<[1, 0]> : tensor<2xi64>", start)

    readers: dict[str, Callable[[], Any]] = {
        "axes": lambda: _list_of(reader, MeshAxis, "#stablehlo.mesh_axis<...>"),
        "device_ids": device_ids,
    }
    found = _required(reader, readers, "#stablehlo.mesh", "axes")
    return Mesh(tuple((axis.name, axis.size) for axis in found["axes"]), found.get("device_ids", ()))


def read_axis_ref(reader: RecordReader) -> AxisRef:
    """``<name = "x", sub_axis_info = (1)2>``."""
    cursor = reader.cursor

    def sub_axis() -> tuple[int, int]:
        cursor.expect("(")
        before = cursor.integer("the product of the sizes before", minimum=1)
        cursor.expect(")")
        return before, cursor.integer("the size of the sub-axis", minimum=1)

    readers: dict[str, Callable[[], Any]] = {"name": cursor.string, "sub_axis_info": sub_axis}
    found = _required(reader, readers, "#stablehlo.axis_ref", "name")
    return AxisRef(found["name"], *found.get("sub_axis_info", (0, 0)))


def read_mesh_axes(reader: RecordReader) -> MeshAxes:
    """``<mesh = @mesh, axes = [#stablehlo.axis_ref<...>]>``."""

    def mesh() -> Mesh | str:
        start = reader.cursor.pos
        found = reader.attribute()
        if isinstance(found, SymbolAttr):
            return found.name
        if isinstance(found, Mesh):
            return found
        reader.cursor.fail("expected the name of a mesh such as @mesh, or #stablehlo.mesh<...>", start)

    readers: dict[str, Callable[[], Any]] = {
        "mesh": mesh,
        "axes": lambda: _list_of(reader, AxisRef, "#stablehlo.axis_ref<...>"),
    }
    return MeshAxes(**_required(reader, readers, "#stablehlo.replica_group_mesh_axes", "mesh", "axes"))


MESH_RECORDS: Final[dict[str, Callable[[RecordReader], Attribute]]] = {
    "mesh_axis": read_mesh_axis,
    "mesh": read_mesh,
    "axis_ref": read_axis_ref,
    "replica_group_mesh_axes": read_mesh_axes,
}
"""What reads ``#stablehlo.name<...>``, by name."""
