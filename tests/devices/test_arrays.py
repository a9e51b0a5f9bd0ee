"""Arrays on devices: to a device, between programs, and back."""

from __future__ import annotations

import sys
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit import ArgumentError, Array, HlojitError
from hlojit.extensions import (
    DEVICE_MEMORY,
    FloatFormat,
    MemorySpace,
    hookimpl,
    registry,
)
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.formats import IntegerType, QuantizedType, element_types
from hlojit.ir.types import tensor

from .vendor import REMOTE, TestBackend

NDArray = np.ndarray[Any, Any]
X = np.arange(24, dtype=np.float32).reshape(4, 6) - 5

ADD_ONE = """
func.func @add_one(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %c = stablehlo.constant dense<1.0> : tensor<4x6xf32>
  %0 = stablehlo.add %x, %c : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}
"""
TWO = """
func.func @two(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = stablehlo.add %x, %y : tensor<4x6xf32>
  %1 = stablehlo.multiply %x, %y : tensor<4x6xf32>
  return %0, %1 : tensor<4x6xf32>, tensor<4x6xf32>
}
"""
BACKENDS = pytest.mark.parametrize("name", ["cpu", "reference", "test"])


def identity(element: str) -> str:
    return f"func.func @same(%x: tensor<5x{element}>) -> tensor<5x{element}> {{ return %x : tensor<5x{element}> }}"


@BACKENDS
def test_put_and_get(name: str, backend: TestBackend) -> None:
    source = X.copy()
    array = hlojit.put(source, name)
    source[:] = 0  # the array was read before put returned
    assert isinstance(array, Array) and array.device is hlojit.devices(name)[0] and str(array.device) == f"{name}:0"
    assert array.type is tensor((4, 6), "f32") and array.shape == (4, 6) and array.ndim == 2 and array.size == 24
    assert array.nbytes == 96 and len(array) == 4
    back = hlojit.get(array)
    assert type(back) is np.ndarray and back.flags.writeable
    back[0, 0] = 100  # the caller's own
    np.testing.assert_array_equal(hlojit.get(array), X)
    np.testing.assert_array_equal(np.asarray(array), X)
    np.testing.assert_array_equal(np.array(array, dtype=np.float64), X.astype("f8"))
    assert hlojit.put(array, name) is array


SOURCES = {
    "transposed": np.asfortranarray(X),
    "strided": np.repeat(X, 2, axis=1)[:, ::2],
    "big-endian": X.astype(">f4"),
    "empty": np.zeros((0, 3), np.int16),
    "scalar": np.float64(2.5),
    "number": 2.5,
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j, -3j]),
    "bfloat16": np.arange(5).astype(ml_dtypes.bfloat16),
    "float8": np.arange(5).astype(ml_dtypes.float8_e4m3fn),
    "int4": np.array([-8, -1, 0, 7]).astype(ml_dtypes.int4),
    "uint2": np.array([0, 1, 3]).astype(ml_dtypes.uint2),
}


@BACKENDS
@pytest.mark.parametrize("source", SOURCES)
def test_arrays_of_every_kind_go_and_come_back(name: str, source: str, backend: TestBackend) -> None:
    value: Any = SOURCES[source]
    array = hlojit.put(value, name)
    for back in (hlojit.get(array), np.asarray(array)):
        expected = np.asarray(value)
        assert back.dtype == expected.dtype.newbyteorder("=") and back.shape == expected.shape
        np.testing.assert_array_equal(back.astype(complex), expected.astype(complex))


@pytest.mark.parametrize("element", ["i4", "ui2", "f8E5M2", "bf16", "i1"])
@BACKENDS
def test_results_on_a_device_have_the_dtype_of_results_on_the_host(
    name: str, element: str, backend: TestBackend
) -> None:
    executable = hlojit.compile(identity(element), backend=name)
    dtype = tensor((5,), element).element_type.dtype
    source = np.array([1, 0, 1, 1, 0]).astype(dtype)
    on_host, on_device = executable(source), executable(hlojit.put(source, name))
    assert type(on_host) is np.ndarray and isinstance(on_device, Array) and on_device.element_type.name == element
    for result in (on_host, np.asarray(on_device), hlojit.get(on_device)):
        assert result.dtype == dtype
        np.testing.assert_array_equal(result.astype("f4"), source.astype("f4"))


