"""Products by cuBLASLt: which are offered, and what its functions are given, against a fake that checks all of it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.cuda import cublaslt
from hlojit.cuda.nvptx import H200
from hlojit.lowering.library_product import LibraryProduct, library_product
from hlojit.simt.kernels import emit_kernel
from hlojit.simt.simulator.dialect import SimulatorDialect
from hlojit.simt.simulator.module import simulated_target

from ..simt.test_dot import Numbers, compare, draw, instruction_of, product
from .fake_cublaslt import FakeLt

if TYPE_CHECKING:
    from hlojit.cuda.backend import CudaBackend

LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Numbers]] = {
    "plain": ((64, 48), (48, 80), ((), (), (1,), (0,))),
    "right transposed": ((64, 48), (80, 48), ((), (), (1,), (1,))),
    "left transposed": ((48, 64), (48, 80), ((), (), (0,), (0,))),
    "both transposed": ((48, 64), (80, 48), ((), (), (0,), (1,))),
    "batches": ((3, 64, 48), (3, 80, 48), ((0,), (0,), (2,), (2,))),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are offered, too."""
    monkeypatch.setattr("hlojit.lowering.library_product.FEWEST_MACS", 1 << 10)


def call_of(lhs: Sequence[int], rhs: Sequence[int], numbers: Numbers, types: Sequence[str], extra: str = "") -> str:
    instruction = instruction_of(lhs, rhs, numbers, types, extra)
    code = emit_kernel(instruction, simulated_target(H200), SimulatorDialect(), "kernel")
    return code.phases[0].library


def aligned(array: Any) -> tuple[Any, int]:
    memory = np.zeros(array.nbytes + 256, np.uint8)
    start = -memory.ctypes.data % 256
    memory[start : start + array.nbytes] = array.view(np.uint8).reshape(-1)
    return memory, memory.ctypes.data + start


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "types",
    [("bf16", "bf16", "bf16"), ("f16", "f16", "f32"), ("i8", "i8", "i32"), ("f8E4M3FN", "f8E5M2", "f32")],
    ids="-".join,
)
def test_the_library_is_given_what_the_product_is(layout: str, types: Sequence[str]) -> None:
    lhs_shape, rhs_shape, numbers = LAYOUTS[layout]
    text = call_of(lhs_shape, rhs_shape, numbers, types)
    takes_bytes = layout in ("right transposed", "batches")
    assert bool(text) == (takes_bytes or types[0] in ("bf16", "f16"))
    if not text:
        return
    call = LibraryProduct.of_text(text)
    assert call.to_text() == text
    lt = FakeLt()
    routine = cublaslt.CublasLt(lt, 0x1000_0000).routine(call)
    assert routine is not None
    lhs, rhs = draw(lhs_shape, types[0], 1), draw(rhs_shape, types[1], 2)
    kinds = {"bf16": ml_dtypes.bfloat16, "f32": np.float32, "i32": np.int32}
    result = np.zeros((call.batch, call.m, call.n), kinds[types[2]])
    memories = [aligned(np.ascontiguousarray(each)) for each in (lhs, rhs, result)]
    routine([address for _, address in memories], 5)
    start = memories[2][1] - memories[2][0].ctypes.data
    found = memories[2][0][start : start + result.nbytes].view(result.dtype).reshape(result.shape)
    compare(found if call.batch > 1 else found[0], lhs, rhs, numbers, types[2])


