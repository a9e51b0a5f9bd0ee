"""How attributes and locations are spelled.

>>> from hlojit.ir.attributes import ArrayAttr, IntegerAttr
>>> print_attribute(ArrayAttr((IntegerAttr(1, "i32"),)))
'[1 : i32]'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from hlojit.ir.attributes import (
    ArrayAttr,
    Attribute,
    AxisRef,
    BoolAttr,
    ChannelHandle,
    ConvDimensionNumbers,
    Dense,
    DenseArrayAttr,
    DictAttr,
    DotAlgorithm,
    DotDimensionNumbers,
    ElidedElements,
    FloatAttr,
    GatherDimensionNumbers,
    IntegerAttr,
    Mesh,
    MeshAxes,
    MeshAxis,
    OpaqueAttr,
    OutputOperandAlias,
    RaggedDotDimensionNumbers,
    ResultAccuracy,
    ScatterDimensionNumbers,
    StringAttr,
    SymbolAttr,
    TypeAttr,
    UnitAttr,
)
from hlojit.ir.formats import FloatFormat, find_element_type
from hlojit.ir.location import CallSiteLocation, FileLocation, FusedLocation, Location, NameLocation
from hlojit.ir.text.decimals import encode_floats
from hlojit.ir.text.dense import print_dense, print_float

ELIDED: Final = "__elided__"
"""The resource that MLIR names in the place of a constant's elements that it does not print."""
_BARE_NAME: Final = re.compile(r"[A-Za-z_][\w$.]*")
_BARE_SYMBOL: Final = re.compile(r"[A-Za-z_][\w$.]*")


def quote(text: str) -> str:
    """Spell a string as MLIR does."""
    escaped = "".join(
        char if 32 <= ord(char) < 127 and char not in '"\\' else "".join(f"\\{byte:02X}" for byte in char.encode())
        for char in text
    )
    return f'"{escaped}"'


def print_attribute(attribute: Attribute) -> str:
    """Spell an attribute as MLIR reads it."""
    return _PRINTERS[type(attribute)](attribute)


def print_dictionary(attributes: Mapping[str, Attribute]) -> str:
    """Spell ``{a = 1 : i64, b}``."""
    entries = []
    for name, value in attributes.items():
        spelled = name if _BARE_NAME.fullmatch(name) else quote(name)
        entries.append(spelled if isinstance(value, UnitAttr) else f"{spelled} = {print_attribute(value)}")
    return f"{{{', '.join(entries)}}}"


def print_symbol(name: str) -> str:
    """Spell ``@name``, with quotes where the name needs them (``::`` between the parts of a nested one)."""
    return "::".join(f"@{part}" if _BARE_SYMBOL.fullmatch(part) else f"@{quote(part)}" for part in name.split("::@"))


def print_location(location: Location) -> str:
    """Spell ``loc(...)``."""
    return f"loc({_location(location)})"


def _location(location: Location) -> str:
    if isinstance(location, FileLocation):
        text = f"{quote(location.file)}:{location.line}:{location.column}"
        if location.end_line is not None and location.end_column is not None:
            line = "" if location.end_line == location.line else str(location.end_line)
            text += f" to {line}:{location.end_column}"
        return text
    if isinstance(location, NameLocation):
        child = _location(location.child)
        return quote(location.name) if child == "unknown" else f"{quote(location.name)}({child})"
    if isinstance(location, CallSiteLocation):
        return f"callsite({_location(location.callee)} at {_location(location.caller)})"
    if isinstance(location, FusedLocation):
        metadata = f"<{location.metadata}>" if location.metadata else ""
        return f"fused{metadata}[{', '.join(map(_location, location.locations))}]"
    return "unknown"


def _float(value: float, type: str) -> str:
    row = find_element_type(type)
    if not isinstance(row, FloatFormat) or row.dtype is None:
        return f"{value!r} : {type}"
    return f"{print_float(encode_floats(np.array([value]), row)[0], row)} : {type}"


