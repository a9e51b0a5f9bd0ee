"""Products by NVIDIA's cuBLASLt, through the bindings of nvmath-python; not run yet: no GPU has been at hand.

    library = CublasLt(load_bindings())
    routine = library.routine(LibraryProduct.of_text(phase.library))
    routine(addresses, stream, workspace_address)

cuBLASLt speaks of matrices in columns.  A result of rows is one of columns whose rows and columns are exchanged: our right
operand is its first one, our left operand its second.  Algorithms are what its heuristics propose, for addresses that
are multiples of 256 bytes, among those that add in the type of the sums and not in the result's.

What its documentation asks for, and where it is seen to: 8-bit elements lie with their terms as neighbours on both sides
(its first operand transposed, its second not), in extents, strides and batches that are multiples of 16 bytes
(``library_product``); sums of 8-bit integers are scaled in i32, all others in f32; scales of 8-bit floats that nobody sets
are 1; the workspace belongs to one stream (``NvidiaDriver``).  A bias of our columns is one of its rows.  Its address is an
attribute of the descriptor, which all threads share, and is read when the product is put on a stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Final, final

import numpy as np
from hlojit.ir.time_limit import uninterrupted
from hlojit.lowering.library_product import LibraryMatrix, LibraryProduct

WORKSPACE_BYTES: Final = 32 << 20
"""What NVIDIA recommends for Hopper."""
MISSING: Final = "nvmath-python is not installed (pip install 'hlojit[cublas]')"
# cudaDataType and cublasComputeType_t.
_TYPES: Final = {"f32": 0, "f16": 2, "i8": 3, "i32": 10, "bf16": 14, "f8E4M3FN": 28, "f8E5M2": 29}
_COMPUTE: Final = {"f32": 68, "i32": 72, "tf32": 77}
_TRANSPOSED: Final = 1
"""``CUBLAS_OP_T``."""
_ADDS_AS_IT_COMPUTES: Final = 2
"""``CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE``: parts of sums are not rounded to the result's type before they are added."""
_BIAS: Final = 4
"""``CUBLASLT_EPILOGUE_BIAS``."""
_ALIGNED: Final = 256
"""A multiple of what addresses are multiples of."""
_NOT_SUPPORTED: Final = 15
"""``CUBLAS_STATUS_NOT_SUPPORTED``."""
_ADVICE: Final = (
    "install what nvmath-python needs (pip install 'hlojit[cublas]'), or leave the library out (HLOJIT_LIBRARIES=off)"
)


def unavailable() -> str:
    """Why there is no such library here, or an empty string; imports nothing."""
    return MISSING if find_spec("nvmath") is None else ""


def explained(error: BaseException) -> str:
    """Why the library that is installed cannot be used, and what to do."""
    # Behind the first line it lists the folders in which it has looked.
    first = next(iter(str(error).splitlines()), "") or repr(error)
    return f"cuBLASLt cannot be used: {first}; {_ADVICE}"


def version() -> str:
    """What the library calls itself; loads it, and raises what the bindings do where that fails."""
    number = int(load_bindings().get_version())
    # 13.1.0 is 130100, and was 11.4.2 11402.
    major, rest = divmod(number, 10000 if number >= 100000 else 1000)
    return f"cuBLASLt {major}.{rest // 100}.{rest % 100}"


def load_bindings() -> Any:
    """The module of the bindings; imports it."""
    from nvmath.bindings import cublasLt

    return cublasLt


