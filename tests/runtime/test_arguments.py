"""What may be passed to an executable, and what is said about the rest."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hlojit.arrays import Array
from hlojit.executable import Executable
from hlojit.ir.errors import ArgumentError, ExecutionError, HlojitError
from hlojit.ir.formats import FloatFormat, element_type, register_element_type, unregister_element_type
from hlojit.ir.types import TensorType, tensor
from hlojit.runtime import objects

from .programs import Build, add_one_program, copy_program, moving_program

NDArray = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def copy(build: Build) -> Any:
    """``copy(type)``: an executable that returns its argument, byte by byte."""

    def make(type_: TensorType, **fields: Any) -> Executable:
        return build(copy_program(type_.nbytes), [type_], [type_], name="copy", **fields)

    return make


MATRIX = np.arange(24, dtype=np.float32).reshape(4, 6)


def read_only() -> NDArray:
    result = MATRIX.copy()
    result.flags.writeable = False
    return result


def unaligned() -> NDArray:
    raw = np.zeros(MATRIX.nbytes + 1, np.uint8)
    result = raw[1:].view(np.float32).reshape(MATRIX.shape)
    result[...] = MATRIX
    assert not result.flags.aligned
    return result


class DlpackOnly:
    """An array of another library: DLPack and nothing else."""

    def __init__(self, values: NDArray):
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()


class ArrayMethodOnly:
    """An array of another library: ``__array__`` and nothing else."""

    def __init__(self, values: NDArray):
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return self.values


class OwnSubclass(np.ndarray):
    """A subclass of ndarray."""


GOOD = {
    "plain": lambda: MATRIX,
    "read-only": read_only,
    "transposed": lambda: np.asfortranarray(MATRIX),
    "strided": lambda: np.repeat(MATRIX, 2, axis=1)[:, ::2],
    "negative strides": lambda: MATRIX[::-1, ::-1].copy()[::-1, ::-1],
    "broadcast": lambda: np.broadcast_to(np.float32(3), (4, 6)),
    "big-endian": lambda: MATRIX.astype(">f4"),
    "unaligned": unaligned,
    "subclass": lambda: MATRIX.view(OwnSubclass),
    "dtype with metadata": lambda: MATRIX.astype(np.dtype(np.float32, metadata={"unit": "m"})),
    "DLPack": lambda: DlpackOnly(MATRIX),
    "__array__": lambda: ArrayMethodOnly(MATRIX),
    "memoryview": lambda: memoryview(MATRIX),
    "Array": lambda: Array(MATRIX, "f32"),
}


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.parametrize("through_python", [False, True], ids=["native", "python"])
def test_a_matrix_of_any_kind_is_taken(copy: Any, kind: str, through_python: bool, monkeypatch: Any) -> None:
    if through_python:
        monkeypatch.setattr(objects, "measure", lambda: None)
    value = GOOD[kind]()
    expected = np.array(value.values if hasattr(value, "values") else getattr(value, "storage", value), np.float32)
    result = copy(tensor((4, 6), "f32"))(value)
    assert type(result) is np.ndarray
    assert result.dtype is np.dtype(np.float32)
    assert result.flags.c_contiguous
    assert result.flags.writeable
    np.testing.assert_array_equal(result, expected)


def test_other_libraries_arrays_are_taken(copy: Any) -> None:
    jax_numpy = pytest.importorskip("jax.numpy")
    for dtype in ("float32", "bfloat16", "float8_e4m3fn", "int8", "bool", "complex64"):
        source = jax_numpy.arange(6).astype(dtype).reshape(2, 3)
        expected = np.asarray(source)
        from hlojit.ir.formats import element_type_of

        result = copy(tensor((2, 3), element_type_of(expected.dtype)))(source)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result.view(np.uint8), expected.view(np.uint8))


def test_a_dlpack_capsule_of_bfloat16_is_read_without_numpy() -> None:
    jax_numpy = pytest.importorskip("jax.numpy")
    from hlojit.runtime.dlpack import _from_capsule

    source = jax_numpy.arange(6).astype("bfloat16").reshape(2, 3)
    view = _from_capsule(source.__dlpack__())
    assert view.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(view.astype(np.float32), np.arange(6, dtype=np.float32).reshape(2, 3))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3, "i32"),
        (-1, "i8"),
        (True, "i1"),
        (2.5, "f32"),
        (7, "f64"),
        (1.5, "bf16"),
        (2, "f8E4M3FN"),
        (1 + 2j, "complex<f64>"),
    ],
)
def test_python_numbers_are_scalars(copy: Any, value: complex, kind: str) -> None:
    result = copy(tensor((), kind))(value)
    assert result.shape == ()
    assert result.dtype == element_type(kind).dtype
    assert complex(result) == value


def test_numpy_scalars_are_scalars(copy: Any) -> None:
    assert copy(tensor((), "f32"))(np.float32(1.5)) == 1.5


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,) * 20], ids=str)
def test_shapes_at_the_edge(copy: Any, shape: tuple[int, ...]) -> None:
    value = np.full(shape, 5, np.int16)
    result = copy(tensor(shape, "i16"))(value)
    assert (result.shape, result.dtype) == (shape, np.int16)
    np.testing.assert_array_equal(result, value)


EXPECTED = "tensor<4x6xf32>"
BAD = {
    "dtype": (
        MATRIX.astype(np.float64),
        f"expected {EXPECTED}, got an array of dtype float64 and shape (4, 6); convert",
    ),
    "shape": (MATRIX.T.copy(), f"expected {EXPECTED}, got an array of dtype float32 and shape (6, 4)"),
    "rank": (MATRIX.ravel(), f"expected {EXPECTED}, got an array of dtype float32 and shape (24,)"),
    "list": ([[1.0]], f"expected {EXPECTED}, got a Python list; pass an array"),
    "tuple": ((1.0,), f"expected {EXPECTED}, got a Python tuple"),
    "string": ("text", f"expected {EXPECTED}, got a Python str"),
    "None": (None, f"expected {EXPECTED}, got a Python NoneType"),
    "number": (1.0, f"expected {EXPECTED}, got the number 1.0; pass an array of shape (4, 6)"),
    "object": (object(), f"expected {EXPECTED}, got an object of type object, which is not an array"),
    "object array": (MATRIX.astype(object), f"expected {EXPECTED}, got an array of dtype object"),
    "masked": (np.ma.masked_array(MATRIX), "a masked array; its mask would be lost"),
    "bytes": (b"1234", f"expected {EXPECTED}, got an array of dtype uint8 and shape (4,)"),
    "other Array": (Array(np.zeros((4, 6), np.int8), "i8"), f"expected {EXPECTED}, got tensor<4x6xi8>"),
    "complex": (MATRIX.astype(np.complex64), f"expected {EXPECTED}, got an array of dtype complex64"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("through_python", [False, True], ids=["native", "python"])
def test_wrong_arguments_are_named(build: Build, kind: str, through_python: bool, monkeypatch: Any) -> None:
    if through_python:
        monkeypatch.setattr(objects, "measure", lambda: None)
    value, message = BAD[kind]
    type_ = tensor((4, 6), "f32")
    executable = build(copy_program(type_.nbytes), [type_, type_], [type_], name="model")
    with pytest.raises(ArgumentError) as caught:
        executable(MATRIX, value)
    assert str(caught.value).startswith(f"model, argument 1: {message}")
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (300, "i8", "300 is outside tensor<i8> (-128 to 127)"),
        (-1, "ui8", "-1 is outside tensor<ui8> (0 to 255)"),
        (1.5, "i32", "expected tensor<i32>, got 1.5 of Python type float"),
        (1j, "f32", "expected tensor<f32>, got 1j of Python type complex"),
        (True, "i32", "expected tensor<i32>, got True of Python type bool"),
        (1, "i1", "expected tensor<i1>, got 1 of Python type int"),
        (10**400, "f64", "does not fit"),
    ],
)
def test_numbers_that_do_not_fit(copy: Any, value: complex, kind: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        copy(tensor((), kind))(value)
    assert message in str(caught.value)


def test_wrong_counts_and_keywords(build: Build) -> None:
    type_ = tensor((2,), "f32")
    executable = build(copy_program(8), [type_, type_], [type_], name="model")
    x = np.zeros(2, np.float32)
    for arguments in ((), (x,), (x, x, x)):
        with pytest.raises(ArgumentError, match=rf"model takes 2 arguments, not {len(arguments)}: \(tensor<2xf32>, "):
            executable(*arguments)
    with pytest.raises(TypeError):
        executable(x, y=x)


def test_an_array_on_a_device_is_refused(copy: Any) -> None:
    class OnDevice(DlpackOnly):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    with pytest.raises(ArgumentError, match="in the memory of device cuda; copy it to the host first"):
        copy(tensor((4, 6), "f32"))(OnDevice(MATRIX))


def test_sub_byte_integers_are_extended_inside(build: Build) -> None:
    type_ = tensor((4,), "i4")
    seen = build(copy_program(4), [type_], [tensor((4,), "i8")])
    values = np.array([-8, -1, 0, 7], ml_dtypes.int4)
    np.testing.assert_array_equal(seen(values), np.array([-8, -1, 0, 7], np.int8))
    result = build(copy_program(4), [type_], [type_])(values)
    assert result.dtype == ml_dtypes.int4
    np.testing.assert_array_equal(result.astype(np.int8), values.astype(np.int8))
    with pytest.raises(ArgumentError, match=r"expected tensor<4xi4>, got an array of dtype int8"):
        seen(np.zeros(4, np.int8))


@pytest.fixture
def own_format() -> Iterator[FloatFormat]:
    """A format that NumPy does not know: 1 sign, 5 exponent and 4 mantissa bits."""
    row = FloatFormat("f10E5M4_test", exponent_bits=5, mantissa_bits=4, bias=15)
    register_element_type(row)
    yield row
    unregister_element_type(row.name)


def test_a_format_without_a_dtype_travels_as_array(copy: Any, own_format: FloatFormat) -> None:
    values = np.array([0.0, -1.5, 1.0625, 1e9], np.float32)
    argument = Array.from_values(values, own_format)
    assert argument.storage.dtype == np.uint16
    result = copy(tensor((4,), own_format))(argument)
    assert isinstance(result, Array)
    np.testing.assert_array_equal(result.to_values(), np.array([0.0, -1.5, 1.0625, np.inf], np.float32))
    for numbers in (np.asarray(result), np.array(result, copy=True), np.asarray(result, "f8")):
        np.testing.assert_array_equal(numbers, result.to_values())
    np.testing.assert_array_equal(result.storage, argument.storage)
    assert np.max(np.asarray(result)[:3]) == np.float32(1.0625)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(result, copy=False)
    for codes_of in (np.from_dlpack, memoryview):
        with pytest.raises((BufferError, TypeError)):
            codes_of(result)
    assert "1.0625" in repr(result)
    assert "tensor<4xf10E5M4_test>" in repr(result)
    with pytest.raises(ArgumentError, match="expected tensor<4xf10E5M4_test>, got an array of dtype float32"):
        copy(tensor((4,), own_format))(values)
    with pytest.raises(
        ArgumentError, match=r"got an array of dtype uint16.*from_values.*Array\(codes, 'f10E5M4_test'\)"
    ):
        copy(tensor((4,), own_format))(argument.storage)
    with pytest.raises(HlojitError, match="stored as uint16, not as uint8"):
        Array(np.zeros(3, np.uint8), own_format)


def test_several_outputs_are_a_tuple_and_none_an_empty_one(build: Build) -> None:
    vector = tensor((8,), "f32")
    x, y = np.arange(16, dtype=np.float32).reshape(2, 8)
    first, second = build(moving_program([(1, 2), (0, 3)], 32), [vector] * 2, [vector] * 2)(x, y)
    np.testing.assert_array_equal(first, y)
    np.testing.assert_array_equal(second, x)
    assert build("define i32 @main(ptr %c, ptr %s) {\n ret i32 0\n}", [vector], [])(x) == ()


def test_constants_and_arena_have_their_slots(build: Build) -> None:
    vector = tensor((4,), "f32")
    constant = np.array([1, 2, 3, 4], np.float32)
    program = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @main(ptr %context, ptr %slots) {
  %y = load ptr, ptr %slots
  %arena_at = getelementptr ptr, ptr %slots, i64 1
  %arena = load ptr, ptr %arena_at
  %constant_at = getelementptr ptr, ptr %slots, i64 3
  %constant = load ptr, ptr %constant_at
  call void @llvm.memcpy.p0.p0.i64(ptr %arena, ptr %constant, i64 16, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %y, ptr %arena, i64 16, i1 false)
  ret i32 0
}
"""
    executable = build(
        program, [], [vector], arena_bytes=16, constants=(0, constant.ctypes.data), keepalive=(constant,)
    )
    np.testing.assert_array_equal(executable(), constant)


