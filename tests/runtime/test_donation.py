"""Donated arguments: their memory becomes the results', nothing else is ever written, and nothing is freed too early."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
import weakref
from typing import Any

import hlojit
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hlojit import runtime
from hlojit.donation import GivingCall, overlapping
from hlojit.ir.errors import ArgumentError, ExecutionError, HlojitError
from hlojit.ir.types import tensor
from hlojit.lowering.program import Copy, Loop
from hlojit.lowering.program_check import check
from hlojit.lowering.program_text import text

from .donations import ADD, ONES, Array, T, X, Y, address, compiled, numbers
from .programs import Build

# ------------------------------------------------------------------------------------------------ whose memory it is


def test_the_result_lies_in_the_donated_memory_and_the_array_is_read_only(add: Any) -> None:
    x = numbers()
    place = address(x)
    result = add(x, ONES)
    assert address(result) == place and result.flags.writeable and not x.flags.writeable
    np.testing.assert_array_equal(result, numbers() + 1)
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 5
    assert ONES.flags.writeable


def test_the_result_keeps_the_memory(add: Any) -> None:
    """The memory lives until the last result, and last view of one, in it is gone."""
    x = numbers()
    result = add(x, ONES)
    owner = x.base
    del x
    alive = sys.getrefcount(owner)
    view = result[500:]
    again = add(result, ONES)
    assert sys.getrefcount(owner) == alive + 1
    del result
    assert sys.getrefcount(owner) == alive + 1, "the view keeps the result"
    del again
    assert sys.getrefcount(owner) == alive
    del view
    gc.collect()
    assert sys.getrefcount(owner) == alive - 1


def test_a_block_of_the_pool_is_given_back_once(add: Any) -> None:
    plain = hlojit.compile(ADD.replace("{tf.aliasing_output = 0 : i32}", ""))
    before = runtime.statistics()
    x = plain(numbers(), ONES)
    held = (runtime.statistics() - before).bytes_in_use
    for _ in range(20):
        x = add(x, ONES)
    spent = runtime.statistics() - before
    assert spent.bytes_in_use == held and spent.allocations == 1
    np.testing.assert_array_equal(x, numbers() + 21)
    del x
    assert (runtime.statistics() - before).bytes_in_use == 0


def test_a_thousand_donations_are_no_chain(add: Any) -> None:
    x = numbers()
    first = x
    for _ in range(1000):
        x = add(x, ONES)
    base = x.base
    assert type(base).__name__ == "PyCapsule" and sys.getrefcount(first) <= 4
    np.testing.assert_array_equal(x, numbers() + 1000)


# --------------------------------------------------------------------------------------------------- what is copied


def untouched(add: Any, x: Array, *, y: Array = ONES) -> None:
    """The call works, and neither the array nor its flags change."""
    before, writeable = x.copy(), x.flags.writeable
    result = add(x, y)
    np.testing.assert_array_equal(result, before + (before if y is x else y))
    assert not np.may_share_memory(result, x)
    result[...] = 0
    np.testing.assert_array_equal(x, before)
    assert x.flags.writeable == writeable


def test_what_does_not_own_its_memory_is_copied(add: Any) -> None:
    whole = numbers(2000)
    untouched(add, whole[500:1500])
    untouched(add, whole[:1000].reshape(1000))
    untouched(add, whole[::2])
    untouched(add, np.frombuffer(bytearray(4000), "f4"))
    untouched(add, np.frombuffer(bytes(4000), "f4"))
    untouched(add, np.asarray(memoryview(numbers())))
    untouched(add, np.from_dlpack(numbers()))
    result = add(numbers(), ONES)
    untouched(add, result[:])
    untouched(add, result.reshape(10, 100).reshape(1000))


def test_read_only_arrays_are_copied(add: Any, tmp_path: Any) -> None:
    x = numbers()
    x.flags.writeable = False
    untouched(add, x)
    np.save(tmp_path / "x.npy", x)
    untouched(add, np.load(tmp_path / "x.npy", mmap_mode="r"))
    untouched(add, np.load(tmp_path / "x.npy", mmap_mode="r+"))
    constant = jnp.arange(1000, dtype="f4")
    np.testing.assert_array_equal(add(constant, ONES), numbers() + 1)
    np.testing.assert_array_equal(constant, numbers())


def test_one_array_in_two_places_is_copied(add: Any) -> None:
    x = numbers()
    untouched(add, x, y=x)
    result = add(x[:], x)
    np.testing.assert_array_equal(result, 2 * numbers())
    np.testing.assert_array_equal(x, numbers())


def test_one_array_in_two_donated_places_is_copied_in_both() -> None:
    @hlojit.jit(donate_argnums=(0, 1))
    def f(x: Any, y: Any) -> Any:
        return x - y, x + y

    for view in (lambda x: x, lambda x: x[:]):
        x = numbers()
        results = f(x, view(x))
        np.testing.assert_array_equal(x, numbers())
        assert x.flags.writeable and not any(np.may_share_memory(x, each) for each in results)
        np.testing.assert_array_equal(results, (numbers() - view(numbers()), numbers() + view(numbers())))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"donate_argnums": "0"}, "donate_argnums='0': numbers of parameters are expected, 0 or .*donate_argnames"),
        ({"donate_argnums": 0.5}, "donate_argnums=0.5: numbers of parameters"),
        ({"donate_argnums": True}, "donate_argnums=True: numbers of parameters"),
        ({"donate_argnums": (0, None)}, "donate_argnums=.0, None.: numbers of parameters"),
        ({"donate_argnums": -9}, r"donate_argnums holds -9, but f has the parameters x, y \(-2 to 1\)"),
        ({"donate_argnames": 0}, "donate_argnames=0: names of parameters are expected.*donate_argnums"),
    ],
)
def test_what_is_no_number_or_name_of_a_parameter_is_refused(options: dict[str, Any], message: str) -> None:
    def f(x: Any, y: Any) -> Any:
        return x + y

    with pytest.raises(HlojitError, match=message):
        hlojit.jit(**options)(f)


def test_an_array_that_was_given_away_is_copied(add: Any) -> None:
    """Its contents are undefined, but the result in its memory is somebody else's."""
    x = numbers()
    result = add(x, ONES)
    second = add(x, ONES)
    assert not np.may_share_memory(result, second)
    np.testing.assert_array_equal(result, numbers() + 1)


