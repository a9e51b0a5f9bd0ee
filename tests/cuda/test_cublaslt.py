"""Products by cuBLASLt: which are offered, and what its functions are given, against a fake that checks all of it."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.cuda import cublaslt
from hlojit.cuda.nvptx import H200
from hlojit.gpu.driver import Grid
from hlojit.lowering.library_product import LibraryProduct, library_product
from hlojit.simt.kernels import emit_kernel
from hlojit.simt.simulator.dialect import SimulatorDialect
from hlojit.simt.simulator.module import simulated_target

from ..simt.test_dot import Numbers, compare, draw, instruction_of, product
from .fake_cublaslt import FakeLt, cuBLASLtError

if TYPE_CHECKING:
    from hlojit.cuda.backend import CudaBackend
    from hlojit.cuda.nvidia_driver import NvidiaDriver

    from .fake_cuda import FakeCuda

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
    routine = cublaslt.CublasLt(lt).routine(call)
    assert routine is not None
    lhs, rhs = draw(lhs_shape, types[0], 1), draw(rhs_shape, types[1], 2)
    kinds = {"bf16": ml_dtypes.bfloat16, "f32": np.float32, "i32": np.int32}
    result = np.zeros((call.batch, call.m, call.n), kinds[types[2]])
    memories = [aligned(np.ascontiguousarray(each)) for each in (lhs, rhs, result)]
    routine([address for _, address in memories], 5, 0x1000_0000)
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
    small, large = (library_product(product(n, n, n), ("bf16",) * 3) for n in (128, 4096))
    assert small is not None and not small.is_worthwhile
    assert large is not None and large.is_worthwhile
    batches = replace(product(64, 64, 64), batch=1 << 31)
    assert library_product(batches, ("bf16",) * 3) is None, "the library counts them in 32 bits"


def test_floats_of_8_bits_are_multiplied_with_as_many_bits_as_the_program_asks_for() -> None:
    shapes, types = LAYOUTS["right transposed"], ("f8E4M3FN", "f8E4M3FN", "f32")
    algorithm = (
        ", algorithm = #stablehlo.dot_algorithm<lhs_precision_type = f8E4M3FN, rhs_precision_type = f8E4M3FN,"
        " accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1,"
        " allow_imprecise_accumulation = {}>"
    )
    assert not LibraryProduct.of_text(call_of(*shapes, types)).fast
    assert not call_of(*shapes, types, algorithm.format("false"))
    assert not call_of(
        *shapes, types, ", precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"
    )
    text = call_of(*shapes, types, algorithm.format("true"))
    assert LibraryProduct.of_text(text).fast
    lt = FakeLt()
    cublaslt.CublasLt(lt).routine(LibraryProduct.of_text(text))
    assert [each["FAST_ACCUM"] for each in lt.objects("desc")] == [1]


@pytest.mark.parametrize("how", ["status", "no result", "result of a status"])
def test_what_the_heuristics_refuse_is_our_kernels(how: str) -> None:
    lt = FakeLt()
    lt.refuses = how
    library = cublaslt.CublasLt(lt)
    call = LibraryProduct.of_text(call_of(*LAYOUTS["plain"], ("bf16",) * 3))
    assert library.routine(call) is None and library.routine(call) is None and lt.heuristics == 1


def test_other_ways_are_what_the_heuristics_propose_next(driver: NvidiaDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    lt = FakeLt()
    use(monkeypatch, lambda: lt)
    call = LibraryProduct.of_text(call_of(*LAYOUTS["plain"], ("bf16", "bf16", "f32")))
    stream = driver.stream("one")
    buffers = [driver.allocate(nbytes, stream) for nbytes in (64 * 48 * 2, 48 * 80 * 2, 64 * 80 * 4)]
    for way in range(2):
        routine = driver.library(replace(call, way=way).to_text())
        assert routine is not None
        driver.launch(routine, Grid(1, 1), buffers, stream, "a product")
        assert lt.ran[-1].endswith(f"way {way}")
    assert driver.library(replace(call, way=2).to_text()) is None, "there is no third one"


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


GROUP = """
func.func @main(%x: tensor<64x48xbf16>, %y: tensor<48x80xbf16>, %b: tensor<80xf32>) -> tensor<64x80xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<64x48xbf16>, tensor<48x80xbf16>) -> tensor<64x80xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<80xf32>) -> tensor<64x80xf32>
  %2 = stablehlo.add %0, %1 : tensor<64x80xf32>
  %3 = stablehlo.negate %2 : tensor<64x80xf32>
  return %3 : tensor<64x80xf32>
}"""


@pytest.mark.parametrize(
    ("choice", "is_worthwhile", "is_installed", "calls"),
    [
        ("auto", True, True, 1),
        ("auto", False, True, 0),
        ("auto", True, False, 0),
        ("off", True, True, 0),
        ("require", False, True, 1),
    ],
)
def test_a_product_with_what_follows_it_is_one_kernel_or_a_call_and_a_launch(
    backend: CudaBackend,
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
    is_worthwhile: bool,
    is_installed: bool,
    calls: int,
) -> None:
    lt = FakeLt()
    use(monkeypatch, lambda: lt)
    if not is_installed:
        monkeypatch.setattr(cublaslt, "unavailable", lambda: cublaslt.MISSING)
    monkeypatch.setattr("hlojit.lowering.library_product.FEWEST_MACS", 1 << (10 if is_worthwhile else 40))
    name = f"@{choice}_{is_worthwhile}_{is_installed}".lower()
    program = hlojit.compile(GROUP.replace("@main", name), backend="cuda", options={"libraries": choice})
    (launch,) = program.spec.program.launches()
    assert len(launch.kernel.phases) == 1 + calls
    x, y, bias = draw((64, 48), "bf16", 1), draw((48, 80), "bf16", 2), draw((80,), "f32", 3)
    for _ in range(2):
        compare(-(np.asarray(program(x, y, bias)) + bias), x, y, ((), (), (1,), (0,)), "f32")
    assert lt.calls == 2 * calls


BIAS = GROUP.replace("  %3 = stablehlo.negate %2 : tensor<64x80xf32>\n", "").replace("return %3", "return %2")
ADDED = {
    "a bias": (BIAS, 1),
    "in front": (BIAS.replace("%0, %1", "%1, %0"), 1),
    "a batch of rows": (BIAS.replace("dims = [1] : (tensor<80x", "dims = [0] : (tensor<64x").replace("tensor<80xf32>)", "tensor<64xf32>)"), 2),
    "another function": (BIAS.replace("stablehlo.add", "stablehlo.maximum"), 2),
    "a narrow result": (BIAS.replace("f32", "bf16"), 2),
}  # fmt: skip
TOLERANCES = {"f32": {"rtol": 1e-5, "atol": 1e-4}, "bf16": {"rtol": 1e-2, "atol": 0.05}}


@pytest.mark.parametrize("name", ADDED)
def test_a_bias_is_added_by_the_library_where_it_is_rounded_as_the_program_does(
    backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lt = FakeLt()
    use(monkeypatch, lambda: lt)
    text, launches = ADDED[name]
    program = hlojit.compile(text.replace("@main", f"@{name.replace(' ', '_')}"), backend="cuda")
    (launch,) = program.spec.program.launches()
    assert len(launch.kernel.phases) == launches and launch.kernel.phases[0].library
    element = "bf16" if "narrow" in name else "f32"
    x, y = draw((64, 48), "bf16", 1), draw((48, 80), "bf16", 2)
    for seed in (3, 4):
        bias = draw((64 if "rows" in name else 80,), element, seed)
        other = bias[:, None] if "rows" in name else bias
        found, sums = np.asarray(program(x, y, bias)), x.astype("f4") @ y.astype("f4")
        expected = np.maximum(sums, other) if "function" in name else sums + other.astype("f4")
        np.testing.assert_allclose(found.astype("f4"), expected, **TOLERANCES[element])
    assert lt.calls == 2 and [each["EPILOGUE"] for each in lt.objects("desc")] == [4 if launches == 1 else 1]


def test_products_of_several_streams_have_their_own_bias(driver: NvidiaDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is in a descriptor that all share: it is set and read by one thread at a time."""
    lt = FakeLt()
    use(monkeypatch, lambda: lt)
    call = replace(LibraryProduct.of_text(call_of(*LAYOUTS["plain"], ("bf16", "bf16", "f32"))), bias=3)
    routine = driver.library(call.to_text())
    assert isinstance(routine, cublaslt.Routine)
    set_attribute, matmul, order = lt.matmul_desc_set_attribute, lt.matmul, []

    def setting(*arguments: Any) -> None:
        order.append(("set", threading.get_ident()))
        time.sleep(0.001)
        set_attribute(*arguments)

    def running(*arguments: Any) -> None:
        order.append(("run", threading.get_ident()))
        matmul(*arguments)

    monkeypatch.setattr(lt, "matmul_desc_set_attribute", setting)
    monkeypatch.setattr(lt, "matmul", running)
    x, y = draw((64, 48), "bf16", 1), draw((48, 80), "bf16", 2)
    expected, failed = x.astype("f4") @ y.astype("f4"), []

    def run(number: int) -> None:
        result, bias = np.zeros((64, 80), "f4"), np.full(80, number, "f4")
        memories = [aligned(each) for each in (x, y, result, bias)]
        for _ in range(5):
            routine([address for _, address in memories], number, 256)
        memory, address = memories[2]
        start = address - memory.ctypes.data
        found = memory[start : start + result.nbytes].view("f4").reshape(64, 80)
        failed.append(not np.allclose(found, expected + number, atol=1e-3))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [False] * 4
    pairs = list(zip(order[::2], order[1::2]))
    assert all((one[0], other[0]) == ("set", "run") and one[1] == other[1] for one, other in pairs)


