"""Stochastic rounding: bits by a published generator, the same on every back end, under any fusion and number of threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import Rounding

Array = np.ndarray[Any, Any]
ROW = ext.FloatFormat("s8", exponent_bits=4, mantissa_bits=3, bias=7, rounding=Rounding.STOCHASTIC)
BRAIN = ext.FloatFormat("sb16", exponent_bits=8, mantissa_bits=7, bias=127, rounding=Rounding.STOCHASTIC)
PLUGIN = SimpleNamespace(__name__="stochastic", hlojit_formats=ext.hookimpl(lambda: [ROW, BRAIN]))
CONVERT = """func.func @main(%x: tensor<Nxf64>) -> tensor<Nxs8> {
  %0 = stablehlo.convert %x : (tensor<Nxf64>) -> tensor<Nxs8>
  return %0 : tensor<Nxs8> }"""


@pytest.fixture(scope="module", autouse=True)
def formats() -> Any:
    with ext.using(PLUGIN):
        yield


def philox(counter: int, key: int) -> list[int]:
    """Philox4x32 with seven rounds, in Python's integers."""
    word = (1 << 32) - 1
    words, keys = [counter >> 32 * each & word for each in range(4)], [key & word, key >> 32 & word]
    for _ in range(7):
        first, second = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [second >> 32 ^ words[1] ^ keys[0], second & word, first >> 32 ^ words[3] ^ keys[1], first & word]
        keys = [keys[0] + 0x9E3779B9 & word, keys[1] + 0xBB67AE85 & word]
    return words


def random_word(place: int, iteration: int, number: int, seed: int) -> int:
    """As the decision says: the key from number and seed, the counter from place and iteration."""
    drawn = philox(number, seed)
    return philox(place | (iteration & (1 << 64) - 1) << 64, drawn[0] | drawn[2] << 32)[0]


def expected(values: Array, number: int, seed: int, iteration: int = 0, bias: int = 7, bits: int = 3) -> list[float]:
    """Each number by its random bits, in exact integers."""
    found = []
    for place, value in enumerate(values.ravel().tolist()):
        exponent = np.frexp(abs(value))[1]
        unit = 2.0 ** (max(int(exponent) - 1, 1 - bias) - bits)
        whole = int(abs(value) / unit)
        rest = int((abs(value) / unit - whole) * 2**32)
        up = rest + random_word(place, iteration, number, seed) >= 2**32
        found.append(np.copysign((whole + up) * unit, value))
    return found


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_bits_are_those_of_the_generator(backend: str) -> None:
    values = np.random.default_rng(1).uniform(-3, 3, 400) * 2.0 ** np.arange(-10, 0).repeat(40)
    for seed in (0, 7, 1 << 40 | 3):
        executable = hlojit.compile(
            CONVERT.replace("N", "400"), backend=backend, pass_options={"stochastic-rounding": {"seed": seed}}
        )
        assert executable(values).to_values().tolist() == expected(values, 0, seed)


def test_the_mean_is_the_number() -> None:
    """40,000 roundings of one number: within five standard deviations of what is expected, and both neighbours only."""
    count = 40000
    for value in (1.03, 1.1, -2.7, 0.0009):
        found = hlojit.compile(CONVERT.replace("N", str(count)))(np.full(count, value)).to_values().astype("f8")
        low, high = sorted(set(found.tolist()))
        assert low < value < high
        share = (value - low) / (high - low)
        assert abs(np.mean(found == high) - share) < 5 * np.sqrt(share * (1 - share) / count)
    # neighbours are independent: pairs of elements go up together as often as they should
    up = (hlojit.compile(CONVERT.replace("N", str(count)))(np.full(count, 1.0625)).to_values() > 1.0).astype("f8")
    assert abs(np.corrcoef(up[1:], up[:-1])[0, 1]) < 5 / np.sqrt(count)