@BACKENDS
def test_every_element_type_goes_through_a_program_bit_by_bit(name: str, backend: TestBackend) -> None:
    generator = np.random.default_rng(0)
    for element in element_types():
        if isinstance(element, (QuantizedType, BlockFormat)) or not element.storage.itemsize:
            continue
        executable = hlojit.compile(identity(element.name), backend=name)
        if isinstance(element, IntegerType):
            low, high = max(element.minimum, -100), min(element.maximum, 100)
            storage = generator.integers(low, high, 5, endpoint=True).astype(element.storage)
        elif element.storage.kind == "b":
            storage = generator.integers(0, 2, 5).astype(bool)
        else:
            # Numbers, not NaN: a format may have several patterns of that.
            storage = generator.integers(1, 4, 5).astype(element.storage)
        result = executable.execute(hlojit.put(Array(storage, element), name))
        np.testing.assert_array_equal(result.storage.view(np.uint8), storage.view(np.uint8), err_msg=element.name)


@BACKENDS
def test_programs_without_arguments_or_results_and_empty_arrays(name: str, backend: TestBackend) -> None:
    constant = hlojit.compile(
        "func.func @c() -> tensor<2xf32> {\n%0 = stablehlo.constant dense<2.5> : tensor<2xf32>\nreturn %0 : tensor<2xf32>\n}",
        backend=name,
    )
    assert constant().tolist() == [2.5, 2.5] and np.asarray(constant.execute()).tolist() == [2.5, 2.5]
    nothing = hlojit.compile("func.func @n(%x: tensor<2xf32>) {\nreturn\n}", backend=name)
    assert nothing(np.zeros(2, "f4")) == () == nothing.execute(np.zeros(2, "f4"))
    empty = hlojit.compile(identity("f32").replace("5x", "0x"), backend=name)
    assert empty(hlojit.put(np.zeros(0, "f4"), name)).shape == (0,)


def test_a_registered_format_travels(backend: TestBackend) -> None:
    class Formats:
        @hookimpl
        def hlojit_formats(self) -> list[FloatFormat]:
            return [FloatFormat("travel6", exponent_bits=3, mantissa_bits=2, bias=3)]

    with registry().using(Formats()):
        values = np.array([0.5, -3, 1.25, 0, 8], "f4")
        host = Array.from_values(values, "travel6")
        executable = hlojit.compile(identity("travel6"), backend="test")
        device = hlojit.put(host, "test")
        for array in (device, executable(device)):
            assert array.device is not None and array.element_type.name == "travel6"
            np.testing.assert_array_equal(array.to_values(), values)
            back = hlojit.get(array)
            assert isinstance(back, Array) and back.device is None
            np.testing.assert_array_equal(back.to_values(), values)
            np.testing.assert_array_equal(np.asarray(array), values)
            np.testing.assert_array_equal(array.storage, host.storage)
        assert hlojit.get(executable(host)).device is None


def test_memory_spaces_and_the_way_between_devices(backend: TestBackend) -> None:
    first, second = backend.devices()
    near, far = hlojit.put(X, first), hlojit.put(X, first, memory_space=REMOTE)
    assert near.buffer is not None and far.buffer is not None
    assert near.buffer.memory_space is first.memory_spaces[0] and far.buffer.memory_space is REMOTE
    moved = hlojit.put(near, second)
    assert moved.device is second and first.transfers_out == 1 and second.transfers_in == 1
    np.testing.assert_array_equal(moved, X)
    assert hlojit.put(near, "test:1").device is second and hlojit.put(far, first, memory_space=REMOTE) is far
    with pytest.raises(
        ArgumentError, match="test:0 has no memory space 'device'; pass one of its memory_spaces .local, remote."
    ):
        hlojit.put(X, first, memory_space=DEVICE_MEMORY)
    with pytest.raises(ArgumentError, match="no memory space"):
        first.allocate(tensor((3,), "f32"), MemorySpace("nowhere"))
    room = first.allocate(tensor((3,), "f32"), REMOTE)
    assert room.ready.ready and room.nbytes == 12 and room.to_host().shape == (3,)