def use(monkeypatch: pytest.MonkeyPatch, load: Callable[[], Any]) -> None:
    """A library whose bindings are what ``load`` returns."""
    monkeypatch.setattr(cublaslt, "unavailable", lambda: "")
    monkeypatch.setattr(cublaslt, "load_bindings", load)


def missing() -> Any:
    raise RuntimeError("libcublasLt.so.13 is not found\n  listdir(/usr/lib):\n    libc.so")


def test_a_library_that_cannot_be_loaded_is_told_once_and_done_without(
    backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use(monkeypatch, missing)
    x, y = draw((64, 48), "bf16", 1), draw((48, 80), "bf16", 2)
    for text in (TEXT, TEXT.replace("@main", "@other")):
        compare(hlojit.compile(text, backend="cuda")(x, y), x, y, ((), (), (1,), (0,)), "f32")
    (told,) = [each.getMessage() for each in caplog.records if "cuBLASLt" in each.getMessage()]
    assert "cuBLASLt cannot be used: libcublasLt.so.13 is not found; install what nvmath-python needs" in told
    assert "HLOJIT_LIBRARIES=off" in told and "our own kernels compute products" in told


def test_a_product_that_the_library_fails_at_is_our_kernels(
    backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lt = FakeLt()
    use(monkeypatch, lambda: lt)

    def fail(*_: Any) -> None:
        raise cuBLASLtError(7)

    monkeypatch.setattr(lt, "matmul_algo_get_heuristic", fail)
    x, y = draw((64, 48), "bf16", 1), draw((48, 80), "bf16", 2)
    compare(hlojit.compile(TEXT, backend="cuda")(x, y), x, y, ((), (), (1,), (0,)), "f32")
    assert "cuBLASLt does not compute" in caplog.text and "status 7; our own kernel does" in caplog.text


@pytest.mark.parametrize("by", ["option", "switch"])
def test_the_library_can_be_left_out_and_required(
    backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Programs with and without it, and one for which the product is too small to be worth it, at the same time."""
    lt = FakeLt()
    use(monkeypatch, lambda: lt)
    monkeypatch.setattr("hlojit.lowering.library_product.FEWEST_MACS", 1 << 30)
    text = TEXT.replace("@main", "@small")

    def compiled(choice: str) -> Any:
        if by == "option":
            monkeypatch.setenv("HLOJIT_LIBRARIES", "off" if choice == "require" else "require")
            return hlojit.compile(text, backend="cuda", options={"libraries": choice})
        monkeypatch.setenv("HLOJIT_LIBRARIES", choice)
        return hlojit.compile(text, backend="cuda")

    programs = {choice: compiled(choice) for choice in ("auto", "off", "require")}
    x, y = draw((64, 48), "bf16", 1), draw((48, 80), "bf16", 2)
    for choice, program in programs.items():
        before = lt.calls
        compare(program(x, y), x, y, ((), (), (1,), (0,)), "f32")
        assert lt.calls - before == (choice == "require"), choice


def test_a_program_without_the_library_takes_it_from_no_other(
    backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept on disk of a kernel is what all programs share."""
    lt = FakeLt()
    use(monkeypatch, lambda: lt)
    text = TEXT.replace("64x48", "64x32").replace("48x80", "32x80")
    x, y = draw((64, 32), "bf16", 1), draw((32, 80), "bf16", 2)
    for number, (choice, calls) in enumerate({"off": 0, "auto": 1}.items()):
        monkeypatch.setattr(backend, "_opened", {})
        hlojit.compile(text.replace("@main", f"@f{number}"), backend="cuda", options={"libraries": choice})(x, y)
        assert lt.calls == calls


def test_words_that_say_nothing_are_refused(backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(hlojit.HlojitError, match="compile option libraries='on' is none of auto, off, require"):
        hlojit.compile(TEXT, backend="cuda", options={"libraries": "on"})
    monkeypatch.setenv("HLOJIT_LIBRARIES", "yes")
    with pytest.raises(hlojit.HlojitError, match="HLOJIT_LIBRARIES='yes' is none of auto, off, require"):
        hlojit.compile(TEXT, backend="cuda")


def test_what_is_required_and_not_there_is_an_error(backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeLt)
    text, options = TEXT.replace("@main", "@required"), {"libraries": "require"}
    hlojit.compile(text, backend="cuda", options=options)
    use(monkeypatch, missing)
    with pytest.raises(hlojit.HlojitError, match=r"library for products is required .*libcublasLt.so.13 is not found"):
        hlojit.compile(text, backend="cuda", options=options)


def test_the_devices_say_who_computes_products(backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeLt)
    assert backend.notes() == ("cuda: cuBLASLt 13.1.0 computes large products (HLOJIT_LIBRARIES=auto)",)
    monkeypatch.setenv("HLOJIT_LIBRARIES", "off")
    assert "hlojit's; cuBLASLt 13.1.0 is there (HLOJIT_LIBRARIES=off)" in backend.notes()[0]
    use(monkeypatch, missing)
    assert "by kernels of hlojit's: cuBLASLt cannot be used: libcublasLt.so.13 is not found; inst" in backend.notes()[0]


def test_every_stream_has_a_workspace_of_its_own(driver: NvidiaDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    lt = FakeLt()
    use(monkeypatch, lambda: lt)
    call = call_of(*LAYOUTS["plain"], ("bf16", "bf16", "f32"))
    routine = driver.library(call)
    streams = [driver.stream("one"), driver.stream("two")]
    sizes = (64 * 48 * 2, 48 * 80 * 2, 64 * 80 * 4)
    buffers = [driver.allocate(nbytes, streams[0]) for nbytes in sizes]
    for stream in (*streams, streams[0]):
        driver.launch(routine, Grid(1, 1), buffers, stream, "a product")
    assert len({each for _, each in lt.workspaces}) == 2 and len(lt.workspaces) == 3
    assert lt.workspaces[0] == lt.workspaces[2]


def test_graphs_find_their_workspace_there(
    cuda: FakeCuda, driver: NvidiaDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken on the stream that captures, and used by graphs on streams that wait for nothing of that one."""
    use(monkeypatch, FakeLt)
    driver.library(call_of(*LAYOUTS["plain"], ("bf16", "bf16", "f32")))
    taken = cuda.calls.index("cuMemAllocAsync")
    assert "cuStreamSynchronize" in cuda.calls[taken:]


def test_the_fake_is_like_the_real_one() -> None:
    real = pytest.importorskip("nvmath.bindings.cublasLt")
    for name, function in inspect.getmembers(FakeLt, inspect.isfunction):
        if name.startswith("_") or name == "objects":
            continue
        taken = list(inspect.signature(function).parameters)[1:]
        line = str(getattr(real, name).__doc__).splitlines()[0]
        listed = line[line.index("(") + 1 : line.rindex(")")]
        assert [part.split()[-1].split("=")[0] for part in listed.split(", ") if part] == taken
    assert str(real.cuBLASLtError.__name__) == FakeLt.cuBLASLtError.__name__
    assert real.matmul_heuristic_result_dtype.fields["state"][1] == 72
    for enum in (FakeLt.MatmulDescAttribute, FakeLt.MatrixLayoutAttribute, FakeLt.MatmulPreferenceAttribute):
        for member in enum:
            assert int(getattr(real, enum.__name__)[member.name]) == member


def test_nothing_of_it_is_imported_before_it_is_used() -> None:
    script = "import sys, hlojit, hlojit.cuda.cublaslt as c, hlojit.cuda.nvidia_driver; c.unavailable(); print('nvmath' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
