"""What neither the simulator nor functions that stand in for NVIDIA's can show: other libraries, faults, sizes, graphs, cuBLASLt.

Written without a GPU; ``make test-gpu`` runs it on one.
"""

from __future__ import annotations

import os
import subprocess
import sys

import hlojit
import numpy as np
import pytest
from hlojit.cuda import cublaslt

from .test_device import DOUBLE, device

pytestmark = pytest.mark.gpu_only

LINE = (1 << 32) + 77


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: one that loses its GPU, or in which JAX takes the GPU, is of no use to others."""
    kept = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False, env=kept | environment
    )


def test_it_describes_itself() -> None:
    found = device()
    free, total = found.driver.memory()
    assert 0 < free <= total and "simulat" not in found.description
    assert found.kind in run("import hlojit.command as c; c.main(['devices'])").stdout


def test_arrays_of_more_than_2_to_the_32_elements() -> None:
    x, y = np.zeros(LINE, np.int8), np.zeros(LINE, np.int8)
    x[-64:], y[-64:] = np.arange(64), 100
    text = f"func.func @main(%x: tensor<{LINE}xi8>, %y: tensor<{LINE}xi8>) -> tensor<{LINE}xi8> {{\n"
    text += f"%0 = stablehlo.subtract %x, %y : tensor<{LINE}xi8>\nreturn %0 : tensor<{LINE}xi8>\n}}"
    result = hlojit.get(hlojit.compile(text, backend="cuda")(hlojit.put(x, "cuda"), hlojit.put(y, "cuda")))
    np.testing.assert_array_equal(result[-64:], np.arange(64) - 100)
    assert not result[:-64].any()


def test_memory_that_is_not_there_is_an_error_and_no_end() -> None:
    kind = "tensor<400000000000xf32>"
    text = f"func.func @main(%x: tensor<f32>) -> {kind} {{\n%r = stablehlo.broadcast_in_dim %x, dims = [] : "
    text += f"(tensor<f32>) -> {kind}\nreturn %r : {kind}\n}}"
    with pytest.raises(
        hlojit.HlojitError, match=r"out of memory on cuda:0: 1,600,000,000,000 bytes for results of main"
    ):
        hlojit.compile(text, backend="cuda")(hlojit.put(np.float32(1), "cuda"))
    assert hlojit.compile(DOUBLE, backend="cuda")(np.arange(6, dtype="f4")).tolist() == [0, 2, 4, 6, 8, 10]


FAULT = f"""
import hlojit, numpy as np
double = hlojit.compile('''{DOUBLE}''', backend="cuda")
x = hlojit.put(np.arange(6, dtype="f4"), "cuda")
double(x)
class Nowhere:
    __cuda_array_interface__ = dict(shape=(6,), typestr="<f4", data=(256, False), strides=None, version=3)
y = double.execute(Nowhere())
for _ in range(2):
    try:
        hlojit.get(y)
    except hlojit.ExecutionError as error:
        print(error)
try:
    double(x)
except hlojit.ExecutionError as error:
    print(error)