@final
class CublasLt:
    """The library on one device; the device's context is current when it is used.  May be used by several threads."""

    def __init__(self, bindings: Any):
        self._lt = bindings
        self._handle: int = bindings.create()
        self._routines: dict[LibraryProduct, Routine | None] = {}
        self._lock = threading.Lock()

    def routine(self, product: LibraryProduct) -> Routine | None:
        """What computes a product, made once; None where the library has no algorithm for it."""
        with uninterrupted(), self._lock:
            if product not in self._routines:
                self._routines[product] = self._made(product)
            return self._routines[product]

    def _made(self, product: LibraryProduct) -> Routine | None:
        descriptor = self._descriptor(product)
        layouts = self._layouts(product)
        algorithm = self._algorithm(descriptor, layouts, product.way)
        if algorithm is None:
            return None
        return Routine(self._lt, self._handle, product, descriptor, layouts, algorithm, self._bias_setter(descriptor))

    def _bias_setter(self, descriptor: int) -> Callable[[int], None]:
        """What sets the address of a bias."""
        number = int(self._lt.MatmulDescAttribute["BIAS_POINTER"])
        content = np.zeros(1, self._lt.get_matmul_desc_attribute_dtype(number))

        def set_address(address: int) -> None:
            content[0] = address
            self._lt.matmul_desc_set_attribute(descriptor, number, content.ctypes.data, content.nbytes)

        return set_address

    def _set(self, kind: str, owner: int, attribute: str, value: int) -> None:
        """Set an attribute of a descriptor (``matmul_desc``, ``matrix_layout``, ``matmul_preference``)."""
        enum = {
            "matmul_desc": "MatmulDescAttribute",
            "matrix_layout": "MatrixLayoutAttribute",
            "matmul_preference": "MatmulPreferenceAttribute",
        }[kind]
        number = int(getattr(self._lt, enum)[attribute])
        content = np.array([value], getattr(self._lt, f"get_{kind}_attribute_dtype")(number))
        getattr(self._lt, f"{kind}_set_attribute")(owner, number, content.ctypes.data, content.nbytes)

    def _descriptor(self, product: LibraryProduct) -> int:
        scale = _TYPES["i32" if product.sums == "i32" else "f32"]
        made: int = self._lt.matmul_desc_create(_COMPUTE[product.sums], scale)
        if product.rhs.row_step == 1:
            self._set("matmul_desc", made, "TRANSA", _TRANSPOSED)
        if product.lhs.row_step == 1:
            self._set("matmul_desc", made, "TRANSB", _TRANSPOSED)
        if product.fast:
            self._set("matmul_desc", made, "FAST_ACCUM", 1)
        if product.bias is not None:
            self._set("matmul_desc", made, "EPILOGUE", _BIAS)
            # No address of anything: the heuristics ask what it is a multiple of.
            self._set("matmul_desc", made, "BIAS_POINTER", _ALIGNED)
        return made

    def _layouts(self, product: LibraryProduct) -> tuple[int, int, int]:
        """Of its first operand (our right one), its second, and the result."""
        m, n, k = product.m, product.n, product.k
        first = (k, n) if product.rhs.row_step == 1 else (n, k)
        second = (m, k) if product.lhs.row_step == 1 else (k, m)
        return (
            self._layout(product, product.rhs, *first),
            self._layout(product, product.lhs, *second),
            self._layout(product, product.result, n, m),
        )

    def _layout(self, product: LibraryProduct, matrix: LibraryMatrix, rows: int, columns: int) -> int:
        made: int = self._lt.matrix_layout_create(_TYPES[matrix.element], rows, columns, matrix.step)
        if product.batch > 1:
            self._set("matrix_layout", made, "BATCH_COUNT", product.batch)
            self._set("matrix_layout", made, "STRIDED_BATCH_OFFSET", matrix.batch_step)
        return made

    def _algorithm(self, descriptor: int, layouts: tuple[int, int, int], way: int) -> Any:
        """Number ``way`` of those that the heuristics name, as the bindings' object that holds it; None if there is none."""
        lt, (first, second, result) = self._lt, layouts
        preference = lt.matmul_preference_create()
        try:
            self._set("matmul_preference", preference, "MAX_WORKSPACE_BYTES", WORKSPACE_BYTES)
            self._set("matmul_preference", preference, "REDUCTION_SCHEME_MASK", _ADDS_AS_IT_COMPUTES)
            asked, count = way + 1, np.zeros(1, np.int32)
            found = lt.MatmulHeuristicResult(asked)
            lt.matmul_algo_get_heuristic(
                self._handle, descriptor, first, second, result, result, preference, asked, found.ptr, count.ctypes.data
            )
        except lt.cuBLASLtError as error:
            if error.status == _NOT_SUPPORTED:
                return None
            raise
        finally:
            lt.matmul_preference_destroy(preference)
        # What is found has a status of its own; what is not has contents that nobody wrote.
        return found[way] if count[0] > way and not found[way].state else None


@final
class Routine:
    """One product, ready to be called with the addresses of a kernel's buffers."""

    def __init__(
        self,
        bindings: Any,
        handle: int,
        product: LibraryProduct,
        descriptor: int,
        layouts: tuple[int, int, int],
        algorithm: Any,
        set_bias: Callable[[int], None],
    ):
        kind = np.int32 if product.sums == "i32" else np.float32
        # Host memory that is read at every call.
        self._scales = np.array([1, 0], kind)
        self._algorithm = algorithm
        self._buffers, self._bias = product.buffers, product.bias
        self._set_bias, self._lock = set_bias, threading.Lock()
        alpha = int(self._scales.ctypes.data)
        beta = alpha + self._scales.itemsize
        first, second, result = layouts

        def call(left: int, right: int, out: int, stream: int, workspace: int) -> None:
            bindings.matmul(
                handle, descriptor, alpha, right, first, left, second, beta, out, result, out, result,
                algorithm.ptr, workspace, WORKSPACE_BYTES, stream,
            )  # fmt: skip

        self._call: Callable[[int, int, int, int, int], None] = call

    def __call__(self, addresses: Sequence[int], stream: int, workspace: int) -> None:
        """Put the product on a stream, which nothing else that uses the workspace may run beside."""
        lhs, rhs, result = (addresses[number] for number in self._buffers)
        if self._bias is None:
            self._call(lhs, rhs, result, stream, workspace)
            return
        with uninterrupted(), self._lock:
            self._set_bias(addresses[self._bias])
            self._call(lhs, rhs, result, stream, workspace)
