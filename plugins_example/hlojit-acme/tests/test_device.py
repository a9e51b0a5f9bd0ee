"""Acme's device: a program split over it and the CPU, its memory, its commands, what it refuses, and hlojit's kit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpt2_block as gpt2
import hlojit
import numpy as np
import pytest
from hlojit import testing
from hlojit.extensions import InterpretedBackend, Module, hookimpl, using
from hlojit_acme.backend import AcmeBackend
from hlojit_acme.cases import PRODUCT_TEXTS
from hlojit_acme.machine import AcmeMachine
from hlojit_acme.products import Tile
from hlojit_acme.softmax import SOFTMAX

TEXT = (Path(__file__).parent / "gpt2_block.mlir").read_text()
BOTH = ["acme", "cpu"]


def product(rows: int, depth: int, columns: int, element: str = "f32") -> str:
    return f"""
    func.func @main(%x: tensor<{rows}x{depth}x{element}>, %w: tensor<{depth}x{columns}x{element}>) -> tensor<{rows}x{columns}x{element}> {{
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<{rows}x{depth}x{element}>, tensor<{depth}x{columns}x{element}>) -> tensor<{rows}x{columns}x{element}>
      return %0 : tensor<{rows}x{columns}x{element}>
    }}
    """


def machine(number: int) -> AcmeMachine:
    """The machine behind ``acme:number``, which a user does not see."""
    return hlojit.devices("acme")[number].machine


@pytest.fixture(scope="module")
def arguments() -> list[np.ndarray]:
    return [gpt2.tokens(), *gpt2.weights()]


# the block


def test_block_from_text_is_split_and_computes_what_numpy_does(arguments: list[np.ndarray]) -> None:
    executable = hlojit.compile(TEXT, backend=BOTH)
    hidden, best = executable(*arguments)
    expected = gpt2.model(*arguments)
    np.testing.assert_allclose(hidden, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(best, expected[1], rtol=1e-4, atol=1e-5)
    for ours, theirs in zip((hidden, best), hlojit.compile(TEXT, backend="cpu")(*arguments), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_placement_says_who_computes_what_and_why(arguments: list[np.ndarray]) -> None:
    executable = hlojit.compile(TEXT, backend=BOTH)
    executable(*arguments)
    rows = executable.placement().rows
    where = {row.instruction.split(" ")[0]: row.device for row in rows}
    assert where["stablehlo.gather"] == where["stablehlo.sort"] == "cpu:0"
    assert where["stablehlo.tanh"] == where["stablehlo.exponential"] == where["stablehlo.transpose"] == "acme:0"
    products = [row.device for row in rows if row.instruction.startswith("stablehlo.dot_general")]
    assert products == ["acme:0"] * 6 + ["cpu:0"], "the last is small, and stands beside the sort"
    text = str(executable.placement())
    assert "segment 1" in text and "took" in text
    (sort,) = [row for row in rows if row.instruction.startswith("stablehlo.sort")]
    assert sort.why == "only cpu takes it (acme: the device has no sorter)"
    segments = executable.placement().segments
    assert [each.device for each in segments] == ["cpu:0", "acme:0", "cpu:0"] and all(
        each.measured for each in segments
    )


def test_block_from_a_jitted_function(arguments: list[np.ndarray]) -> None:
    jitted = hlojit.jit(gpt2.model, backend=BOTH)
    for ours, expected in zip(jitted(*arguments), gpt2.model(*arguments), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_weights_stay_on_the_device_between_calls(arguments: list[np.ndarray]) -> None:
    executable = hlojit.compile(TEXT, backend=BOTH)
    expected, _ = gpt2.model(*arguments)
    there = [hlojit.put(each, "acme") if number >= 2 else each for number, each in enumerate(arguments)]
    executable(*there)
    hidden, said = commands(lambda: executable(*there)[0])
    assert str(hidden.device) == "acme:0"
    assert said.count("put") == 1 and said.count("acme.softmax") == 1, "only what the CPU looked up comes to the device"
    np.testing.assert_allclose(hidden, expected, rtol=1e-4, atol=1e-5)


def commands(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a call returns, and what ``acme:0`` was told meanwhile."""
    stream = machine(0).stream
    machine(0).nanoseconds()
    stream.log.clear()
    result = call()
    machine(0).nanoseconds()
    return result, [what for _, what, _, _ in stream.log]