def test_arguments_of_other_forms_are_converted(add: Any) -> None:
    swapped = numbers(dtype=">f4")
    np.testing.assert_array_equal(add(swapped, ONES), numbers() + 1)
    np.testing.assert_array_equal(swapped, numbers())
    assert swapped.flags.writeable
    odd = np.zeros(4001, "u1")[1:].view("f4")
    np.testing.assert_array_equal(add(odd, ONES), ONES)
    with pytest.raises(ArgumentError, match="argument 0: expected"):
        add(numbers(dtype="f8"), ONES)
    x = numbers()
    with pytest.raises(ArgumentError, match="argument 1: expected"):
        add(x, numbers(5))
    assert x.flags.writeable


def test_a_good_array_is_taken_although_another_must_be_converted() -> None:
    """The state is not copied because the learning rate is a Python number."""
    step = hlojit.compile(f"""func.func public @main(%x: {T} {{jax.buffer_donor = true}}, %s: tensor<f32>) -> {T} {{
      %b = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> {T}
      %r = stablehlo.multiply %x, %b : {T}
      return %r : {T} }}""")
    x = numbers()
    place = address(x)
    result = step(x, 0.5)
    assert address(result) == place
    np.testing.assert_array_equal(result, numbers() * np.float32(0.5))


@pytest.mark.parametrize("element", ["bf16", "f8E4M3FN", "i4", "i1", "f16"])
def test_other_element_types(element: str) -> None:
    dtype = {"bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn, "i4": ml_dtypes.int4, "i1": np.bool_,
             "f16": np.float16}[element]  # fmt: skip
    kind = f"tensor<64x{element}>"
    step = hlojit.compile(f"""func.func public @main(%x: {kind} {{jax.buffer_donor = true}}) -> {kind} {{
      %r = stablehlo.maximum %x, %x : {kind}
      return %r : {kind} }}""")
    x = (np.arange(64) % 5).astype(dtype)
    expected = x.copy()
    for _ in range(3):
        x = step(x)
        np.testing.assert_array_equal(x.astype("f4"), expected.astype("f4"))


