"""One rule for reductions on every back end: summed in the compute type, each result rounded once; a scatter rounds each update."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import NanEncoding, Overflow

from .listed_formats import POSIT, Numbers, plain_number

PLAIN = Numbers(
    ext.FloatFormat("sums7", exponent_bits=3, mantissa_bits=3, bias=4, has_infinity=False, nan=NanEncoding.ALL_ONES,
                    overflow=Overflow.SATURATE),
    plain_number)  # fmt: skip
FORMATS = {"parametric": PLAIN, "functions": POSIT}
WIDE: dict[str, Any] = {"exponent_bits": 6, "mantissa_bits": 3, "bias": 31}
IN_SINGLE, IN_DOUBLE = (ext.FloatFormat(f"sums10{kind}", accumulator=kind, **WIDE) for kind in ("f32", "f64"))
PLUGIN = SimpleNamespace(
    __name__="sums", hlojit_formats=ext.hookimpl(lambda: [PLAIN.row, POSIT.row, IN_SINGLE, IN_DOUBLE])
)
BACKENDS = ["cpu", "reference", "cuda"]
COUNT = 40


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")


@pytest.fixture(scope="module", autouse=True)
def formats() -> Any:
    with ext.using(PLUGIN):
        yield


def values(numbers: Numbers) -> Any:
    """Multiples of 1/16 whose sums are small, so that f32 holds them all and the format few."""
    found = np.random.default_rng(4).integers(-3, 7, (6, COUNT)) / 16
    found[:, 0] = 4.0
    return found


SUM = """func.func @main(%x: tensor<6x40xF>) -> tensor<6xF> {
  %z = stablehlo.constant dense<0.0> : tensor<F>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : (tensor<6x40xF>, tensor<F>) -> tensor<6xF>
  return %0 : tensor<6xF> }"""
COLUMNS = SUM.replace("[1]", "[0]").replace("tensor<6xF>", "tensor<40xF>")
WINDOW = """func.func @main(%x: tensor<6x40xF>) -> tensor<6xKxF> {
  %z = stablehlo.constant dense<0.0> : tensor<F>
  %0 = "stablehlo.reduce_window"(%x, %z) ({
  ^bb0(%a: tensor<F>, %b: tensor<F>):
    %s = stablehlo.add %a, %b : tensor<F>
    stablehlo.return %s : tensor<F>
  }) {window_dimensions = array<i64: 1, W>, padding = dense<[[0, 0], [P, 0]]> : tensor<2x2xi64>} : (tensor<6x40xF>, tensor<F>) -> tensor<6xKxF>
  return %0 : tensor<6xKxF> }"""
DOT = """func.func @main(%x: tensor<6x40xF>, %y: tensor<6x40xF>) -> tensor<6x6xF> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : (tensor<6x40xF>, tensor<6x40xF>) -> tensor<6x6xF>
  return %0 : tensor<6x6xF> }"""
SCATTER = """func.func @main(%x: tensor<3xF>, %i: tensor<240x1xi32>, %u: tensor<240xF>) -> tensor<3xF> {
  %0 = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<F>, %b: tensor<F>):
    %s = stablehlo.add %a, %b : tensor<F>
    stablehlo.return %s : tensor<F>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} :
    (tensor<3xF>, tensor<240x1xi32>, tensor<240xF>) -> tensor<3xF>
  return %0 : tensor<3xF> }"""


def run(text: str, numbers: Numbers, backend: str, *arguments: Any) -> Any:
    made = [hlojit.Array.from_values(each, numbers.row) if each.dtype.kind == "f" else each for each in arguments]
    return hlojit.compile(text.replace("F>", f"{numbers.row.name}>"), backend=backend)(*made).to_values()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", FORMATS)
def test_sums_are_rounded_once(kind: str, backend: str) -> None:
    numbers = FORMATS[kind]
    x = numbers.all_rounded(values(numbers))
    once = numbers.all_rounded(x.sum(1))
    stepwise = x[:, 0]
    for column in range(1, COUNT):
        stepwise = numbers.all_rounded(stepwise + x[:, column])
    assert (once != stepwise).any()  # or nothing is tested
    np.testing.assert_array_equal(run(SUM, numbers, backend, x), once)
    np.testing.assert_array_equal(run(COLUMNS, numbers, backend, x), numbers.all_rounded(x.sum(0)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", FORMATS)
def test_windows_and_cumulative_sums_are_rounded_once_each(kind: str, backend: str) -> None:
    numbers = FORMATS[kind]
    x = numbers.all_rounded(values(numbers))
    prefixes = (
        WINDOW.replace("W>", "40>")
        .replace("W}", "40}")
        .replace(", W", ", 40")
        .replace("[P, 0]", "[39, 0]")
        .replace("KxF", "40xF")
    )
    np.testing.assert_array_equal(run(prefixes, numbers, backend, x), numbers.all_rounded(np.cumsum(x, 1)))
    windows = WINDOW.replace(", W", ", 7").replace("[P, 0]", "[0, 0]").replace("KxF", "34xF")
    sums = np.lib.stride_tricks.sliding_window_view(x, 7, axis=1).sum(-1)
    np.testing.assert_array_equal(run(windows, numbers, backend, x), numbers.all_rounded(sums))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", FORMATS)
def test_products_are_rounded_once(kind: str, backend: str) -> None:
    numbers = FORMATS[kind]
    x = numbers.all_rounded(values(numbers))
    y = x[::-1].copy()
    np.testing.assert_array_equal(run(DOT, numbers, backend, x, y), numbers.all_rounded(x @ y.T))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_scatter_rounds_each_update(kind: str, backend: str) -> None:
    numbers = FORMATS[kind]
    updates = numbers.all_rounded(values(numbers)).ravel()
    places = np.random.default_rng(1).integers(0, 3, (240, 1)).astype("i4")
    expected = np.zeros(3)
    for (place,), update in zip(places, updates):
        expected[place] = numbers.rounded(expected[place] + update)
    np.testing.assert_array_equal(run(SCATTER, numbers, backend, np.zeros(3), places, updates), expected)


def test_cumulative_sums_of_jitted_functions_follow_the_rule() -> None:
    x = PLAIN.all_rounded(values(PLAIN))
    given = hlojit.Array.from_values(x, PLAIN.row)
    found = hlojit.jit(lambda a: (np.cumsum(a, axis=1), np.sum(a, axis=1)))(given)
    np.testing.assert_array_equal(found[0].to_values(), PLAIN.all_rounded(np.cumsum(x, 1)))
    np.testing.assert_array_equal(found[1].to_values(), PLAIN.all_rounded(x.sum(1)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_sums_are_taken_in_the_accumulator(backend: str) -> None:
    """Small numbers between two large ones that cancel: f64 keeps them, f32 does not."""
    x = np.full((6, COUNT), 2.0**-10)
    x[:, 0], x[:, -1] = 2.0**20, -(2.0**20)
    prefixes = WINDOW.replace("W>", "40>").replace("[P, 0]", "[39, 0]").replace(", W", ", 40").replace("K", "40")
    for row in (IN_DOUBLE, IN_SINGLE):
        made, ones = (hlojit.Array.from_values(each, row) for each in (x, np.ones_like(x)))
        in_turn = np.cumsum(x, 1)
        wanted = hlojit.Array.from_values(in_turn, row).to_values()
        results = [
            hlojit.compile(text.replace("F>", f"{row.name}>"), backend=backend)(*arguments).to_values()
            for text, arguments in ((SUM, (made,)), (prefixes, (made,)), (DOT, (made, ones)))
        ]
        jitted = hlojit.jit(lambda a: (np.sum(a, axis=1), np.cumsum(a, axis=1), np.mean(a, axis=1)), backend=backend)
        results += [each.to_values() for each in jitted(made)]
        same = [np.array_equal(results[1], wanted), np.array_equal(results[4], wanted)]
        same += [np.array_equal(results[k], wanted[:, -1]) for k in (0, 3)]
        same += [np.array_equal(results[2], np.tile(wanted[:, -1:], 6))]
        mean = hlojit.Array.from_values(in_turn[:, -1] / COUNT, row).to_values()
        same += [np.array_equal(results[5], mean)]
        assert all(same) if row is IN_DOUBLE else not any(same)
        text = SUM.replace("F>", f"{row.name}>").replace("stablehlo.add", "stablehlo.maximum")
        assert (hlojit.compile(text, backend=backend)(made).to_values() == 2.0**20).all()


CONVOLUTIONS = {
    "windows of rows": ("[b, 0, f]x[0, i, o]->[b, 0, f]", (2, 44, 3), (5, 3, 4), 1),
    "windows of columns": ("[b, f, 0]x[o, i, 0]->[b, f, 0]", (2, 3, 44), (4, 3, 5), 1),
    "a product": ("[b, 0, f]x[0, i, o]->[b, 0, f]", (2, 9, 40), (1, 40, 6), 1),
    "a channel a group": ("[b, 0, f]x[0, i, o]->[b, 0, f]", (2, 30, 8), (7, 1, 8), 8),
    "groups": ("[b, 0, f]x[0, i, o]->[b, 0, f]", (2, 30, 8), (7, 4, 6), 2),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", CONVOLUTIONS)
def test_convolutions_are_summed_in_the_accumulator(form: str, backend: str) -> None:
    """Small numbers behind large ones that cancel, as channels and along windows: f64 keeps them, f32 does not."""
    numbers, image, kernel, groups = CONVOLUTIONS[form]
    letters = numbers.replace(", ", "").replace("[", "").replace("]", "").replace("->", "x").split("x")
    extents = [dict(zip(word, shape)) for word, shape in zip(letters, (image, kernel))]
    length, window = extents[0]["0"] - extents[1]["0"] + 1, extents[1]["0"]
    given = np.full((extents[0]["b"], extents[0]["0"], extents[0]["f"]), 2.0**-10)  # batch, place, channel
    weights = np.ones((window, extents[1]["i"], extents[1]["o"]))
    if window > 1:
        given[:, ::window], given[:, 2::window] = 2.0**20, -(2.0**20)
    else:
        given[:, :, 0], given[:, :, -1] = 2.0**20, -(2.0**20)
    depth, width = weights.shape[1], weights.shape[2] // groups
    expected = np.zeros((len(given), length, weights.shape[2]))
    for group in range(groups):
        taken = given[:, :, group * depth : (group + 1) * depth]
        part = slice(group * width, (group + 1) * width)
        for tap in range(window):
            expected[:, :, part] += taken[:, tap : tap + length] @ weights[tap][:, part]
    orders = [["b0f".index(letter) for letter in letters[0]], ["0io".index(letter) for letter in letters[1]]]
    arrays = [each.transpose(order) for each, order in zip((given, weights), orders)]
    expected = expected.transpose(["b0f".index(letter) for letter in letters[2]])
    types = ["x".join(map(str, each.shape)) + "xF" for each in (*arrays, expected)]
    text = (
        f"func.func @main(%x: tensor<{types[0]}>, %w: tensor<{types[1]}>) -> tensor<{types[2]}> {{\n"
        f"%0 = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{}} "
        f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} : "
        f"(tensor<{types[0]}>, tensor<{types[1]}>) -> tensor<{types[2]}>\nreturn %0 : tensor<{types[2]}> }}"
    )
    for row in (IN_DOUBLE, IN_SINGLE):
        made = [hlojit.Array.from_values(each, row) for each in arrays]
        found = hlojit.compile(text.replace("F>", f"{row.name}>"), backend=backend)(*made).to_values()
        wanted = hlojit.Array.from_values(expected, row).to_values()
        assert np.array_equal(found, wanted) == (row is IN_DOUBLE)


OPEN = {"options": {"dynamic_shapes": "symbolic"}}


def test_sums_of_open_sizes_are_rounded_once() -> None:
    """Sizes that one compilation leaves open change no rule."""
    numbers = FORMATS["functions"]  # whole bytes: of others, each size is compiled for itself
    x = numbers.all_rounded(values(numbers))
    windows = (
        WINDOW.replace("W>", "7>")
        .replace("W}", "7}")
        .replace(", W", ", 7")
        .replace("[P, 0]", "[0, 0]")
        .replace("K", "34")
    )
    views = np.lib.stride_tricks.sliding_window_view(x, 7, axis=1).sum(-1)
    for text, arrays, expected in (
        (SUM, (x,), x.sum(1)),
        (COLUMNS, (x,), x.sum(0)),
        (windows, (x,), views),
        (DOT.replace("6x6", "?x6"), (x, x[::-1].copy()), x @ x[::-1].T),
    ):
        opened = text.replace("%x: tensor<6x", "%x: tensor<?x").replace("(tensor<6x", "(tensor<?x")
        opened = opened.replace("<6xF>", "<?xF>").replace("<6x34xF>", "<?x34xF>")
        made = [hlojit.Array.from_values(each, numbers.row) for each in arrays]
        program = hlojit.compile(opened.replace("F>", f"{numbers.row.name}>"), **OPEN)
        np.testing.assert_array_equal(program(*made).to_values(), numbers.all_rounded(expected))
        assert program.dynamic_shapes == "symbolic", program.why


@pytest.mark.parametrize("row", [IN_DOUBLE, IN_SINGLE], ids=["f64", "f32"])
def test_products_of_open_sizes_are_summed_in_the_accumulator(row: ext.FloatFormat) -> None:
    x = np.full((6, COUNT), 2.0**-10)
    x[:, 0], x[:, -1] = 2.0**20, -(2.0**20)
    dot = DOT.replace("6x6", "?x6").replace("%x: tensor<6x", "%x: tensor<?x").replace("(tensor<6x", "(tensor<?x")
    convolution = """func.func @main(%x: tensor<?x40x1xF>, %w: tensor<40x1x2xF>) -> tensor<?x1x2xF> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<?x40x1xF>, tensor<40x1x2xF>) -> tensor<?x1x2xF>
      return %0 : tensor<?x1x2xF> }"""
    wanted = hlojit.Array.from_values(np.array([38 * 2.0**-10]), row).to_values()[0]
    for text, arrays in ((dot, (x, np.ones_like(x))), (convolution, (x[:, :, None], np.ones((COUNT, 1, 2))))):
        made = [hlojit.Array.from_values(each, row) for each in arrays]
        found = hlojit.compile(text.replace("F>", f"{row.name}>"), **OPEN)(*made).to_values()
        assert (found == wanted).all() == (row is IN_DOUBLE)
