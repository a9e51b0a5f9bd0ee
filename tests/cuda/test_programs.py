"""Programs on the back end ``cuda``, run by the simulator, against NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.extensions import registry
from hlojit.lowering.program import Loop

pytestmark = pytest.mark.usefixtures("simulator")

TANH = """
func.func @tanh_of_sum(%x: tensor<64x128xf32>, %b: tensor<128xf32>) -> tensor<64x128xf32> {
  %0 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<128xf32>) -> tensor<64x128xf32>
  %1 = stablehlo.add %x, %0 : tensor<64x128xf32>
  %2 = stablehlo.tanh %1 : tensor<64x128xf32>
  return %2 : tensor<64x128xf32>
}
"""
COUNTING = """
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2.0> : tensor<4xf32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<4xf32>
   cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %b = stablehlo.multiply %a, %two : tensor<4xf32>
    stablehlo.return %j, %b : tensor<i32>, tensor<4xf32>
  }
  return %r#1, %r#0 : tensor<4xf32>, tensor<i32>
}
"""


def compiled(text: str) -> Any:
    return hlojit.compile(text, backend="cuda")


def test_a_fusion_gives_what_numpy_gives() -> None:
    x, b = np.random.default_rng(0).standard_normal((64, 128), "f4"), np.arange(128, dtype="f4") / 64
    result = compiled(TANH)(x, b)
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result, np.tanh(x + b), rtol=3e-7)


def test_a_decorated_function_runs() -> None:
    @hlojit.jit(backend="cuda")
    def f(x: Any, y: Any) -> Any:
        return np.maximum(x * y, 0) + 1

    x, y = np.linspace(-3, 3, 1000, dtype="f4"), np.full(1000, 2.5, "f4")
    np.testing.assert_array_equal(f(x, y), np.maximum(x * y, 0) + np.float32(1))


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "bfloat16", "i1", "i8", "i2", "u4", "?"])
@pytest.mark.parametrize("size", [0, 1, 33, 4099])
def test_every_element_type_and_odd_sizes(dtype: str, size: int) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x = np.arange(size).astype(kind)
    y = np.flip(x).copy()
    names = {
        "f8": "f64",
        "f4": "f32",
        "f2": "f16",
        "bfloat16": "bf16",
        "i1": "i8",
        "i8": "i64",
        "i2": "i16",
        "u4": "ui32",
        "?": "i1",
    }
    type_ = f"tensor<{size}x{names[dtype]}>"
    result = compiled(f"""
    func.func @main(%x: {type_}, %y: {type_}) -> {type_} {{
      %0 = stablehlo.maximum %x, %y : {type_}
      return %0 : {type_}
    }}""")(x, y)
    np.testing.assert_array_equal(result, np.maximum(x, y))


def test_a_loop_reads_its_predicate_back() -> None:
    f = compiled(COUNTING)
    x = np.array([1, 2, 3, 4], "f4")
    for count in (0, 1, 7):
        powers, end = f(x, np.int32(count))
        np.testing.assert_array_equal(powers, x * np.float32(2.0**count))
        assert end == count
    assert any(isinstance(step, Loop) for step in f.spec.program.steps)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_loops_whose_states_change_places(count: int) -> None:
    """Swapped buffers: the states' addresses are exchanged at every iteration."""
    f = compiled("""
    func.func @main(%x: tensor<5xi32>, %y: tensor<5xi32>, %n: tensor<i32>) -> (tensor<5xi32>, tensor<5xi32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:3 = stablehlo.while(%i = %zero, %a = %x, %b = %y) : tensor<i32>, tensor<5xi32>, tensor<5xi32>
       cond {
        %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %j = stablehlo.add %i, %one : tensor<i32>
        %c = stablehlo.reverse %a, dims = [0] : tensor<5xi32>
        %d = stablehlo.add %c, %b : tensor<5xi32>
        stablehlo.return %j, %d, %a : tensor<i32>, tensor<5xi32>, tensor<5xi32>
      }
      return %r#1, %r#2 : tensor<5xi32>, tensor<5xi32>
    }""")
    a, b = np.arange(5, dtype="i4"), np.arange(5, dtype="i4") * 10
    found = f(a, b, np.int32(count))
    for _ in range(count):
        a, b = a[::-1] + b, a
    np.testing.assert_array_equal(found[0], a)
    np.testing.assert_array_equal(found[1], b)


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 9])
def test_branches_take_the_case_that_the_index_names(index: int) -> None:
    f = compiled("""
    func.func @main(%i: tensor<i32>, %x: tensor<3xf32>) -> tensor<3xf32> {
      %0 = "stablehlo.case"(%i) ({
        %1 = stablehlo.add %x, %x : tensor<3xf32>
        stablehlo.return %1 : tensor<3xf32>
      }, {
        %2 = stablehlo.multiply %x, %x : tensor<3xf32>
        stablehlo.return %2 : tensor<3xf32>
      }, {
        %3 = stablehlo.negate %x : tensor<3xf32>
        stablehlo.return %3 : tensor<3xf32>
      }) : (tensor<i32>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }""")
    x = np.array([1, 2, 3], "f4")
    expected = [x + x, x * x, -x][index if 0 <= index < 3 else 2]
    np.testing.assert_array_equal(f(np.int32(index), x), expected)


