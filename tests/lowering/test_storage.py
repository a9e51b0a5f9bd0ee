"""Storage: layouts, packing and offsets; as sizes, as bytes, and as the kernels of fusions read and write them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hlojit.cpu.processor import host_target
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Instruction
from hlojit.ir.sizes import add, divide_up, evaluate, extent, known, maximum, multiply, round_up, text
from hlojit.ir.types import tensor
from hlojit.llvm.fusion_emitter import emit_fusion
from hlojit.lowering.storage import HOST, Storage
from hlojit.lowering.storage_arrays import from_memory, to_memory
from hlojit.machine_code.loading import compile_to_object, load_objects
from hypothesis import given, settings
from hypothesis import strategies as st

Array = np.ndarray[Any, Any]


# --------------------------------------------------------------------------------------------------------------- sizes


def test_constants_are_numbers() -> None:
    assert (add(2, 3, 0), multiply(2, 3, 4), maximum(3, 9, 4), round_up(65, 64), divide_up(65, 64)) == (
        5,
        24,
        9,
        128,
        2,
    )
    assert add() == 0 and multiply() == 1 and multiply(extent(0, 0), 0) == 0


def test_expressions_are_plain_equal_and_readable() -> None:
    rows = extent(1, 0)
    size = round_up(add(multiply(rows, 12), 0, 4), 64)
    assert size == round_up(add(multiply(extent(1, 0), 12), 4), 64)
    assert text(size) == "(((input1.shape[0] * 12) + 4) up to 64)"
    assert [evaluate(size, [(), (count,)]) for count in (0, 5, 6)] == [64, 64, 128]
    assert evaluate(divide_up(rows, 2), [(), (7,)]) == 4


def test_dynamic_types_have_sizes_of_their_argument() -> None:
    storage = Storage.of(tensor((-1, 3, -1), "f32"), argument=2)
    assert evaluate(storage.nbytes, [(), (), (5, 3, 7)]) == 5 * 3 * 7 * 4
    assert [evaluate(stride, [(), (), (5, 3, 7)]) for stride in storage.strides] == [21, 7, 1]
    with pytest.raises(UnsupportedError, match=r"input2.shape\[0\]"):
        known(storage.size)


# ------------------------------------------------------------------------------------------------------------- layouts


def test_plain_is_what_arrays_are() -> None:
    storage = Storage.of(tensor((2, 3, 4), "f16"))
    assert storage.is_plain and storage.strides == (12, 4, 1) and storage.nbytes == 48 and storage.space == HOST
    assert str(storage) == "2x3x4xf16"
    others = (storage.with_layout((0, 1, 2)), replace(storage, offset=8), replace(storage, space="device"),
              storage.packed(2))  # fmt: skip
    assert not any(other.is_plain for other in others)
    assert storage.with_layout((2, 1, 0)) == storage


def test_gaps_and_offsets_count_as_bytes() -> None:
    padded = replace(Storage.of(tensor((3, 5), "f32")), strides=(8, 1), offset=16)
    assert padded.span == 21 and padded.nbytes == 16 + 84
    assert replace(padded, shape=(0, 5)).nbytes == 16
    assert str(padded) == "3x5xf32 strides [8, 1] at +16"
    assert Storage.of(tensor((3, 3), "i4")).packed(2).nbytes == 5


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.integers(0, 4), max_size=3),
    st.randoms(use_true_random=False),
    st.sampled_from(["i4", "ui4", "f32", "i8"]),
)
def test_bytes_and_back(shape: list[int], random: Any, element: str) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)
    storage = Storage.of(tensor(shape, element)).with_layout(order)
    storage = replace(storage, offset=storage.itemsize * random.randrange(3))
    if element.endswith("i4"):
        storage = storage.packed(2)
    values = np.array([random.randrange(16) for _ in range(int(np.prod(shape)))]).reshape(shape)
    array = (values - 8 if element == "i4" else values).astype(storage_dtype(element))
    memory = to_memory(array, storage)
    assert memory.nbytes == storage.nbytes
    np.testing.assert_array_equal(from_memory(memory, storage), array)
    if storage.packing == 1 and storage.offset == 0:
        # NumPy's own strides say the same.
        strided = np.lib.stride_tricks.as_strided(
            memory.view(array.dtype),
            array.shape,
            [int(stride) * array.itemsize for stride in storage.strides],  # type: ignore[arg-type]
        )
        np.testing.assert_array_equal(strided, array)


def storage_dtype(element: str) -> str:
    return {"i4": "i1", "ui4": "u1", "f32": "f4", "i8": "i1"}[element]


# ------------------------------------------------------------------------------------------------- in kernels of fusions


def run_with(instruction: Instruction, arrays: Sequence[Array], storages: Sequence[Storage]) -> list[Array]:
    """Launch the kernel of a fusion over operands laid out as ``storages`` say; bytes in gaps must stay as they are."""
    code = emit_fusion(instruction, host_target(), "kernel", storages)
    image = compile_to_object(code.ir, host_target(), pipeline=code.pipeline)
    loaded = load_objects([image], [phase.symbol for phase in code.phases])
    memories = [to_memory(array, storage) for array, storage in zip(arrays, storages)]
    results = storages[len(arrays) :]
    memories += [np.full(int(storage.nbytes), 0xA5, np.uint8) for storage in results]  # type: ignore[arg-type]
    addresses = (ctypes.c_void_p * len(memories))(*(memory.ctypes.data for memory in memories))
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    for phase in code.phases:
        signature(loaded.address(phase.symbol))(None, addresses, 0, phase.tasks)
    found = [from_memory(memory, storage) for memory, storage in zip(memories[len(arrays) :], results)]
    for memory, storage, result in zip(memories[len(arrays) :], results, found):
        ones = np.frombuffer(b"\xff" * result.nbytes, result.dtype).reshape(result.shape)
        covered = to_memory(ones, storage).astype(bool)
        assert (memory[~covered] == 0xA5).all()
    return found


LAYOUTS = {
    "plain": lambda storage: storage,
    "columns": lambda storage: storage.with_layout((0, 1)),
    "padded": lambda storage: replace(storage, strides=(64, 1)),
    "every_other": lambda storage: replace(storage, strides=(storage.shape[1] * 2, 2)),
    "later": lambda storage: replace(storage, offset=storage.itemsize * 3),
}


@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
def test_a_fusion_reads_and_writes_any_strides(lab: Any, random: np.random.Generator, first: str, second: str) -> None:
    x, y = (random.standard_normal((19, 37)).astype("f4") for _ in range(2))
    type = tensor((19, 37), "f32")
    fusion = lab.make_fusion(lambda b, x, y: b.add(b.multiply(x, y), x), type, type)
    plain = Storage.of(type)
    storages = [LAYOUTS[first](plain), LAYOUTS[second](plain), LAYOUTS[first](plain)]
    (result,) = run_with(fusion, [x, y], storages)
    np.testing.assert_array_equal(result, x * y + x)


def test_transposed_memory_of_a_transpose_is_a_copy(lab: Any, random: np.random.Generator) -> None:
    x = random.standard_normal((70, 90)).astype("f4")
    fusion = lab.make_fusion(lambda b, x: b.transpose(x, permutation=(1, 0)), tensor((70, 90), "f32"))
    columns = Storage.of(tensor((70, 90), "f32")).with_layout((0, 1))
    (result,) = run_with(fusion, [x], [columns, Storage.of(tensor((90, 70), "f32"))])
    np.testing.assert_array_equal(result, x.T)


@pytest.mark.parametrize("layout", ["columns", "padded"])
def test_a_reduction_reads_any_strides_and_writes_rows(lab: Any, random: np.random.Generator, layout: str) -> None:
    x = random.integers(-9, 9, (40, 50)).astype("f4")
    type = tensor((40, 50), "f32")

    def build(b: Any, x: Any, init: Any) -> Any:
        return b.reduce([x], [init], b.combiner("add", "f32"), dimensions=(1,))

    init, rows = Storage.of(tensor((), "f32")), Storage.of(tensor((40,), "f32"))
    fusion = lab.make_fusion(build, type, tensor((), "f32"), kind="reduction")
    (result,) = run_with(fusion, [x, np.float32(3)], [LAYOUTS[layout](Storage.of(type)), init, rows])
    np.testing.assert_array_equal(result, x.sum(1) + 3)
    with pytest.raises(UnsupportedError, match="cannot write its result as 40xf32 strides"):
        run_with(fusion, [x, np.float32(3)], [Storage.of(type), init, replace(rows, strides=(2,))])


@pytest.mark.parametrize("layout", ["plain", "columns"])
@pytest.mark.parametrize("element", ["i4", "ui4", "f4E2M1FN"])
def test_packed_weights_are_unpacked_where_they_are_read(
    lab: Any, random: np.random.Generator, element: str, layout: str
) -> None:
    codes = random.integers(0, 16, (21, 35)).astype("u1")
    scale = random.standard_normal(35).astype("f4")
    types = tensor((21, 35), element), tensor((35,), "f32")

    def build(b: Any, weights: Any, scale: Any) -> Any:
        wide = b.convert(weights, "f32")
        return b.multiply(wide, b.broadcast_in_dim(scale, (21, 35), (1,)))

    fusion = lab.make_fusion(build, *types)
    weights = LAYOUTS[layout](Storage.of(types[0])).packed(2)
    (result,) = run_with(fusion, [codes, scale], [weights, Storage.of(types[1]), Storage.of(tensor((21, 35), "f32"))])
    if element == "f4E2M1FN":
        values = codes.view(ml_dtypes.float4_e2m1fn).astype("f4")
    else:
        values = np.where((codes > 7) & (element == "i4"), codes.astype("i2") - 16, codes).astype("f4")
    np.testing.assert_array_equal(result, values * scale)


def test_packed_results_are_refused(lab: Any) -> None:
    type = tensor((4,), "i4")
    fusion = lab.make_fusion(lambda b, x: b.add(x, x), type)
    with pytest.raises(UnsupportedError, match=r"4xi4 2 in 1 B"):
        emit_fusion(fusion, host_target(), "kernel", [Storage.of(type), Storage.of(type).packed(2)])


def test_default_layouts_give_the_same_code(lab: Any) -> None:
    types = tensor((30, 40), "f32"), tensor((30, 40), "f32")
    fusion = lab.make_fusion(
        lambda b, x, y: b.add(b.transpose(b.transpose(x, permutation=(1, 0)), permutation=(1, 0)), y), *types
    )
    plain = [Storage.of(type) for type in (*types, types[0])]
    assert emit_fusion(fusion, host_target(), "kernel", plain) == emit_fusion(fusion, host_target(), "kernel")
