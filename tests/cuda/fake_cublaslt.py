"""``nvmath.bindings.cublasLt`` without a GPU: every function checks what it is given, and the product is made by NumPy.

Signatures, enumerations and types of attributes are those of nvmath-python 1.0; matrices are in columns, as there.
"""

from __future__ import annotations

import ctypes
import itertools
from enum import IntEnum
from typing import Any

import ml_dtypes
import numpy as np

TYPES = {
    0: np.float32, 2: np.float16, 3: np.int8, 10: np.int32, 14: ml_dtypes.bfloat16,
    28: ml_dtypes.float8_e4m3fn, 29: ml_dtypes.float8_e5m2,
}  # fmt: skip
FULL, INTEGER, TF32 = 68, 72, 77


class MatmulDescAttribute(IntEnum):
    TRANSA = 3
    TRANSB = 4
    EPILOGUE = 7
    BIAS_POINTER = 8
    FAST_ACCUM = 25


class MatrixLayoutAttribute(IntEnum):
    BATCH_COUNT = 5
    STRIDED_BATCH_OFFSET = 6


class MatmulPreferenceAttribute(IntEnum):
    MAX_WORKSPACE_BYTES = 1
    REDUCTION_SCHEME_MASK = 3


class MatmulHeuristicResult:
    """An algorithm of 64 bytes, the workspace that it takes, a status; nothing of it is written at first."""

    def __init__(self, size: int = 1):
        self._memory = np.full((size, 96), 0xAB, np.uint8)

    @property
    def ptr(self) -> int:
        return int(self._memory.ctypes.data)

    def __getitem__(self, number: int) -> MatmulHeuristicResult:
        made = MatmulHeuristicResult(0)
        made._memory = self._memory[number : number + 1]
        return made

    @property
    def state(self) -> int:
        return int(self._memory[0, 72:76].view(np.int32)[0])


class cuBLASLtError(Exception):
    def __init__(self, status: int):
        self.status = status
        super().__init__(f"status {status}")