print(hlojit.compile('''{DOUBLE}''', backend="cpu")(np.arange(6, dtype="f4")).tolist())
"""


def test_a_fault_names_the_kernel_and_the_cpu_goes_on() -> None:
    done = run(FAULT)
    assert done.returncode == 0, done.stderr
    first, *more, last = done.stdout.splitlines()
    assert "ILLEGAL_ADDRESS" in first and "double" in first and ":3:3" in first
    assert "needs a new process" in "".join(more)
    assert last == "[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]"


def test_a_program_of_many_kernels_becomes_a_graph() -> None:
    lines = ["%v0 = stablehlo.add %x, %x : tensor<64xf32>"]
    for number in range(25):
        lines.append(f"%s{number} = stablehlo.constant dense<0.0> : tensor<f32>")
        lines.append(
            f"%t{number} = stablehlo.reduce(%v{number} init: %s{number}) applies stablehlo.maximum across dimensions = [0] : "
            "(tensor<64xf32>, tensor<f32>) -> tensor<f32>"
        )
        lines.append(f"%b{number} = stablehlo.broadcast_in_dim %t{number}, dims = [] : (tensor<f32>) -> tensor<64xf32>")
        lines.append(f"%v{number + 1} = stablehlo.subtract %v{number}, %b{number} : tensor<64xf32>")
    body = "\n".join(lines)
    text = f"func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {{\n{body}\nreturn %v25 : tensor<64xf32>\n}}"
    executable, x = hlojit.compile(text, backend="cuda"), np.random.default_rng(0).random(64, "f4")
    expected = hlojit.compile(text, backend="cpu")(x)
    put = hlojit.put(x, "cuda")
    for _ in range(6):
        np.testing.assert_array_equal(hlojit.get(executable(put)), expected)


PRODUCT = """
func.func @main(%x: tensor<512x1024xbf16>, %y: tensor<1024x256xbf16>) -> tensor<512x256xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<512x1024xbf16>, tensor<1024x256xbf16>) -> tensor<512x256xf32>
  return %0 : tensor<512x256xf32>
}
"""


@pytest.mark.skipif(bool(cublaslt.unavailable()), reason=cublaslt.unavailable())
def test_products_by_cublaslt() -> None:
    x, y = (np.random.default_rng(seed).integers(-4, 5, shape) for seed, shape in ((0, (512, 1024)), (1, (1024, 256))))
    executable = hlojit.compile(PRODUCT, backend="cuda")
    assert any(phase.library for launch in executable.spec.program.launches() for phase in launch.kernel.phases)
    found = executable(*(hlojit.Array.from_values(each.astype("f4"), "bf16") for each in (x, y)))
    np.testing.assert_array_equal(found, (x @ y).astype("f4"))


TORCH = f"""
import torch, hlojit, numpy as np
double = hlojit.compile('''{DOUBLE}''', backend="cuda")
x = torch.arange(6, dtype=torch.float32, device="cuda")
y = double(x)
z = torch.from_dlpack(y)
assert z.device.type == "cuda" and z.tolist() == [0, 2, 4, 6, 8, 10], z
assert hlojit.put(z, "cuda").buffer.memory().handle.address == z.data_ptr()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    big = torch.zeros(1 << 28, device="cuda")
    for _ in range(20):
        big += 1
    first = big[:6]
    assert double(first).tolist() == [40.0] * 6, "our stream waits for theirs"
print("shared")
"""
CUPY = f"""
import cupy, hlojit, numpy as np
double = hlojit.compile('''{DOUBLE}''', backend="cuda")
x = cupy.arange(6, dtype=cupy.float32)
y = double(x)
assert cupy.asarray(y).tolist() == [0, 2, 4, 6, 8, 10] and cupy.from_dlpack(y).tolist() == [0, 2, 4, 6, 8, 10]
assert cupy.asarray(y).data.ptr == y.__cuda_array_interface__["data"][0]
print("shared")
"""
JAX = f"""
import jax, jax.numpy as jnp, hlojit, numpy as np
if jax.default_backend() != "gpu":
    raise SystemExit("JAX has no GPU")
double = hlojit.compile('''{DOUBLE}''', backend="cuda")
x = jnp.arange(6, dtype=jnp.float32)
y = double(x)
z = jnp.from_dlpack(y)
assert np.asarray(z).tolist() == [0, 2, 4, 6, 8, 10], z
assert np.asarray(jax.jit(lambda v: v + 1)(z)).tolist() == [1, 3, 5, 7, 9, 11]
print("shared")
"""


@pytest.mark.parametrize(("library", "script"), [("torch", TORCH), ("cupy", CUPY), ("jax", JAX)])
def test_arrays_of_other_libraries(library: str, script: str) -> None:
    pytest.importorskip(library)
    done = run(script, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    if "JAX has no GPU" in done.stderr:
        pytest.skip("JAX has no GPU here")
    assert done.stdout == "shared\n", done.stderr