def test_a_failing_call_leaves_the_array_writable() -> None:
    huge = hlojit.compile(f"""
    func.func public @main(%x: {T} {{jax.buffer_donor = true}}, %h: tensor<i8>) -> ({T}, tensor<{1 << 43}xi8>) {{
      %r = stablehlo.negate %x : {T}
      %b = stablehlo.broadcast_in_dim %h, dims = [] : (tensor<i8>) -> tensor<{1 << 43}xi8>
      return %r, %b : {T}, tensor<{1 << 43}xi8> }}""")
    x = numbers()
    count = sys.getrefcount(x)
    with pytest.raises(ExecutionError, match="no memory"):
        huge(x, np.array(1, "i1"))
    assert sys.getrefcount(x) == count
    assert x.flags.writeable
    np.testing.assert_array_equal(x, numbers())


def test_a_program_that_fails_keeps_what_it_may_have_overwritten(build: Build) -> None:
    kind = tensor((1000,), "f32")
    failing = build("define i32 @main(ptr %c, ptr %s) {\n ret i32 9\n}", [kind], [kind], donated=((0, 0),))
    x = numbers()
    count = sys.getrefcount(x)
    with pytest.raises(ExecutionError, match="failed with status 9"):
        failing(x)
    assert sys.getrefcount(x) == count
    assert not x.flags.writeable
    # It was given away: another program gets a copy.
    before = x.copy()
    with pytest.raises(ExecutionError, match="failed with status 9"):
        failing(x)
    np.testing.assert_array_equal(x, before)


def test_a_program_that_never_began_gives_back_what_was_donated(build: Build) -> None:
    kind = tensor((1000,), "f32")
    fields = {"donated": ((0, 0),), "arena_bytes": 1 << 47}
    executable = build("define i32 @main(ptr %c, ptr %s) {\n ret i32 9\n}", [kind], [kind], **fields)
    x = numbers()
    with pytest.raises(ExecutionError, match="no memory"):
        executable(x)
    assert x.flags.writeable
    np.testing.assert_array_equal(x, numbers())


# ----------------------------------------------------------------------------------------------------------- threads


def test_threads_that_give_the_same_array_never_share_a_result(add: Any) -> None:
    """Only one of them gets the memory; what the others read is undefined, but every result is its own."""
    for _ in range(60):
        x = numbers()
        results: list[Array] = []
        start = threading.Barrier(4)

        def work(x: Array = x, start: threading.Barrier = start, results: list[Array] = results) -> None:
            start.wait()
            results.append(add(x, ONES))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(address(result) == address(x) for result in results) == 1
        assert len({address(result) for result in results}) == 4


def test_threads_with_states_of_their_own(add: Any) -> None:
    failures: list[str] = []

    def work(number: int) -> None:
        state = numbers() + number
        for _ in range(200):
            state = add(state, ONES)
        if not (state == numbers() + number + 200).all():
            failures.append(f"{number}: {state[:4]}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# ------------------------------------------------------------------------------------------------------------- memory


def adam_step(state: Any, gradient: Any) -> Any:
    """Parameters, first and second moments; the bias correction is left to the rate."""
    new = []
    for (weights, first, second), g in zip(state, gradient):
        m = 0.9 * first + 0.1 * g
        v = 0.999 * second + 0.001 * g * g
        new.append((weights - 0.01 * m / (jnp.sqrt(v) + 1e-8), m, v))
    return new


def test_an_adam_step_needs_no_second_copy_of_the_state() -> None:
    """Peak bytes of the pool during steps: without donation twice the state, with it the state alone."""
    shapes = [(300, 200), (200,), (200, 100)]
    state_bytes = 3 * 4 * sum(int(np.prod(shape)) for shape in shapes)
    state = [tuple(np.full(shape, 0.1 * k, "f4") for k in range(3)) for shape in shapes]
    gradient = [np.full(shape, 0.5, "f4") for shape in shapes]
    doubled = jax.tree.map(lambda leaf: 2 * leaf, state)
    expected = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(adam_step)(doubled, gradient))]
    peaks = {}
    for donate in ((), (0,)):
        text = jax.jit(adam_step, donate_argnums=donate).lower(state, gradient).as_text()
        executable = hlojit.compile(text)
        assert executable.spec.arena_bytes == 0
        leaves = [leaf.copy() for leaf in jax.tree.leaves(state)]
        gradients = jax.tree.leaves(gradient)
        own = {address(leaf) for leaf in leaves}
        # A result of the pool, so that the pool counts the state as well.
        adopted = hlojit.compile(jax.jit(lambda each: [2 * leaf for leaf in each]).lower(leaves).as_text())
        gc.collect()
        before = runtime.statistics()
        leaves = list(adopted(*leaves))
        held = (runtime.statistics() - before).bytes_in_use
        assert not own & {address(leaf) for leaf in leaves} and held >= state_bytes
        result = executable(*leaves, *gradients)
        for ours, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)
        peaks[donate] = (runtime.statistics() - before).bytes_in_use / held
        places = {address(leaf) for leaf in leaves} & {address(leaf) for leaf in result}
        assert len(places) == (len(leaves) if donate else 0)
        del result, leaves, ours
    assert peaks == {(): 2.0, (0,): 1.0}