PROGRAM = """func.func @main(%x: tensor<64x96xs8>, %y: tensor<64x96xs8>) -> (tensor<64x96xs8>, tensor<64xs8>, tensor<64x64xs8>, tensor<96x64xs8>) {
  %0 = stablehlo.multiply %x, %y : tensor<64x96xs8>
  %1 = stablehlo.exponential %0 : tensor<64x96xs8>
  %2 = stablehlo.add %1, %x : tensor<64x96xs8>
  %z = stablehlo.constant dense<0.0> : tensor<s8>
  %3 = stablehlo.reduce(%2 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<64x96xs8>, tensor<s8>) -> tensor<64xs8>
  %4 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : (tensor<64x96xs8>, tensor<64x96xs8>) -> tensor<64x64xs8>
  %5 = stablehlo.transpose %2, dims = [1, 0] : (tensor<64x96xs8>) -> tensor<96x64xs8>
  return %2, %3, %4, %5 : tensor<64x96xs8>, tensor<64xs8>, tensor<64x64xs8>, tensor<96x64xs8> }"""


def arguments() -> list[hlojit.Array]:
    random = np.random.default_rng(3)
    return [hlojit.Array.from_values(random.integers(-8, 9, (64, 96)) / 8, ROW) for _ in range(2)]


def test_the_same_bits_on_every_back_end_and_for_every_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    given = arguments()
    first, *others = (
        [each.storage for each in hlojit.compile(PROGRAM, backend=backend)(*given)]
        for backend in ("cpu", "reference", "cuda")
    )
    # Each op by itself gives what the fused program does: numbers of roundings follow from the program's text alone.
    barred = PROGRAM.replace(
        "%1 = stablehlo.exponential %0",
        "%b = stablehlo.optimization_barrier %0 : tensor<64x96xs8>\n%1 = stablehlo.exponential %b",
    )
    others.append([each.storage for each in hlojit.compile(barred)(*given)])
    others.append([each.storage for each in hlojit.compile(PROGRAM)(*given)])
    for other in others:
        for ours, theirs in zip(first, other):
            np.testing.assert_array_equal(ours, theirs)
    changed = hlojit.compile(PROGRAM, pass_options={"stochastic-rounding": {"seed": 1}})(*given)
    assert (changed[0].storage != first[0]).mean() > 0.05


def test_the_same_bits_by_all_threads() -> None:
    values = np.random.default_rng(1).uniform(1, 3, 300000)
    found = [
        hlojit.compile(CONVERT.replace("N", "300000"), backend=backend)(values).storage
        for backend in ("cpu", "reference")
    ]
    np.testing.assert_array_equal(*found)


def test_ops_and_iterations_of_loops_differ() -> None:
    """A number that grows by a tenth of its unit a step gets there, on average, which no rounding to nearest would do."""
    text = """func.func @main(%x: tensor<4000xsb16>) -> tensor<4000xsb16> {
      %z = stablehlo.constant dense<0> : tensor<i32>
      %d = stablehlo.constant dense<0.00048828125> : tensor<4000xsb16>
      %w:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<4000xsb16>
      cond { %n = stablehlo.constant dense<64> : tensor<i32>
        %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do { %one = stablehlo.constant dense<1> : tensor<i32>
        %j = stablehlo.add %i, %one : tensor<i32>
        %u = stablehlo.add %v, %d : tensor<4000xsb16>
        stablehlo.return %j, %u : tensor<i32>, tensor<4000xsb16> }
      return %w#1 : tensor<4000xsb16> }"""
    given = hlojit.Array.from_values(np.full(4000, 1.0), BRAIN)
    found = [hlojit.compile(text, backend=backend)(given) for backend in ("cpu", "reference")]
    np.testing.assert_array_equal(found[0].storage, found[1].storage)
    values = found[0].to_values()
    assert abs(values.mean() - (1.0 + 64 / 2048)) < 5 * values.std() / np.sqrt(4000)
    assert len(set(values.tolist())) > 5


def test_a_seed_may_be_an_argument() -> None:
    text = CONVERT.replace("%x: tensor<Nxf64>", "%x: tensor<Nxf64>, %seed: tensor<i64> {hlojit.rounding_seed}").replace(
        "N", "300"
    )
    values = np.random.default_rng(1).uniform(1, 3, 300)
    executable = hlojit.compile(text)
    found = [executable(values, np.int64(seed)).to_values().tolist() for seed in (0, 5, 5)]
    assert (
        found[0] == expected(values, 0, 0) and found[1] == expected(values, 0, 0, iteration=5) == found[2] != found[0]
    )