def test_names_of_devices(backend: TestBackend) -> None:
    assert [str(device) for device in hlojit.devices("test")] == ["test:0", "test:1"]
    assert hlojit.devices()[0] is hlojit.devices("cpu")[0]
    with pytest.raises(HlojitError, match="there is no device 'test:7'; the back end 'test' has test:0, test:1"):
        hlojit.put(X, "test:7")
    with pytest.raises(HlojitError, match="unknown back end 'tset'.*did you mean 'test'"):
        hlojit.put(X, "tset")
    with pytest.raises(HlojitError, match="the back end 'cuda' cannot be used here"):
        hlojit.devices("cuda")


def test_what_cannot_be_put_is_refused_with_the_device() -> None:
    with pytest.raises(ArgumentError, match="put on cpu:0: expected an array, got a Python list"):
        hlojit.put([1, 2, 3])
    with pytest.raises(ArgumentError, match="put on cpu:0: .*dtype"):
        hlojit.put(np.array(["text"]))


# ------------------------------------------------------------------------------------------------------------ calls


def test_programs_are_chained_without_a_copy_back(backend: TestBackend) -> None:
    executable = hlojit.compile(ADD_ONE, backend="test")
    device = backend.devices()[0]
    x = hlojit.put(X, "test")
    for _ in range(10):
        x = executable(x)
        assert isinstance(x, Array) and x.device is device and x.is_ready
    assert (device.transfers_in, device.transfers_out, device.executions) == (1, 0, 10)
    np.testing.assert_array_equal(x, X + 10)
    assert device.transfers_out == 1
    assert repr(x) == "Array(on test:0, tensor<4x6xf32>)" and device.transfers_out == 1
    # All but the two arrays that are still referred to have been freed.
    assert len(device.memory) == 1


@BACKENDS
def test_host_arrays_make_host_arrays_and_device_arrays_make_device_arrays(name: str, backend: TestBackend) -> None:
    executable = hlojit.compile(TWO, backend=name)
    here, there = executable(X, X), executable(hlojit.put(X, name), X)
    assert [type(result) for result in here] == [np.ndarray] * 2
    assert [result.device for result in there] == [hlojit.devices(name)[0]] * 2
    for results in (here, there):
        np.testing.assert_array_equal(results[0], X + X)
        np.testing.assert_array_equal(results[1], X * X)


def test_results_on_the_cpu_are_its_memory_without_a_copy() -> None:
    executable = hlojit.compile(ADD_ONE)
    result = executable(hlojit.put(X))
    view = np.asarray(result)
    assert np.shares_memory(view, np.asarray(result)) and not view.flags.writeable
    assert not np.shares_memory(view, hlojit.get(result))
    # The next program reads it where it is: its result may not alias it, and it does not change.
    np.testing.assert_array_equal(executable(result), X + 2)
    np.testing.assert_array_equal(view, X + 1)


def test_dlpack_and_the_buffer_protocol_where_the_host_can_read(backend: TestBackend) -> None:
    near, far = hlojit.put(X, "cpu"), hlojit.put(X, "test")
    assert near.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(near), X)
    with pytest.raises(BufferError, match="the array is in the memory of test:0; hlojit.get copies it"):
        far.__dlpack__()
    np.testing.assert_array_equal(np.from_dlpack(far, device="cpu"), X)
    if sys.version_info >= (3, 12):
        assert memoryview(near).shape == (4, 6) and memoryview(near).readonly
        with pytest.raises(BufferError, match=r"Array\(on test:0, .* are not in the host's memory"):
            memoryview(far)


def test_consumers_of_old_dlpack_versions_get_memory_of_their_own() -> None:
    jax_numpy = pytest.importorskip("jax.numpy")
    near = hlojit.put(X, "cpu")
    view = np.asarray(near)
    assert np.shares_memory(np.from_dlpack(near), view)
    np.testing.assert_array_equal(np.asarray(jax_numpy.from_dlpack(near)), X)
    old = near.__dlpack__()
    assert "dltensor_versioned" not in repr(old) and "dltensor" in repr(old)
    with pytest.raises(BufferError, match="readonly"):
        near.__dlpack__(copy=False)


def test_a_copy_is_refused_where_it_was_not_wanted(backend: TestBackend) -> None:
    near, far = hlojit.put(X, "cpu"), hlojit.put(X, "test")
    assert np.shares_memory(np.array(near, copy=False), np.asarray(near))
    for array, dtype in ((far, None), (near, np.float64)):
        with pytest.raises(ValueError, match="copy"):
            np.array(array, dtype=dtype, copy=False)
    assert np.array(near, copy=True).flags.writeable