def test_many_arguments(build: Build) -> None:
    count = 300
    scalar = tensor((1,), "f32")
    moves = [(count - 1 - number, count + number) for number in range(count)]
    executable = build(moving_program(moves, 4), [scalar] * count, [scalar] * count)
    arguments = [np.array([number], np.float32) for number in range(count)]
    results = executable(*arguments)
    assert [float(result[0]) for result in results] == list(range(count))[::-1]


def test_an_executable_and_what_it_needs_are_collected(build: Build) -> None:
    class Marker:
        pass

    marker = Marker()
    alive = weakref.ref(marker)
    vector = tensor((3,), "f32")
    executable = build(add_one_program(3, 3), [vector], [vector], keepalive=(marker,))
    result = executable(np.zeros(3, np.float32))
    call = executable.call
    del marker, executable
    gc.collect()
    # The bare function keeps everything that it needs.
    assert alive() is not None
    np.testing.assert_array_equal(call(result), np.full(3, 2))
    del call
    gc.collect()
    assert alive() is None
    # Outputs do not depend on the executable.
    np.testing.assert_array_equal(result, np.ones(3))
    del result


def test_dimensions_beyond_numpy_are_refused(build: Build) -> None:
    with pytest.raises(HlojitError, match="NumPy's arrays have 64 dimensions"):
        build("define i32 @main(ptr %c, ptr %s) {\n ret i32 0\n}", [tensor((1,) * 65, "f32")], [])
    with pytest.raises(HlojitError, match="no static shape"):
        build("define i32 @main(ptr %c, ptr %s) {\n ret i32 0\n}", [tensor((-1,), "f32")], [])


