"""The real bindings of nvmath-python over a library of a few lines of C, behind which the fake is: what arrives there.

Needs nvmath-python and a C compiler; not the libraries that nvmath-python binds.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hlojit.cuda import cublaslt
from hlojit.lowering.library_product import LibraryMatrix, LibraryProduct

from .fake_cublaslt import FakeLt, cuBLASLtError

pytestmark = pytest.mark.skipif(
    find_spec("nvmath") is None or shutil.which("cc") is None, reason="nvmath-python, or a C compiler, is not installed"
)
STUB = Path(__file__).parent / "stub_cublaslt.c"
I, L, P = ctypes.c_int, ctypes.c_longlong, ctypes.c_size_t
# The functions in the order of the stub's table: those that make something have its address as their first parameter.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "create": (P,),
    "matmul_desc_create": (P, I, I),
    "matmul_desc_set_attribute": (P, I, P, P),
    "matrix_layout_create": (P, I, P, P, L),
    "matrix_layout_set_attribute": (P, I, P, P),
    "matmul_preference_create": (P,),
    "matmul_preference_set_attribute": (P, I, P, P),
    "matmul_preference_destroy": (P,),
    "matmul_algo_get_heuristic": (P, P, P, P, P, P, P, I, P, P),
    "matmul": (P,) * 16,
}


def as_c(function: Callable[..., Any], makes: bool) -> Callable[..., int]:
    """A method of the fake as the C function whose binding it stands for."""

    def call(*arguments: int) -> int:
        try:
            result = function(*arguments[1:] if makes else arguments)
        except cuBLASLtError as error:
            return error.status
        except BaseException as error:
            failures.append(error)
            return 14
        if makes:
            ctypes.c_size_t.from_address(arguments[0]).value = result
        return 0

    return call


failures: list[BaseException] = []


def run() -> None:
    """In a process that finds the stub in place of the libraries: one product, one that is refused, one that is wrong."""
    folder = Path(os.environ["LD_LIBRARY_PATH"])
    fake, stub = FakeLt(), ctypes.CDLL(str(folder / "libcublasLt.so.13"), ctypes.RTLD_GLOBAL)
    table = (ctypes.c_void_p * 12).in_dll(stub, "table")
    kept = []
    for number, (name, kinds) in enumerate(FUNCTIONS.items()):
        function = ctypes.CFUNCTYPE(I, *kinds)(as_c(getattr(fake, name), name.endswith("create")))
        kept.append(function)
        table[number] = ctypes.cast(function, ctypes.c_void_p).value
    assert cublaslt.version() == "cuBLASLt 13.1.0"
    library = cublaslt.CublasLt(cublaslt.load_bindings())
    one = (
        LibraryMatrix("bf16", 48, 1, 64 * 48),
        LibraryMatrix("bf16", 1, 48, 80 * 48),
        LibraryMatrix("f32", 80, 1, 5120),
    )
    product = LibraryProduct(3, 64, 80, 48, *one, "f32", (0, 1, 2))
    routine = library.routine(product)
    assert routine is not None and not failures, failures
    generator = np.random.default_rng(0)
    x, y = (generator.standard_normal((3, n, 48)).astype(ml_dtypes.bfloat16) for n in (64, 80))
    result = np.zeros((3, 64, 80), "f4")
    routine([each.ctypes.data for each in (x, y, result)], 7, 1 << 20)
    assert not failures, failures
    np.testing.assert_allclose(result, x.astype("f8") @ y.astype("f8").swapaxes(1, 2), rtol=1e-5, atol=1e-5)
    biased = library.routine(LibraryProduct(3, 64, 80, 48, *one, "f32", (0, 1, 2), bias=3))
    assert biased is not None and not failures, failures
    bias = generator.standard_normal(80).astype("f4")
    plain = result.copy()
    biased([each.ctypes.data for each in (x, y, result, bias)], 7, 1 << 20)
    assert not failures, failures
    np.testing.assert_array_equal(result, plain + bias)
    assert fake.workspaces == [(7, 1 << 20)] * 2
    fake.refuses = "status"
    assert library.routine(LibraryProduct(3, 64, 80, 32, *one, "f32", (0, 1, 2))) is None
    fake.matmul = lambda *_: (_ for _ in ()).throw(cuBLASLtError(13))  # type: ignore[method-assign, assignment]
    table[9] = ctypes.cast(last := ctypes.CFUNCTYPE(I, *(P,) * 16)(as_c(fake.matmul, False)), ctypes.c_void_p).value
    try:
        routine([0, 0, 0], 7, 1 << 20)
    except Exception as error:
        assert "as the library explains it" in str(error), error
    else:
        raise AssertionError("a product that failed")
    del last
    print("done")


def test_the_real_bindings_carry_a_product_to_the_library(tmp_path: Path) -> None:
    for name in ("libcuda.so.1", "libcublasLt.so.13"):
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", tmp_path / name, STUB], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    script = f"import {__name__} as it; it.run()"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd=root, check=False
    )
    assert done.stdout.strip() == "done", done.stderr