def test_what_is_not_offered() -> None:
    plain = LAYOUTS["plain"]
    assert call_of(*plain, ("bf16", "bf16", "f32")) and not call_of(*plain, ("f32", "f32", "f32"))
    assert not call_of(*plain, ("f16", "bf16", "f32")) and not call_of(*plain, ("f64", "f64", "f64"))
    assert not call_of((64, 48), (48, 8), ((), (), (1,), (0,)), ("bf16",) * 3), "too few columns"
    assert not call_of((4, 16, 48), (4, 48, 80), ((), (), (0, 2), (0, 1)), ("bf16",) * 3)
    algorithm = (
        ", algorithm = #stablehlo.dot_algorithm<lhs_precision_type = {0}, rhs_precision_type = {0}, accumulation_type = f32,"
        " lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1,"
        " allow_imprecise_accumulation = false>"
    )
    assert LibraryProduct.of_text(call_of(*plain, ("f32",) * 3, algorithm.format("tf32"))).sums == "tf32"
    assert not call_of(*plain, ("f32",) * 3, algorithm.format("bf16")), "operands are rounded on the way"


def test_small_products_are_not_worth_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert library_product(product(128, 128, 128), ("bf16",) * 3) is None
    assert library_product(product(4096, 4096, 4096), ("bf16",) * 3) is not None


def test_what_the_heuristics_refuse_is_our_kernels() -> None:
    lt = FakeLt()
    lt.refuses = True
    library = cublaslt.CublasLt(lt, 0x1000_0000)
    call = LibraryProduct.of_text(call_of(*LAYOUTS["plain"], ("bf16",) * 3))
    assert library.routine(call) is None and library.routine(call) is None and lt.heuristics == 1


TEXT = """
func.func @main(%x: tensor<64x48xbf16>, %y: tensor<48x80xbf16>) -> tensor<64x80xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<64x48xbf16>, tensor<48x80xbf16>) -> tensor<64x80xf32>
  return %0 : tensor<64x80xf32>
}"""


@pytest.mark.parametrize("is_installed", [True, False])
def test_programs_call_it_where_it_is(
    backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, is_installed: bool
) -> None:
    lt = FakeLt()
    monkeypatch.setattr(cublaslt, "unavailable", lambda: "" if is_installed else cublaslt.MISSING)
    monkeypatch.setattr(cublaslt, "load_bindings", lambda: lt)
    x, y = draw((64, 48), "bf16", 1), draw((48, 80), "bf16", 2)
    compiled = hlojit.compile(TEXT, backend="cuda")
    for _ in range(2):
        compare(compiled(x, y), x, y, ((), (), (1,), (0,)), "f32")
    assert (lt.calls, lt.heuristics) == ((2, 1) if is_installed else (0, 0))


def test_what_the_library_says_is_passed_on(backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise RuntimeError("libcublasLt.so.13 is not found")

    monkeypatch.setattr(cublaslt, "unavailable", lambda: "")
    monkeypatch.setattr(cublaslt, "load_bindings", missing)
    compiled = hlojit.compile(TEXT, backend="cuda")
    with pytest.raises(
        hlojit.HlojitError, match=r"cuBLASLt cannot be used: libcublasLt.so.13 is not found; .* or uninstall"
    ):
        compiled(draw((64, 48), "bf16", 1), draw((48, 80), "bf16", 2))


def test_the_fake_is_like_the_real_one() -> None:
    real = pytest.importorskip("nvmath.bindings.cublasLt")
    for name, function in inspect.getmembers(FakeLt, inspect.isfunction):
        if name.startswith("_"):
            continue
        taken = list(inspect.signature(function).parameters)[1:]
        line = str(getattr(real, name).__doc__).splitlines()[0]
        listed = line[line.index("(") + 1 : line.rindex(")")]
        assert [part.split()[-1].split("=")[0] for part in listed.split(", ") if part] == taken
    for enum in (FakeLt.MatmulDescAttribute, FakeLt.MatrixLayoutAttribute, FakeLt.MatmulPreferenceAttribute):
        for member in enum:
            assert int(getattr(real, enum.__name__)[member.name]) == member


def test_nothing_of_it_is_imported_before_it_is_used() -> None:
    script = "import sys, hlojit, hlojit.cuda.cublaslt as c, hlojit.cuda.nvidia_driver; c.unavailable(); print('nvmath' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