# the matrix unit


@pytest.mark.parametrize("sizes", [(16, 16, 16), (1, 1, 1), (17, 33, 5), (40, 64, 48)])
def test_products_are_tiled_and_padded(sizes: tuple[int, int, int]) -> None:
    text = product(*sizes)
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal(sizes[:2], "f4"), rng.standard_normal(sizes[1:], "f4")
    np.testing.assert_allclose(hlojit.compile(text, backend="acme")(x, w), x @ w, rtol=1e-4, atol=1e-5)
    lowered = hlojit.lower(text, backend="acme")
    (multiplied,) = [each for each in lowered.walk() if each.name == "stablehlo.dot_general"]
    assert all(extent % 16 == 0 for type in multiplied.operand_types for extent in type.shape)


def test_products_with_batches_in_any_order_are_tiled() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((5, 2, 9, 3), "f4"), rng.standard_normal((3, 7, 2, 9), "f4")
    batched = hlojit.jit(lambda x, y: np.einsum("abcd,decb->bdae", x, np.transpose(y, (0, 1, 3, 2))), backend="acme")
    expected = np.einsum("abcd,debc->bdae", x, y)
    np.testing.assert_allclose(batched(x, y), expected, rtol=1e-4, atol=1e-5)


def test_a_product_that_is_not_in_tiles_is_an_error_that_names_it() -> None:
    executable = hlojit.compile(product(5, 7, 3), backend="acme", options={"disable_passes": ("acme-tile",)})
    with pytest.raises(hlojit.ExecutionError, match=r"stablehlo\.dot_general.*whole 16x16 tiles"):
        executable(np.ones((5, 7), "f4"), np.ones((7, 3), "f4"))


# refusals


def test_asking_for_f64_names_op_and_reason() -> None:
    text = product(4, 4, 4, "f64")
    with pytest.raises(hlojit.UnsupportedError, match=r"stablehlo\.dot_general.*acme.*no f64 unit"):
        hlojit.compile(text, backend="acme")
    executable = hlojit.compile(text, backend=BOTH)
    assert {row.device for row in executable.placement().rows} == {"cpu:0"}
    np.testing.assert_array_equal(executable(np.eye(4), np.ones((4, 4))), np.ones((4, 4)))


def test_what_nobody_in_the_list_takes_is_an_error() -> None:
    with pytest.raises(hlojit.UnsupportedError, match=r"no sorter|by index"):
        hlojit.compile(TEXT, backend=["acme"])


# devices, memory, commands


def test_two_devices_with_memories_of_their_own() -> None:
    first, second = hlojit.devices("acme")
    x = np.arange(6, dtype="f4")
    double = hlojit.compile(str(hlojit.jit(lambda x: x + x).lower(x)), backend="acme")
    y = double(hlojit.put(x, second))
    assert y.device is second and hlojit.get(y).tolist() == [0, 2, 4, 6, 8, 10]
    assert hlojit.get(hlojit.put(y, first)).tolist() == [0, 2, 4, 6, 8, 10]
    with pytest.raises(hlojit.ArgumentError, match=r"acme:0.*acme:1|acme:1.*acme:0"):
        hlojit.compile(product(4, 4, 4), backend="acme")(
            hlojit.put(np.ones((4, 4), "f4"), first), hlojit.put(np.ones((4, 4), "f4"), second)
        )


def test_memory_is_given_back() -> None:
    square = hlojit.jit(lambda x: np.tanh(x @ x), backend="acme")
    x = hlojit.put(np.eye(100, dtype="f4"), "acme")
    square(x)
    machine(0).nanoseconds()
    before = machine(0).memory.available
    y = square(square(x))
    assert machine(0).memory.available < before
    del y
    machine(0).nanoseconds()
    assert machine(0).memory.available >= before


def test_calls_do_not_wait_and_are_timed_by_the_clock_of_the_device() -> None:
    step = hlojit.jit(lambda x: np.tanh(x @ x), backend="acme")
    x = hlojit.put(np.eye(64, dtype="f4") / 2, "acme")
    y = step.execute(x)
    z = step.execute(y)
    z.wait()
    assert z.buffer.ready.nanoseconds >= 4 * 4 * 4, "64 products of tiles"
    np.testing.assert_allclose(z, np.eye(64) * np.tanh(np.tanh(0.25) ** 2), rtol=1e-5)