def test_numbers_that_are_there_stay_and_arrays_are_to_nearest() -> None:
    every = hlojit.Array(np.arange(256, dtype="u1"), ROW)
    kept = np.isfinite(every.to_values())
    values = every.to_values().astype("f8")[kept]
    text = CONVERT.replace("N", str(values.size))
    np.testing.assert_array_equal(hlojit.compile(text)(values).to_values(), values)
    assert hlojit.Array.from_values(np.full(9, 1.03), ROW).to_values().tolist() == [1.0] * 9


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_parameter_of_a_jitted_function_is_its_seed(backend: str) -> None:
    """Of any integer type, by position, by name or by default; one compilation for all seeds."""
    traced = []

    @hlojit.jit(rounding_seed="seed", backend=backend)
    def rounded(pair: Any, x: Any, seed: Any = 3) -> Any:
        traced.append(1)
        return x.astype("s8") + pair[0] * 0, seed + 1

    values = np.random.default_rng(1).uniform(-3, 3, 200)
    pair = [hlojit.Array.from_values(np.zeros(200), ROW), np.float32(1)]
    for seed in (1, 2, -1, -2, 1 << 32, 1 << 40 | 5):
        found, following = rounded(pair, values, seed)
        assert found.to_values().tolist() == expected(values, 0, 0, seed)
        assert following == seed + 1
    assert len(traced) == 1
    assert rounded(pair, values)[0].to_values().tolist() == expected(values, 0, 0, 3)
    for seed in (np.int32(2), np.uint8(2)):
        assert rounded(pair, seed=seed, x=values)[0].to_values().tolist() == expected(values, 0, 0, 2)


def test_no_two_seeds_have_the_same_bits() -> None:
    """-1 had those of 0, and 2**32 those of 1."""

    @hlojit.jit(rounding_seed="seed")
    def rounded(x: Any, seed: Any) -> Any:
        return x.astype("s8")

    values = np.full(200, 1.06)
    drawn = {
        tuple(rounded(values, np.int64(seed)).to_values().tolist()) for seed in (0, -1, 1, -2, 1 << 32, (1 << 32) + 1)
    }
    assert len(drawn) == 6


def test_a_plugins_call_is_rounded_alike_where_a_program_may_be_split() -> None:
    """A part of the program drew bits for what the call had become by then."""

    class Calls:
        @ext.hookimpl
        def hlojit_custom_calls(self) -> list[ext.CustomCall]:
            return [ext.ElementwiseCall("s.more", function=lambda x: x * 1.1)]

    text = """func.func @main(%x: tensor<200xs8>) -> tensor<200xs8> {
      %0 = stablehlo.custom_call @s.more(%x) : (tensor<200xs8>) -> tensor<200xs8>
      %1 = stablehlo.multiply %0, %x : tensor<200xs8>
      return %1 : tensor<200xs8>
    }"""
    x = hlojit.Array.from_values(np.random.default_rng(0).normal(size=200), ROW)
    with ext.using(Calls()):
        found = [hlojit.compile(text, backend=each)(x).storage for each in ("cpu", "reference", ["cpu", "reference"])]
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


def test_what_is_no_seed_is_refused() -> None:
    def double(x: Any, seed: Any = 0) -> Any:
        return x + x

    with pytest.raises(
        hlojit.HlojitError, match=r"rounding_seed='sed'.*double has the parameters x, seed; .*pass_options"
    ):
        hlojit.jit(rounding_seed="sed")(double)
    with pytest.raises(hlojit.HlojitError, match="seed of .*double: a static argument is no seed"):
        hlojit.jit(rounding_seed="seed", static_argnames="seed")(double)
    for seed in (0.5, np.zeros(2, "i8")):
        with pytest.raises(hlojit.HlojitError, match="the seed seed=.* is no integer"):
            hlojit.jit(rounding_seed="seed")(double)(np.ones(2), seed)
    text = CONVERT.replace("N", "4").replace("%x: tensor<4xf64>", "%x: tensor<4xf64> {hlojit.rounding_seed}")
    with pytest.raises(hlojit.HlojitError, match=r"hlojit.rounding_seed is tensor<4xf64>; a seed is an integer"):
        hlojit.compile(text)