def test_nothing_is_leaked() -> None:
    executable = hlojit.compile(ADD)
    reference = weakref.ref(executable)
    x = numbers()
    for _ in range(10):
        x = executable(x, ONES)
    before = runtime.statistics().bytes_in_use
    for _ in range(1000):
        executable(numbers(), ONES)
    assert runtime.statistics().bytes_in_use == before
    del executable
    gc.collect()
    assert reference() is None
    np.testing.assert_array_equal(x, numbers() + 10)


def test_the_program_says_whose_memory_an_output_is() -> None:
    program = hlojit.compile(ADD).spec.program
    check(program)
    assert program.donated == ((0, 0),) and "output0    1000xf32 = input0" in text(program)
    assert not [step for step in program.walk() if isinstance(step, (Copy, Loop))]


def test_numpy_cannot_free_the_memory_under_a_result(add: Any) -> None:
    """The donated array no longer owns its memory, so that NumPy neither frees it nor makes it writable again."""
    x = numbers()
    result = add(x, ONES)
    assert not x.flags.owndata and x.base is result.base
    with pytest.raises(ValueError, match="does not own its data"):
        x.resize(3, refcheck=False)
    with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
        x.setflags(write=True)
    other = numbers(5)
    x.__setstate__(other.__reduce__()[2])
    np.testing.assert_array_equal(x, other)
    assert x.flags.owndata and not np.may_share_memory(x, result)
    np.testing.assert_array_equal(result, numbers() + 1)


def test_what_was_donated_for_nothing_is_safe_too() -> None:
    """Donated memory that holds temporaries while the program runs, and arrays of a call that never began."""
    executable = compiled(lambda x, y: jnp.flip(jnp.sort(jnp.sin(x) * y))[:7], X, Y, donate=(0,))
    x = X.copy()
    executable(x, Y)
    assert x.flags.owndata == x.flags.writeable == (not executable.spec.program.donated)


@pytest.mark.parametrize("order", ["array first", "result first", "view last"])
def test_the_memory_is_freed_once_by_whom_it_was_allocated(add: Any, order: str) -> None:
    """tracemalloc knows NumPy's allocations; four megabytes stand out."""
    big = hlojit.compile(ADD.replace("1000x", "1000000x"))
    ones = np.ones(1_000_000, "f4")
    big(np.ones(1_000_000, "f4"), ones)
    gc.collect()
    tracemalloc.start()
    try:
        held: dict[str, Any] = {"array": np.ones(1_000_000, "f4")}
        held["view"] = held["array"][10:]
        held["result"] = big(held["array"], ones)
        for name in {"array first": ("array", "result", "view"), "result first": ("result", "view", "array"),
                     "view last": ("array", "result", "view")}[order]:  # fmt: skip
            assert tracemalloc.get_traced_memory()[0] >= 4_000_000
            del held[name]
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_overlaps_are_those_that_numpy_finds_in_pairs() -> None:
    random = np.random.default_rng(7)
    memory = [np.zeros(64, "u1") for _ in range(3)]
    for _ in range(200):
        arrays = []
        for _ in range(random.integers(1, 9)):
            low, high = np.sort(random.integers(0, 65, 2))
            arrays.append(memory[random.integers(3)][low : high : random.choice([1, 3])][:: random.choice([1, -1])])
        expected = {
            number
            for number, array in enumerate(arrays)
            if any(np.may_share_memory(array, other) for place, other in enumerate(arrays) if place != number)
        }
        assert overlapping(arrays) == expected


def test_looking_for_overlaps_takes_steps_in_proportion_to_the_arrays() -> None:
    def steps(count: int) -> int:
        arrays, seen = [np.zeros(1) for _ in range(count)], [0]

        def count_calls(*_: Any) -> None:
            seen[0] += 1

        call = GivingCall(range(count), lambda *given: given)
        sys.setprofile(count_calls)
        try:
            call(*arrays)
        finally:
            sys.setprofile(None)
        return seen[0]

    assert steps(400) < 3 * steps(200)