def test_units_work_side_by_side_and_behind_what_they_read() -> None:
    both = hlojit.jit(lambda x, w: (x @ w, np.exp(x)), backend="acme")
    x, w = (hlojit.put(np.eye(128, dtype="f4"), "acme") for _ in range(2))
    both(x, w)
    _, said = commands(lambda: both(x, w))
    assert said == ["stablehlo.dot_general", "stablehlo.exponential"], "x and w lie in tiles since the first call"
    log = {what: (begin, end) for _, what, begin, end in machine(0).stream.log}
    matrix, vector = log["stablehlo.dot_general"], log["stablehlo.exponential"]
    assert max(matrix[0], vector[0]) < min(matrix[1], vector[1])


def test_a_command_that_fails_fails_the_program_and_nothing_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = hlojit.jit(lambda x: np.exp(x @ x), backend="acme")
    x = hlojit.put(np.eye(32, dtype="f4"), "acme")
    expected = np.asarray(executable(x))

    def broken(*_: object) -> None:
        raise OSError("parity error")

    monkeypatch.setattr("hlojit_acme.machine._multiply", broken)
    with pytest.raises(
        hlojit.ExecutionError, match=r"acme:0.*stablehlo.dot_general on the matrix unit: OSError: parity error"
    ):
        executable(x)
    monkeypatch.undo()
    np.testing.assert_array_equal(executable(x), expected)


class Small(AcmeBackend):
    """A device of 64 KiB."""

    name = "acme-small"

    def machines(self) -> list[AcmeMachine]:
        return [AcmeMachine(0, memory=1 << 16)]


class SmallPlugin:
    hlojit_api = (1, 2)

    @hookimpl
    def hlojit_backends(self) -> list[InterpretedBackend]:
        return [Small()]


def test_memory_that_does_not_suffice_is_an_error() -> None:
    with using(SmallPlugin()):
        add = hlojit.jit(lambda x: x + 1, backend="acme-small")
        assert add(np.zeros(100, "f4")).sum() == 100
        with pytest.raises(hlojit.ExecutionError, match=r"acme-small:0.*bytes are wanted"):
            add(np.zeros(1 << 15, "f4"))
        for _ in range(20):
            assert add(np.zeros(4000, "f4")).sum() == 4000


def test_several_threads_share_the_devices(arguments: list[np.ndarray]) -> None:
    executable = hlojit.compile(TEXT, backend=BOTH)
    expected, _ = executable(*arguments)
    results: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: results.append(executable(*arguments)[0])) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(results) == 4 and all(np.array_equal(each, expected) for each in results)


# softmax


def test_softmax_is_one_command() -> None:
    x = np.random.default_rng(4).standard_normal((3, 5, 40), "f4")
    soft = hlojit.jit(gpt2.softmax, backend="acme")
    np.testing.assert_allclose(soft(x), gpt2.softmax(x), rtol=1e-5, atol=1e-7)
    (taken,) = hlojit.kernel_report(soft.lower(x), backend="acme").taken
    assert taken.kernel == "acme.softmax"


def test_softmax_of_columns_is_left_to_the_units() -> None:
    x = np.random.default_rng(5).standard_normal((7, 7), "f4")
    columns = hlojit.jit(
        lambda x: (
            np.exp(x - x.max(axis=0, keepdims=True))
            / np.exp(x - x.max(axis=0, keepdims=True)).sum(axis=0, keepdims=True)
        ),
        backend="acme",
    )
    np.testing.assert_allclose(columns(x), gpt2.softmax(x.T).T, rtol=1e-5, atol=1e-7)
    report = hlojit.kernel_report(columns.lower(x), backend="acme")
    assert not report.taken and "it is not the softmax of rows" in str(report)


# the kit


def test_backend_conforms() -> None:
    testing.check_backend("acme", budget="smoke").raise_if_failed()


def test_tiling_conforms() -> None:
    testing.check_pass(Tile(), PRODUCT_TEXTS, effect="permitted", backend="acme", budget="smoke").raise_if_failed()


def test_softmax_conforms() -> None:
    module: Module = hlojit.jit(gpt2.softmax).lower(np.zeros((8, 16), "f4"))
    testing.check_kernel(SOFTMAX, [module], budget="smoke").raise_if_failed()
