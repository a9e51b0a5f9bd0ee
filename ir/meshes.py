"""Meshes of devices, and the groups into which collective ops split them by their axes.

    mesh = Mesh((("x", 2), ("y", 3)))
    mesh_groups(mesh, (AxisRef("y"),))        # ((0, 1, 2), (3, 4, 5)): devices that differ along y only

A program writes groups as mesh axes instead of numbers (``#stablehlo.replica_group_mesh_axes``), with the mesh in the attribute
or by the name of one that the module defines (``sdy.mesh``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np
from hlojit.ir.attributes import AxisRef, Mesh, MeshAxes
from hlojit.ir.graph import Module

LARGEST_MESH: Final = 1 << 20
"""Devices; more are refused before anything is computed from their number."""

_SYMBOL: Final = r'@(?:{name}(?![\w$.])|"{name}")|\bsym_name\s*=\s*"{name}"'
_DEFINITION: Final = re.compile(r'"?sdy\.mesh\b')
_PRETTY_AXES: Final = re.compile(r"<\s*\[([^\]]*)\]")
_PRETTY_AXIS: Final = re.compile(r'"([^"\\]*)"\s*=\s*([0-9]{1,7})')
_GENERIC_AXES: Final = re.compile(r"\baxes\s*=\s*\[([^\]]*)\]")
_GENERIC_AXIS: Final = re.compile(r'name\s*=\s*"([^"\\]*)"\s*,\s*size\s*=\s*([0-9]{1,7})')
_PRETTY_IDS: Final = re.compile(r"\bdevice_ids\s*=\s*\[([^\]]*)\]")
_GENERIC_IDS: Final = re.compile(r"\bdevice_ids\s*=\s*dense<\[?([-0-9,\s]*)\]?>")


def definition_of(module: Module, name: str) -> str | None:
    """The text of the operation of another dialect that defines a symbol, or None."""
    pattern = re.compile(_SYMBOL.format(name=re.escape(name)))
    return next((text for text in module.foreign if pattern.search(text)), None)


def is_defined(module: Module, name: str) -> bool:
    """Whether a module defines a symbol, as whatever."""
    return name in module.functions or definition_of(module, name) is not None


def mesh_of(module: Module, name: str) -> Mesh | None:
    """The mesh that a module defines under a name, as Shardy spells it; None if there is none."""
    text = definition_of(module, name)
    if text is None or not _DEFINITION.match(text):
        return None
    is_generic = text.startswith('"')
    axes = (_GENERIC_AXES if is_generic else _PRETTY_AXES).search(text)
    if axes is None:
        return None
    ids = (_GENERIC_IDS if is_generic else _PRETTY_IDS).search(text)
    numbers = tuple(int(each) for each in re.findall(r"-?[0-9]{1,18}", ids[1])) if ids is not None else ()
    found = (_GENERIC_AXIS if is_generic else _PRETTY_AXIS).findall(axes[1])
    return Mesh(tuple((axis, int(size)) for axis, size in found), numbers)


def mesh_complaint(mesh: Mesh) -> str | None:
    """What is wrong with a mesh itself; None if nothing is."""
    names = [name for name, _ in mesh.axes]
    if len(set(names)) < len(names):
        return f"mesh axes {', '.join(names)} repeat a name"
    if any(size < 1 for _, size in mesh.axes):
        return f"sizes of mesh axes must be positive: {mesh}"
    count = prod(size for _, size in mesh.axes)
    if count > LARGEST_MESH:
        return f"a mesh of {count} devices is too large"
    if mesh.device_ids and sorted(mesh.device_ids) != list(range(count)):
        return f"device_ids {mesh.device_ids} are not a permutation of the {count} devices of the mesh"
    return None


def axes_complaint(mesh: Mesh, axes: Sequence[AxisRef]) -> str | None:
    """What is wrong with references to a mesh's axes; None if nothing is."""
    sizes = dict(mesh.axes)
    taken: dict[str, list[tuple[int, int]]] = {}
    for axis in axes:
        if axis.name not in sizes:
            return f"the mesh has no axis {axis.name!r}, its axes are {', '.join(sizes) or 'none'}"
        first, size = axis.pre_size or 1, axis.size or sizes[axis.name]
        if first < 1 or size < 1 or sizes[axis.name] % (first * size):
            return f"sub-axis ({first}){size} does not divide axis {axis.name!r} of size {sizes[axis.name]}"
        for other, other_size in taken.setdefault(axis.name, []):
            inner, outer = sorted([(first, size), (other, other_size)])
            if outer[0] % (inner[0] * inner[1]):
                return f"axis {axis.name!r} is named twice, or by sub-axes that overlap"
        taken[axis.name].append((first, size))
    return None


def mesh_groups(mesh: Mesh, axes: Sequence[AxisRef]) -> tuple[tuple[int, ...], ...]:
    """Groups of devices that differ only along ``axes``: the members of each in the order of ``axes``, the last changing first.

    Mesh and axes are correct (``mesh_complaint``, ``axes_complaint``).
    """
    shape: list[int] = []
    places: dict[tuple[str, int], int] = {}  # of the sub-axis that begins at a size, in ``shape``
    for name, size in mesh.axes:
        cuts = {1, size}
        for axis in axes:
            if axis.name == name:
                first = axis.pre_size or 1
                cuts |= {first, first * (axis.size or size)}
        ordered = sorted(cuts)
        for inner, outer in zip(ordered, ordered[1:]):
            places[name, inner] = len(shape)
            shape.append(outer // inner)
        places.setdefault((name, 1), -1)
    count = prod(size for _, size in mesh.axes)
    ids = np.array(mesh.device_ids or range(count), np.int64).reshape(shape)
    grouped = [places[axis.name, axis.pre_size or 1] for axis in axes]
    grouped = [place for place in grouped if place >= 0]
    order = [place for place in range(len(shape)) if place not in grouped] + grouped
    members = prod(shape[place] for place in grouped)
    return tuple(tuple(row) for row in ids.transpose(order).reshape(-1, members).tolist())


def groups_of(axes: MeshAxes, module: Module | None) -> tuple[tuple[int, ...], ...] | None:
    """The groups that mesh axes stand for; None where the mesh is not known, or something is wrong with it."""
    mesh = axes.mesh if isinstance(axes.mesh, Mesh) else mesh_of(module, axes.mesh) if module is not None else None
    if mesh is None or mesh_complaint(mesh) or axes_complaint(mesh, axes.axes):
        return None
    return mesh_groups(mesh, axes.axes)