@pytest.mark.parametrize("predicate", [False, True])
def test_if_takes_its_first_region_when_the_predicate_holds(predicate: bool) -> None:
    f = compiled("""
    func.func @main(%p: tensor<i1>, %x: tensor<3xf32>) -> tensor<3xf32> {
      %0 = "stablehlo.if"(%p) ({
        %1 = stablehlo.add %x, %x : tensor<3xf32>
        stablehlo.return %1 : tensor<3xf32>
      }, {
        %2 = stablehlo.negate %x : tensor<3xf32>
        stablehlo.return %2 : tensor<3xf32>
      }) : (tensor<i1>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }""")
    x = np.array([1, 2, 3], "f4")
    np.testing.assert_array_equal(f(np.bool_(predicate), x), x + x if predicate else -x)


def test_results_may_be_arguments_constants_and_each_other() -> None:
    f = compiled("""
    func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
      %c = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
      %0 = stablehlo.add %x, %c : tensor<3xf32>
      return %x, %c, %0, %0 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
    }""")
    x = np.array([4, 5, 6], "f4")
    same, constant, total, again = f(hlojit.put(x, "cuda"))
    assert same.device is total.device and str(same.device) == "cuda:0"
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(constant, np.array([1, 2, 3], "f4"))
    np.testing.assert_array_equal(total, x + constant)
    np.testing.assert_array_equal(again, total)


def test_what_has_no_kernel_is_refused_by_name() -> None:
    text = """
    func.func @main(%x: tensor<4x4xf32>) -> tensor<4xf32> {
      %0:3 = stablehlo.custom_call @lapack_ssyevd_ffi(%x) {
        api_version = 4 : i32, mhlo.backend_config = {mode = 86 : ui8, uplo = 76 : ui8},
        operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
        result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>, dense<> : tensor<0xindex>]
      } : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>, tensor<i32>)
      return %0#1 : tensor<4xf32>
    }"""
    with pytest.raises(
        hlojit.UnsupportedError, match=r"(?s)lapack.* is not supported by the back end 'cuda': .*host.*<string>:3"
    ):
        compiled(text)


def test_a_saved_program_runs_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "program.hlojit"
    compiled(COUNTING).save(path)
    script = (
        "import sys, hlojit, numpy as np\n"
        "f = hlojit.load(sys.argv[1])\n"
        "print(f(np.ones(4, 'f4'), np.int32(5))[0].tolist(), f.devices)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.startswith("[32.0, 32.0, 32.0, 32.0] (<Device cuda:0: ")


def test_loading_where_the_back_end_cannot_be_used_names_file_and_back_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "program.hlojit"
    compiled(COUNTING).save(path)
    backend = registry().backend("cuda")
    monkeypatch.setattr(
        type(backend), "unavailable", lambda self: "there is no GPU; HLOJIT_CUDA=simulator runs programs"
    )
    with pytest.raises(hlojit.HlojitError) as error:
        hlojit.load(path)
    assert str(error.value) == (
        f"{path}: main was compiled for the back end 'cuda', which cannot be used here: there is no GPU; "
        "HLOJIT_CUDA=simulator runs programs"
    )


def test_a_program_of_another_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "program.hlojit"
    hlojit.compile(COUNTING, backend="cpu").save(path)
    data = path.read_bytes()
    assert data.count(b"cpu") >= 1
    f = compiled(COUNTING)
    from dataclasses import replace

    other = replace(f.spec.compiled, provenance=replace(f.spec.compiled.provenance, triple="nvptx64", cpu="sm_90"))
    with pytest.raises(hlojit.HlojitError, match=r"was compiled for sm_90 \(nvptx64\), this is "):
        registry().backend("cuda").load(other)


def test_threads_compile_and_run_at_once() -> None:
    x = np.linspace(0, 1, 500, dtype="f4")
    failures: list[BaseException] = []
    barrier = threading.Barrier(6)

    def work(number: int) -> None:
        try:
            barrier.wait(30)
            f = hlojit.jit(lambda v: np.tanh(v) * number + number, backend="cuda")
            for _ in range(5):
                np.testing.assert_allclose(f(x), np.tanh(x) * number + number, rtol=1e-6)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.simulator_only("CUDA cannot be used in a child of fork")
def test_a_child_of_fork_runs_programs() -> None:
    script = """
import os, sys, numpy as np, hlojit
f = hlojit.jit(lambda v: v * 2 + 1, backend="cuda")
x = np.arange(5, dtype="f4")
kept = hlojit.put(x, "cuda")
assert f(x).tolist() == [1, 3, 5, 7, 9]
kept.wait()
child = os.fork()
if child == 0:
    good = f(x + 1).tolist() == [3, 5, 7, 9, 11] and hlojit.get(kept).tolist() == x.tolist()
    os._exit(0 if good else 1)
_, status = os.waitpid(child, 0)
assert f(kept).device is kept.device
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def test_launches_of_too_many_blocks_are_refused_when_compiled(simulator: str) -> None:
    n = 1 << 31
    text = f"""
    func.func @main(%x: tensor<{n}x1x1xi8>) -> tensor<{n}x1x1xi32> {{
      %0 = stablehlo.dot_general %x, %x, batching_dims = [0] x [0], contracting_dims = [2] x [1]
        : (tensor<{n}x1x1xi8>, tensor<{n}x1x1xi8>) -> tensor<{n}x1x1xi32>
      return %0 : tensor<{n}x1x1xi32>
    }}"""
    with pytest.raises(hlojit.UnsupportedError, match="dot_general.* a launch of 2,147,483,648 blocks"):
        hlojit.compile(text, backend="cuda")
