"""Groups of processes that are written as axes of a mesh: read, printed, checked, and computed with."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.ir.attributes import AxisRef, Mesh
from hlojit.ir.meshes import axes_complaint, mesh_complaint, mesh_groups
from hlojit.ir.text.parser import parse_module
from hlojit.ir.text.printer import print_module
from hlojit.ir.verifier import collect_faults

GRID = Mesh((("x", 2), ("y", 2)))


def groups_by_coordinates(mesh: Mesh, axes: tuple[str, ...]) -> set[frozenset[int]]:
    """Devices whose coordinates are the same but for ``axes``."""
    names, sizes = [name for name, _ in mesh.axes], [size for _, size in mesh.axes]
    groups: dict[tuple[int, ...], set[int]] = {}
    for number, place in enumerate(np.ndindex(*sizes)):
        fixed = tuple(-1 if name in axes else at for name, at in zip(names, place))
        groups.setdefault(fixed, set()).add(mesh.device_ids[number] if mesh.device_ids else number)
    return {frozenset(group) for group in groups.values()}


@pytest.mark.parametrize("axes", [("x",), ("y",), ("z",), ("x", "z"), ("z", "x"), ("x", "y", "z"), ()])
@pytest.mark.parametrize("ids", [(), tuple(np.random.default_rng(0).permutation(24).tolist())])
def test_groups_are_the_devices_that_differ_along_the_axes(axes: tuple[str, ...], ids: tuple[int, ...]) -> None:
    mesh = Mesh((("x", 2), ("y", 3), ("z", 4)), ids)
    found = mesh_groups(mesh, tuple(map(AxisRef, axes)))
    assert {frozenset(group) for group in found} == groups_by_coordinates(mesh, axes)
    assert sum(map(len, found)) == 24


def test_members_are_in_the_order_of_the_axes() -> None:
    assert mesh_groups(GRID, (AxisRef("x"), AxisRef("y"))) == ((0, 1, 2, 3),)
    assert mesh_groups(GRID, (AxisRef("y"), AxisRef("x"))) == ((0, 2, 1, 3),)


def test_parts_of_an_axis() -> None:
    mesh = Mesh((("x", 8),))
    assert mesh_groups(mesh, (AxisRef("x", 1, 2),)) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert mesh_groups(mesh, (AxisRef("x", 4, 2),)) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert mesh_groups(mesh, (AxisRef("x", 2, 2),)) == ((0, 2), (1, 3), (4, 6), (5, 7))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ((AxisRef("z"),), "the mesh has no axis 'z'"),
        ((AxisRef("x"), AxisRef("x")), "named twice"),
        ((AxisRef("y", 1, 3),), "does not divide"),
        ((AxisRef("y", 1, 2), AxisRef("y", 1, 2)), "overlap"),
    ],
)
def test_axes_that_a_mesh_has_not(axes: tuple[AxisRef, ...], message: str) -> None:
    assert message in str(axes_complaint(GRID, axes))


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        (Mesh((("x", 2), ("x", 2))), "repeat a name"),
        (Mesh((("x", 0),)), "must be positive"),
        (Mesh((("x", 1 << 30),)), "too large"),
        (Mesh((("x", 2),), (0, 0)), "not a permutation"),
    ],
)
def test_meshes_that_are_none(mesh: Mesh, message: str) -> None:
    assert message in str(mesh_complaint(mesh))


INLINE = (
    '#stablehlo.mesh<axes = [#stablehlo.mesh_axis<name = "x", size = 2>, #stablehlo.mesh_axis<name = "y", size = 2>], '
    "device_ids = dense<[0, 2, 1, 3]> : tensor<4xi64>>"
)
PROGRAM = """{definition}
func.func @main(%a: tensor<2xf32>) -> tensor<4xf32> {{
  %0 = "stablehlo.all_gather"(%a) <{{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<
    mesh = {mesh}, axes = [#stablehlo.axis_ref<name = "x">]>}}> : (tensor<2xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}}
"""
PROGRAMS = {
    "inline": PROGRAM.format(definition="", mesh=INLINE),
    "pretty": PROGRAM.format(definition='sdy.mesh @grid = <["x"=2, "y"=2], device_ids=[0, 2, 1, 3]>', mesh="@grid"),
    "generic": PROGRAM.format(
        definition='"sdy.mesh"() {sym_name = "grid", stablehlo.mesh = {axes = [{name = "x", size = 2 : i64}, '
        '{name = "y", size = 2 : i64}], device_ids = dense<[0, 2, 1, 3]> : tensor<4xi64>}} : () -> ()',
        mesh="@grid",
    ),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_programs_are_printed_as_they_were(kind: str) -> None:
    module = parse_module(PROGRAMS[kind])
    assert collect_faults(module) == []
    spelled = print_module(module)
    assert "#stablehlo.replica_group_mesh_axes<mesh = " in spelled
    assert print_module(parse_module(spelled)) == spelled


@pytest.mark.parametrize("kind", PROGRAMS)
def test_programs_are_computed(kind: str, several: str) -> None:
    compiled = hlojit.compile(PROGRAMS[kind], backend=several, num_replicas=4)
    parts = [np.array([number, number + 10], np.float32) for number in range(4)]
    # x is the first axis of devices ((0, 2), (1, 3)): 0 and 1 differ along it, and 2 and 3.
    expected = [np.concatenate([parts[a], parts[b]]) for a, b in ((0, 1), (0, 1), (2, 3), (2, 3))]
    found = compiled([[part] for part in parts])
    for (one,), wanted in zip(found, expected):
        np.testing.assert_array_equal(np.asarray(one), wanted)


def test_a_mesh_that_nobody_defines() -> None:
    (fault,) = collect_faults(parse_module(PROGRAM.format(definition="", mesh="@nowhere")))
    assert (fault.label, fault.message) == ("mesh", "replica_groups: there is no mesh @nowhere in the module")