def _integers(values: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _fields(name: str, fields: Mapping[str, Any]) -> str:
    entries = []
    for field, value in fields.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        entries.append(f"{field} = {_integers(value) if isinstance(value, tuple) else text}")
    return f"#stablehlo.{name}<{', '.join(entries)}>"


def _record_fields(name: str, record: Attribute) -> str:
    names = list(record.__dataclass_fields__)
    values = {field: getattr(record, field) for field in names}
    return _fields(name, {field: value for field, value in values.items() if value not in ((), 0)})


def _dot(dot: DotDimensionNumbers) -> str:
    names = ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting")
    values = {f"{name}_dimensions": getattr(dot, name) for name in names}
    return _fields("dot", {name: value for name, value in values.items() if value})


def _ragged_dot(dot: RaggedDotDimensionNumbers) -> str:
    fields = [f"{name}_dimensions = {_integers(getattr(dot, name))}" for name in dot.__dataclass_fields__]
    return f"#chlo.ragged_dot<{', '.join(fields)}>"


def _alias(alias: OutputOperandAlias) -> str:
    return _fields("output_operand_alias", {name: getattr(alias, name) for name in alias.__dataclass_fields__})


def dot_algorithm_fields(algorithm: DotAlgorithm) -> str:
    """Spell what follows ``#stablehlo.dot_algorithm``."""
    names = list(DotAlgorithm.__dataclass_fields__)
    return _fields("dot_algorithm", {name: getattr(algorithm, name) for name in names}).partition("algorithm")[2]


def _accuracy(accuracy: ResultAccuracy) -> str:
    tolerances = {name: value for name in ("atol", "rtol") if (value := getattr(accuracy, name))}
    written = [f"{name} = {_float(value, 'f64').partition(' :')[0]}" for name, value in tolerances.items()]
    written += [f"ulps = {accuracy.ulps}"] if accuracy.ulps else []
    written.append(f"mode = #stablehlo.result_accuracy_mode<{accuracy.mode}>")
    return f"#stablehlo.result_accuracy<{', '.join(written)}>"


def _mesh(mesh: Mesh) -> str:
    axes = ", ".join(f"#stablehlo.mesh_axis<name = {quote(name)}, size = {size}>" for name, size in mesh.axes)
    ids = ", ".join(map(str, mesh.device_ids))
    numbers = f", device_ids = dense<[{ids}]> : tensor<{len(mesh.device_ids)}xi64>" if mesh.device_ids else ""
    return f"#stablehlo.mesh<axes = [{axes}]{numbers}>"


def _axis_ref(axis: AxisRef) -> str:
    part = f", sub_axis_info = ({axis.pre_size}){axis.size}" if axis.size else ""
    return f"#stablehlo.axis_ref<name = {quote(axis.name)}{part}>"


def _mesh_axes(groups: MeshAxes) -> str:
    mesh = print_symbol(groups.mesh) if isinstance(groups.mesh, str) else _mesh(groups.mesh)
    return f"#stablehlo.replica_group_mesh_axes<mesh = {mesh}, axes = [{', '.join(map(_axis_ref, groups.axes))}]>"


def conv_dimensions(conv: ConvDimensionNumbers) -> str:
    """Spell ``[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]``."""

    def part(named: dict[str, int], spatial: tuple[int, ...]) -> str:
        words = {position: letter for letter, position in named.items()}
        words |= {position: str(number) for number, position in enumerate(spatial)}
        return f"[{', '.join(words[position] for position in sorted(words))}]"

    lhs = part({"b": conv.input_batch, "f": conv.input_feature}, conv.input_spatial)
    rhs = part({"i": conv.kernel_input_feature, "o": conv.kernel_output_feature}, conv.kernel_spatial)
    out = part({"b": conv.output_batch, "f": conv.output_feature}, conv.output_spatial)
    return f"{lhs}x{rhs}->{out}"


def conv_is_regular(conv: ConvDimensionNumbers) -> bool:
    """Whether the dimension numbers are permutations, so that the letter form can say them."""
    parts = (
        (conv.input_batch, conv.input_feature, *conv.input_spatial),
        (conv.kernel_input_feature, conv.kernel_output_feature, *conv.kernel_spatial),
        (conv.output_batch, conv.output_feature, *conv.output_spatial),
    )
    return all(sorted(part) == list(range(len(part))) for part in parts)


def _conv(conv: ConvDimensionNumbers) -> str:
    if conv_is_regular(conv):
        return f"#stablehlo.conv<{conv_dimensions(conv)}>"
    fields = {}
    for name in ConvDimensionNumbers.__dataclass_fields__:
        fields[f"{name}_dimensions" if name.endswith("spatial") else f"{name}_dimension"] = getattr(conv, name)
    return _fields("conv", fields).replace("<", "<raw ", 1)


def _dense_array(array: DenseArrayAttr) -> str:
    if not array.values:
        return f"array<{array.element_type}>"
    row = find_element_type(array.element_type)
    if isinstance(row, FloatFormat):
        words = [_float(float(value), array.element_type).partition(" :")[0] for value in array.values]
    elif array.element_type == "i1":
        words = ["true" if value else "false" for value in array.values]
    else:
        words = [str(value) for value in array.values]
    return f"array<{array.element_type}: {', '.join(words)}>"


_PRINTERS: Final[dict[type, Callable[[Any], str]]] = {
    UnitAttr: lambda a: "unit",
    BoolAttr: lambda a: "true" if a.value else "false",
    IntegerAttr: lambda a: f"{a.value} : {a.type}",
    FloatAttr: lambda a: _float(a.value, a.type),
    StringAttr: lambda a: quote(a.value),
    SymbolAttr: lambda a: print_symbol(a.name),
    ArrayAttr: lambda a: f"[{', '.join(map(print_attribute, a.elements))}]",
    DenseArrayAttr: _dense_array,
    DictAttr: lambda a: print_dictionary(dict(a.items)),
    TypeAttr: lambda a: str(a.type),
    OpaqueAttr: lambda a: a.text,
    Dense: print_dense,
    ElidedElements: lambda a: f"dense_resource<{ELIDED}> : {a.type}",
    DotDimensionNumbers: _dot,
    DotAlgorithm: lambda a: f"#stablehlo.dot_algorithm{dot_algorithm_fields(a)}",
    ConvDimensionNumbers: _conv,
    GatherDimensionNumbers: lambda a: _record_fields("gather", a),
    ScatterDimensionNumbers: lambda a: _record_fields("scatter", a),
    ResultAccuracy: _accuracy,
    RaggedDotDimensionNumbers: _ragged_dot,
    OutputOperandAlias: _alias,
    Mesh: _mesh,
    MeshAxis: lambda a: f"#stablehlo.mesh_axis<name = {quote(a.name)}, size = {a.size}>",
    AxisRef: _axis_ref,
    MeshAxes: _mesh_axes,
    ChannelHandle: lambda a: f"#stablehlo.channel_handle<handle = {a.handle}, type = {a.type}>",
}