class FakeLt:
    """The module; ``refuses`` is how the heuristics find nothing: with a status, with no result, with a result of a status."""

    MatmulDescAttribute = MatmulDescAttribute
    MatrixLayoutAttribute = MatrixLayoutAttribute
    MatmulPreferenceAttribute = MatmulPreferenceAttribute
    MatmulHeuristicResult = MatmulHeuristicResult
    cuBLASLtError = cuBLASLtError

    def __init__(self) -> None:
        self.refuses = ""
        self.ways = 2
        """Algorithms that the heuristics know."""
        self.ran: list[str] = []
        self.calls = 0
        self.workspaces: list[tuple[int, int]] = []
        self.heuristics = 0
        self._numbers = itertools.count(7000)
        self._objects: dict[int, dict[str, Any]] = {}
        self._algorithms: set[bytes] = set()

    def _new(self, kind: str, **content: Any) -> int:
        number = next(self._numbers)
        self._objects[number] = {"kind": kind, **content}
        return number

    def _object(self, number: int, kind: str) -> dict[str, Any]:
        found = self._objects[number]
        assert found["kind"] == kind, (found, kind)
        return found

    def objects(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self._objects.values() if each["kind"] == kind]

    def create(self) -> int:
        return self._new("handle")

    def get_version(self) -> int:
        return 130100

    def matmul_desc_create(self, compute_type: int, scale_type: int) -> int:
        assert (compute_type, scale_type) in ((FULL, 0), (TF32, 0), (INTEGER, 10))
        return self._new("desc", compute=compute_type, TRANSA=0, TRANSB=0, FAST_ACCUM=0, EPILOGUE=1, BIAS_POINTER=0)

    def matrix_layout_create(self, type: int, rows: int, cols: int, ld: int) -> int:
        assert type in TYPES and rows > 0 and cols > 0 and ld >= rows, (type, rows, cols, ld)
        return self._new("layout", type=type, rows=rows, cols=cols, ld=ld, BATCH_COUNT=1, STRIDED_BATCH_OFFSET=0)

    def matmul_preference_create(self) -> int:
        return self._new("preference", MAX_WORKSPACE_BYTES=0, REDUCTION_SCHEME_MASK=7)

    def matmul_preference_destroy(self, pref: int) -> None:
        self._object(pref, "preference")
        del self._objects[pref]

    def get_matmul_desc_attribute_dtype(self, attr: int) -> Any:
        return {3: np.int32, 4: np.int32, 7: np.uint32, 8: np.int64, 25: np.int8}[attr]

    def get_matrix_layout_attribute_dtype(self, attr: int) -> Any:
        return {5: np.int32, 6: np.int64}[attr]

    def get_matmul_preference_attribute_dtype(self, attr: int) -> Any:
        return {1: np.uint64, 3: np.uint32}[attr]

    def _set(self, kind: str, number: int, attribute: IntEnum, dtype: Any, buf: int, size: int) -> None:
        assert size == np.dtype(dtype).itemsize
        value = np.frombuffer(ctypes.string_at(buf, size), dtype)[0]
        self._object(number, kind)[attribute.name] = int(value)

    def matmul_desc_set_attribute(self, matmul_desc: int, attr: int, buf: int, size_in_bytes: int) -> None:
        dtype = self.get_matmul_desc_attribute_dtype(attr)
        self._set("desc", matmul_desc, MatmulDescAttribute(attr), dtype, buf, size_in_bytes)

    def matrix_layout_set_attribute(self, mat_layout: int, attr: int, buf: int, size_in_bytes: int) -> None:
        dtype = self.get_matrix_layout_attribute_dtype(attr)
        self._set("layout", mat_layout, MatrixLayoutAttribute(attr), dtype, buf, size_in_bytes)

    def matmul_preference_set_attribute(self, pref: int, attr: int, buf: int, size_in_bytes: int) -> None:
        dtype = self.get_matmul_preference_attribute_dtype(attr)
        self._set("preference", pref, MatmulPreferenceAttribute(attr), dtype, buf, size_in_bytes)

    def matmul_algo_get_heuristic(
        self, light_handle: int, operation_desc: int, adesc: int, bdesc: int, cdesc: int, ddesc: int, preference: int,
        requested_algo_count: int, heuristic_results_array: int, return_algo_count: int,
    ) -> None:  # fmt: skip
        self._object(light_handle, "handle")
        asked = self._object(preference, "preference")
        assert asked["MAX_WORKSPACE_BYTES"] == 32 << 20 and requested_algo_count >= 1
        assert asked["REDUCTION_SCHEME_MASK"] == 2, "parts of sums would be rounded to the result's type"
        self._shapes(operation_desc, adesc, bdesc, ddesc)
        self._object(cdesc, "layout")
        operation = self._object(operation_desc, "desc")
        # They look at what the bias's address is a multiple of.
        assert (operation["EPILOGUE"] == 4) == bool(operation["BIAS_POINTER"]) and not operation["BIAS_POINTER"] % 256
        self.heuristics += 1
        count = ctypes.c_int32.from_address(return_algo_count)
        count.value = 0
        if self.refuses == "status":
            raise cuBLASLtError(15)
        if self.refuses == "no result":
            return
        count.value = min(requested_algo_count, self.ways)
        for number in range(count.value):
            algorithm = f"algorithm {self.heuristics}, way {number}".ljust(64).encode()
            self._algorithms.add(algorithm)
            ctypes.memmove(heuristic_results_array + 96 * number, algorithm, 64)
            ctypes.c_int32.from_address(heuristic_results_array + 96 * number + 72).value = 15 if self.refuses else 0

    def _shapes(self, desc: int, *layouts: int) -> tuple[int, int, int]:
        """M, N and K; the operands fit together, and 8-bit elements lie as the library wants them."""
        operation = self._object(desc, "desc")
        a, b, d = (self._object(each, "layout") for each in layouts)
        m, k = (a["cols"], a["rows"]) if operation["TRANSA"] else (a["rows"], a["cols"])
        other, n = (b["cols"], b["rows"]) if operation["TRANSB"] else (b["rows"], b["cols"])
        assert k == other and (d["rows"], d["cols"]) == (m, n)
        assert a["BATCH_COUNT"] == b["BATCH_COUNT"] == d["BATCH_COUNT"]
        if np.dtype(TYPES[a["type"]]).itemsize == 1:
            assert operation["TRANSA"] and not operation["TRANSB"]
            assert not any(each % 16 for each in (m, n, k, a["ld"], b["ld"], d["ld"]))
            assert not any(each["STRIDED_BATCH_OFFSET"] % 16 for each in (a, b, d))
        return m, n, k

    def _matrices(self, layout: int, address: int) -> np.ndarray[Any, Any]:
        """Batches of matrices, which are in columns."""
        found = self._object(layout, "layout")
        dtype = np.dtype(TYPES[found["type"]])
        batches, step, ld = found["BATCH_COUNT"], found["STRIDED_BATCH_OFFSET"], found["ld"]
        count = (batches - 1) * step + (found["cols"] - 1) * ld + found["rows"]
        memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
        strides = (step * dtype.itemsize, dtype.itemsize, ld * dtype.itemsize)
        return np.ndarray((batches, found["rows"], found["cols"]), dtype, memory, strides=strides)

    def matmul(
        self, light_handle: int, compute_desc: int, alpha: int, a: int, adesc: int, b: int, bdesc: int, beta: int, c: int,
        cdesc: int, d: int, ddesc: int, algo: int, workspace: int, workspace_size_in_bytes: int, stream: int,
    ) -> None:  # fmt: skip
        self._object(light_handle, "handle")
        self._shapes(compute_desc, adesc, bdesc, ddesc)
        operation = self._object(compute_desc, "desc")
        scale = ctypes.c_int32 if operation["compute"] == INTEGER else ctypes.c_float
        assert scale.from_address(alpha).value == 1 and scale.from_address(beta).value == 0
        assert c == d and cdesc == ddesc and isinstance(stream, int)
        assert ctypes.string_at(algo, 64) in self._algorithms, "what the heuristics gave"
        self.ran.append(ctypes.string_at(algo, 64).decode().strip())
        assert workspace % 256 == 0 and workspace and workspace_size_in_bytes == 32 << 20
        wide = np.int64 if operation["compute"] == INTEGER else np.float64
        left, right = (self._matrices(*each).astype(wide) for each in ((adesc, a), (bdesc, b)))
        left = left.swapaxes(1, 2) if operation["TRANSA"] else left
        right = right.swapaxes(1, 2) if operation["TRANSB"] else right
        out = self._matrices(ddesc, d)
        sums = left @ right
        if operation["EPILOGUE"] == 4:
            # A row of the result an element, of the result's type where operands have 16 bits or more.
            assert out.dtype == np.float32 and np.dtype(TYPES[self._object(adesc, "layout")["type"]]).itemsize > 1
            bias = (ctypes.c_float * out.shape[1]).from_address(operation["BIAS_POINTER"])
            sums = sums.astype(np.float32) + np.array(bias)[:, None]
        out[...] = sums.astype(out.dtype)
        self.calls += 1
        self.workspaces.append((stream, workspace))