def test_numbers_of_one_element() -> None:
    array = hlojit.put(np.float32(2.5))
    assert float(array) == 2.5 and int(array) == 2 and bool(array) and array.item() == 2.5
    assert int(hlojit.put(np.array([7]))) == 7
    with pytest.raises(TypeError, match="has no length"):
        len(array)


def test_arguments_on_different_devices_are_named(backend: TestBackend) -> None:
    first, second = (hlojit.put(X, device) for device in backend.devices())
    two = hlojit.compile(TWO, backend="test")
    with pytest.raises(ArgumentError, match="two: argument 0 is on test:0, argument 1 on test:1; move one"):
        two(first, second)
    with pytest.raises(ArgumentError, match=r"two: argument 1 is on cpu:0, the program is compiled for test:0, test:1"):
        two(X, hlojit.put(X))
    with pytest.raises(ArgumentError, match=r"two: argument 0 is on test:0, the program is compiled for cpu:0"):
        hlojit.compile(TWO)(first, X)
    with pytest.raises(ArgumentError, match="two cannot be executed on test:0: an argument is on test:1"):
        two.execute(second, X, device="test:0")
    with pytest.raises(ArgumentError, match="two cannot be executed on cpu:0: it is compiled for test:0, test:1"):
        two.execute(X, X, device=hlojit.devices("cpu")[0])
    assert two(second, X)[0].device is second.device
    assert two.execute(X, X, device="test:1")[0].device is second.device


@BACKENDS
def test_wrong_arguments_are_refused_at_once(name: str, backend: TestBackend) -> None:
    two = hlojit.compile(TWO, backend=name)
    good = hlojit.put(X, name)
    for call in (two, two.execute):
        with pytest.raises(ArgumentError, match="two takes 2 arguments, not 1"):
            call(good)
        with pytest.raises(ArgumentError, match=r"two, argument 1: expected tensor<4x6xf32>, got tensor<6x4xf32>"):
            call(good, hlojit.put(X.T, name))
        with pytest.raises(
            ArgumentError, match=r"two, argument 1: expected tensor<4x6xf32>, got an array of dtype int"
        ):
            call(good, X.astype(int))


def test_nothing_is_transferred_when_a_later_argument_is_wrong(backend: TestBackend) -> None:
    with pytest.raises(ArgumentError):
        hlojit.compile(TWO, backend="test")(X, X.astype(int))
    assert backend.devices()[0].transfers_in == 0


# ------------------------------------------------------------------------------------------------- jitted functions


@BACKENDS
def test_a_jitted_function_takes_and_keeps_arrays_on_a_device(name: str, backend: TestBackend) -> None:
    traced: list[int] = []

    @hlojit.jit(backend=name)
    def step(state: Any, rate: float) -> Any:
        traced.append(1)
        return {"w": state["w"] - rate * state["g"], "g": state["g"] * 0.5}

    state: Any = {"w": hlojit.put(X, name), "g": hlojit.put(np.ones_like(X), name)}
    for _ in range(3):
        state = step(state, 0.25)
        assert all(isinstance(value, Array) and value.device is hlojit.devices(name)[0] for value in state.values())
    np.testing.assert_array_equal(state["w"], X - 0.25 * 1.75)
    assert len(traced) == 1 and (name != "test" or backend.devices()[0].transfers_out == 1)
    # The same function with host arrays is another signature, and returns host arrays.
    assert type(step({"w": X, "g": X}, 0.25)["w"]) is np.ndarray


def test_a_jitted_function_names_a_device_that_is_not_its_own(backend: TestBackend) -> None:
    with pytest.raises(ArgumentError, match="argument 0 is on test:0, the program is compiled for cpu:0"):
        hlojit.jit(lambda x: x + 1)(hlojit.put(X, "test"))


def test_a_jitted_function_is_executed_without_waiting(backend: TestBackend) -> None:
    device = backend.devices()[0]

    @hlojit.jit(backend="test")
    def both(x: Any, y: float) -> Any:
        return {"sum": x + y, "product": x * y}

    device.gate.clear()
    first = both.execute(X, 2.0)
    second = both.execute(first["sum"], y=3.0)
    assert not first["sum"].is_ready and not second["product"].is_ready
    device.gate.set()
    np.testing.assert_array_equal(second["product"], (X + 2) * 3)
    np.testing.assert_array_equal(first["product"], X * 2)