def test_an_executable_of_a_python_function_holds_the_function_to_its_types() -> None:
    vector = tensor((3,), "f32")
    x = np.array([1, 2, 3], np.float32)
    executable = Executable.from_function("python", lambda a: [a], [vector], [vector])
    result = executable(x)
    np.testing.assert_array_equal(result, x)
    assert not np.shares_memory(result, x)
    with pytest.raises(ArgumentError, match="python, argument 0: expected"):
        executable(x.astype(np.float64))
    with pytest.raises(ExecutionError, match="returned 0 results, not 1"):
        Executable.from_function("none", lambda a: [], [vector], [vector])(x)
    with pytest.raises(
        ExecutionError, match="returned for result 0, which is tensor<3xf32>, an array of dtype float64"
    ):
        Executable.from_function("wrong", lambda a: [a.astype(np.float64)], [vector], [vector])(x)


def test_every_element_type_with_a_dtype_keeps_it(copy: Any) -> None:
    from hlojit.ir.formats import element_types

    for row in itertools.islice(element_types(), 40):
        if row.dtype is None:
            continue
        value = np.zeros((2, 2), row.dtype)
        result = copy(tensor((2, 2), row))(value)
        assert result.dtype == row.dtype
        assert result.tobytes() == value.tobytes()


def test_keywords_are_refused_with_the_signature(copy: Any) -> None:
    executable = copy(tensor((4, 6), "f32"))
    for call in (
        lambda: executable(x=MATRIX),
        lambda: executable(MATRIX, axis=0),
        lambda: executable.call(MATRIX, x=1),
    ):
        with pytest.raises(ArgumentError, match=r"by position, copy\(tensor<4x6xf32>\); it was called with (x|axis)="):
            call()
    np.testing.assert_array_equal(executable(MATRIX, **{}), MATRIX)
    wrapped = copy(tensor((4,), "i4"))
    with pytest.raises(ArgumentError, match=r"by position, copy\(tensor<4xi4>\)"):
        wrapped(x=np.zeros(4, ml_dtypes.int4))
    donating = executable.device_call
    with pytest.raises(ArgumentError, match=r"by position, copy\(tensor<4x6xf32>\); it was called with x="):
        donating(x=MATRIX)
    function = Executable.from_function("identity", lambda x: [x], [tensor((4,), "f32")], [tensor((4,), "f32")])
    with pytest.raises(ArgumentError, match=r"by position, identity\(tensor<4xf32>\)"):
        function(x=np.zeros(4, "f4"))
