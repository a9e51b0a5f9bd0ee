"""Machines of other sizes: warps of 8 to 64 lanes, little shared memory, and sizes that kernels cannot be made for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import ml_dtypes
import numpy as np
import pytest
from hlojit.gpu.backend import GpuBackend
from hlojit.gpu.platforms import Platform
from hlojit.gpu.simulated_platform import simulated_platform
from hlojit.lowering.grid_machine import GridMachine
from hlojit.simt.amdgpu import AmdgpuDialect
from hlojit.simt.simulator.dialect import SimulatorDialect
from hlojit.simt.spirv import SpirvDialect

from ..anchored_programs import check_same_bits, followed, product

Array = np.ndarray[Any, Any]


@cache
def backend_of(machine: GridMachine) -> GpuBackend:
    """A back end for a simulated machine, with a name of its own."""
    made = simulated_platform(machine, f"warps of {machine.warp}")

    class SizedBackend(GpuBackend):
        name, machine = "sized", "Sized GPU"

        def platform(self) -> Platform:
            return made

    return SizedBackend()


def compiled(machine: GridMachine, text: str) -> Any:
    """A program for a machine."""
    plugin = SimpleNamespace(
        __name__="sized", hlojit_api=(1, 1), hlojit_backends=ext.hookimpl(lambda: [backend_of(machine)])
    )
    with ext.using(plugin):
        return hlojit.compile(text, backend="sized")


def traced(function: Callable[..., Any], x: Array) -> str:
    """The program of a function of one array."""
    return str(hlojit.jit(function).lower(x))


def scattered(op: str, element: str) -> str:
    """``x`` with 100 updates, several for a place; ``set`` takes the last one."""
    combined = "%new" if op == "set" else "%0"
    step = "" if op == "set" else f"%0 = stablehlo.{op} %old, %new : tensor<{element}>"
    return f"""
    func.func @main(%x: tensor<30x{element}>, %i: tensor<100x1xi32>, %u: tensor<100x{element}>) -> tensor<30x{element}> {{
      %r = "stablehlo.scatter"(%x, %i, %u) ({{
      ^bb0(%old: tensor<{element}>, %new: tensor<{element}>):
        {step}
        stablehlo.return {combined} : tensor<{element}>
      }}) {{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
           index_vector_dim = 1>}} : (tensor<30x{element}>, tensor<100x1xi32>, tensor<100x{element}>) -> tensor<30x{element}>
      return %r : tensor<30x{element}>
    }}"""


@pytest.mark.parametrize("warp", [8, 16, 32, 64])
@pytest.mark.parametrize(
    ("op", "element"), [("add", "f32"), ("add", "f16"), ("multiply", "f32"), ("set", "f32"), ("set", "i1")]
)
def test_updates_are_taken_in_their_order(warp: int, op: str, element: str) -> None:
    dtype: Any = {"f32": np.float32, "f16": np.float16, "i1": np.bool_}[element]
    random = np.random.default_rng(warp)
    x, u = ((random.integers(0, 3, count) / 2).astype(dtype) for count in (30, 100))
    places = random.integers(0, 30, 100).astype("i4")
    expected = x.copy()
    if op == "set":
        expected[places] = u
    else:
        getattr(np, op).at(expected, places, u)
    executable = compiled(GridMachine(60, warp=warp), scattered(op, element))
    np.testing.assert_array_equal(executable(x, places[:, None], u), expected)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "all": lambda x: x.sum(),
    "rows": lambda x: x.sum(axis=1),
    "columns": lambda x: x.sum(axis=0),
    "argmax": lambda x: x.argmax(axis=1),
    "cumsum": lambda x: np.cumsum(x, axis=1),
    "softmax": softmax,
    "sort": lambda x: np.sort(x, axis=1),
    "argsort": lambda x: np.argsort(x, axis=0),
    "product": lambda x: x @ x.T,
    "vector": lambda x: x[0] @ x.T,
    "transpose": lambda x: x.T.copy() + 1,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("warp", [8, 16, 64])
def test_kernels_for_warps_of_other_sizes(warp: int, name: str) -> None:
    x = np.random.default_rng(0).integers(-8, 9, (37, 1003)).astype("f4") / 4
    found, expected = compiled(GridMachine(60, warp=warp), traced(FUNCTIONS[name], x))(x), FUNCTIONS[name](x)
    if name == "argsort":
        expected = np.argsort(x, axis=0, stable=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["product", "sort", "argsort", "cumsum", "rows", "transpose", "softmax"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "bfloat16"])
def test_little_shared_memory(name: str, dtype: str) -> None:
    machine = GridMachine(4, warp=8, shared_bytes=8 << 10, threads_per_block=512, threads_per_multiprocessor=512)
    x = (np.random.default_rng(0).integers(-8, 9, (70, 301)) / 4).astype(getattr(ml_dtypes, dtype, dtype))
    executable = compiled(machine, traced(FUNCTIONS[name], x))
    for phase in (phase for launch in executable.spec.program.launches() for phase in launch.kernel.phases):
        assert phase.shared_bytes <= machine.shared_bytes and phase.threads <= machine.threads_per_block
    found = np.asarray(executable(x)).astype("f8")
    function = FUNCTIONS[name] if name != "argsort" else lambda x: np.argsort(x, axis=0, stable=True)
    expected = function(x.astype("f8")).astype("f8" if name == "argsort" else x.dtype).astype("f8")
    np.testing.assert_allclose(found, expected, rtol={"f4": 2e-6, "f8": 1e-14, "bfloat16": 2e-2}[dtype], atol=1e-7)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"warp": 128}, "warps have 8, 16, 32 or 64 lanes here, not 128"),
        ({"warp": 48}, "warps have 8, 16, 32 or 64 lanes here, not 48"),
        ({"warp": 4}, "not 4"),
        ({"warp": 1}, "not 1"),
        ({"warp": 32.0}, r"not 32\.0"),
        ({"multiprocessors": 0}, "multiprocessors are a whole number of at least 1, not 0"),
        ({"threads_per_block": 64}, "threads_per_block are a whole number of at least 512, not 64"),
        (
            {"threads_per_multiprocessor": 512},
            "threads_per_multiprocessor are a whole number of at least 1,024, not 512",
        ),
        ({"registers": 0}, "registers are a whole number of at least 1,024, not 0"),
        ({"registers_per_thread": 8}, "registers_per_thread are a whole number of at least 32, not 8"),
        ({"shared_bytes": 4096}, "shared_bytes are a whole number of at least 8,192, not 4096"),
        ({"access_bytes": 4}, "access_bytes are 8 or 16, not 4"),
        ({"segment_bytes": 0}, "segment_bytes are a whole number of at least 16, not 0"),
        ({"gigahertz": 0.0}, r"gigahertz is a number above 0, not 0\.0"),
        ({"memory_bandwidth": float("nan")}, "memory_bandwidth is a number above 0, not nan"),
    ],
    ids=lambda each: "-".join(f"{name}={value}" for name, value in each.items()) if isinstance(each, dict) else "",
)
def test_a_machine_that_kernels_cannot_be_made_for_is_refused(changed: Any, match: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=match):
        replace(GridMachine(60), **changed)


@pytest.mark.parametrize(
    ("dialect", "warp", "match"),
    [
        (SimulatorDialect, 128, "8, 16, 32 or 64 lanes here, not 128"),
        (SimulatorDialect, 4, "8, 16, 32 or 64 lanes here, not 4"),
        (SpirvDialect, 64, "subgroups of SPIR-V have 8, 16 or 32 lanes here, not 64"),
        (AmdgpuDialect, 16, "wavefronts have 32 or 64 lanes, not 16"),
    ],
)
def test_a_dialect_of_other_warps_is_refused(dialect: Callable[[int], Any], warp: int, match: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=match):
        dialect(warp)


@pytest.mark.parametrize(("planned", "warp"), [(64, 32), (32, 64)])
def test_plans_and_dialect_have_the_same_warps(planned: int, warp: int) -> None:
    platform = simulated_platform(GridMachine(60, warp=planned), "of two minds")
    assert platform.dialect.warp == planned
    with pytest.raises(hlojit.HlojitError, match=f"plans are for warps of {planned} lanes .* has warps of {warp}"):
        replace(platform, dialect=SimulatorDialect(warp))


PRODUCTS = [
    product((), 70, 40, 60, ("f32", "f32")),
    product((2,), 20, 64, 33, ("bf16", "f16")),
    product((), 3, 600, 50, ("f32", "f32"), (False, True)),
    product((), 20, 3000, 9, ("i8", "i32")),
]


@pytest.mark.parametrize("warp", [8, 16, 64])
def test_what_follows_a_product_is_computed_with_it(warp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of two kernels, on machines of any warp."""
    machine, limits = GridMachine(60, warp=warp), GpuBackend.fusion_limits
    for begun in PRODUCTS:
        writer = followed(begun, ("bias", "root", "relu", "rows"))
        arrays, found = writer.arrays(np.random.default_rng(0)), []
        for anchors in (limits.anchors, frozenset[str]()):
            with monkeypatch.context() as patch:
                patch.setattr(GpuBackend, "fusion_limits", replace(limits, anchors=anchors))
                executable = compiled(machine, writer.text())
            found.append([np.asarray(each) for each in executable(*arrays)])
            assert len(list(executable.spec.program.launches())) == (1 if anchors else 2)
        check_same_bits(found[0], found[1], writer.text())
