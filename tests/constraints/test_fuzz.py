"""Programs that break a constraint, mutated: whatever the text, parser and verifier give a program, faults or an error with its place."""

from __future__ import annotations

import re
import time

import pytest
from hlojit.ir.compare import structurally_equal
from hlojit.ir.errors import HlojitError, ParseError
from hlojit.ir.text.parser import parse_module
from hlojit.ir.text.printer import print_module
from hlojit.ir.verifier import collect_faults
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .dialect_rows import ROWS as DIALECT_ROWS
from .internal_rows import ROWS as INTERNAL_ROWS
from .programs import text_of
from .quantized_rows import ROWS as QUANTIZED_ROWS
from .rows import ROWS

TEXTS = [text_of(row) for row in (*ROWS, *DIALECT_ROWS, *INTERNAL_ROWS, *QUANTIZED_ROWS)]
TOKEN = re.compile(r"[\w.$%#@!]+|\s+|.")
WORDS = sorted({token for text in TEXTS for token in TOKEN.findall(text) if token.strip()})
SPECIAL = [
    "-1", "0", "9223372036854775807", "-9223372036854775808", "99999999999999999999", "*", "?", "tensor<*xf32>", "1.0e400",
    "tensor<?x?xf32, #stablehlo.bounds<3, ?>>", "!stablehlo.future<tensor<f32>>", "memref<2xf32>", "index", "()", "[]", "{}", "<>",
    "array<i64>", "dense<1>", "dense<> : tensor<0x2xi64>", "dense<0> : tensor<9x9x9x99999999xi64>", "0x7F", '"', "true", "unit",
    "[[]]", "@main", "%0", "#stablehlo.mesh<axes = []>", "tensor<2x!quant.uniform<i8:f32:0, {0.5, 0.5}>>", "complex<f32>", "none",
    "tensor<0xf32>", "tuple<>", "\x00", "\u00e9", "//", "tensor<f32", "^bb0", "loc(", "\\",
]  # fmt: skip
LONGEST = 5.0
"""Seconds that a text of this size may take; it is read in a few milliseconds."""


@st.composite
def mutated(draw: st.DrawFn) -> str:
    tokens = TOKEN.findall(draw(st.sampled_from(TEXTS)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(tokens) - 1, 0)))
        kind = draw(st.sampled_from(["delete", "word", "special", "insert", "repeat", "exchange"]))
        if kind == "delete":
            del tokens[place : place + 1]
        elif kind == "word":
            tokens[place : place + 1] = [draw(st.sampled_from(WORDS))]
        elif kind == "special":
            tokens[place : place + 1] = [draw(st.sampled_from(SPECIAL))]
        elif kind == "insert":
            tokens.insert(place, draw(st.sampled_from(SPECIAL)))
        elif kind == "repeat":
            tokens[place:place] = tokens[place : place + draw(st.integers(1, 20))]
        elif tokens:
            other = draw(st.integers(0, len(tokens) - 1))
            tokens[place], tokens[other] = tokens[other], tokens[place]
    return "".join(tokens)


def check(text: str, *, allow_unregistered: bool) -> None:
    """Read, check, print and read again."""
    begin = time.perf_counter()
    try:
        module = parse_module(text, source_name="fuzz.mlir", allow_unregistered=allow_unregistered)
    except HlojitError as error:
        assert isinstance(error, ParseError)
        assert re.match(r"fuzz\.mlir:\d+:\d+: ", str(error)), str(error)
        module = None
    if module is not None:
        for fault in collect_faults(module, allow_unregistered=allow_unregistered):
            assert fault.message
        for generic in (False, True):
            spelled = print_module(module, generic=generic)
            assert structurally_equal(parse_module(spelled, allow_unregistered=True), module), spelled
    assert time.perf_counter() - begin < LONGEST


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated(), st.booleans())
def test_mutated_programs(text: str, allow_unregistered: bool) -> None:
    check(text, allow_unregistered=allow_unregistered)


@pytest.mark.parametrize(
    "text",
    [
        "func.func @main() { %c = stablehlo.constant dense<0.0e+> : tensor<512x1x6400x6400xf32> func.return }",
        'func.func @f(%a: tensor<f32>) { %0 = "stablehlo.reduce_precision"(%a) {exponent_bits = 1 : i32, mantissa_bits = -1 : i32}'
        " : (tensor<f32>) -> tensor<f32> func.return }",
        "func.func @f(%a: tensor<2xf32>, %b: tensor<2x3xf32>) { %0 = chlo.broadcast_add %a, %b {broadcast_dimensions = "
        "array<i64: 7>} : (tensor<2xf32>, tensor<2x3xf32>) -> tensor<2x3xf32> func.return }",
        'm.f() {// "a comment" with } and ) \n %x = "quoted // text" \n}\n',
        "func.func @f(" + "tuple<" * 5000 + ")",
        "func.func @f() { %0 = stablehlo.constant dense<" + "[" * 5000 + " : tensor<f32> return }",
        'func.func @f() { %r:1 = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> (() -> (tensor<?xf32>)) func.return }',
    ],
    ids=[
        "huge splat",
        "negative bits",
        "broadcast to nowhere",
        "comment with strings",
        "deep type",
        "deep constant",
        "function type",
    ],
)
def test_programs_that_fuzzing_found(text: str) -> None:
    check(text, allow_unregistered=False)


TYPE = re.compile(r"(?:tensor|tuple|complex|!stablehlo\.\w+)<[^<>]*(?:<[^<>]*>[^<>]*)*>|\b(?:u?i\d+|b?f\d+|index)\b")
STRANGE = [
    "tensor<i32>", "i32", "index", "tensor<2xf32>", "tensor<?xf32>", "tensor<*xf32>", "tuple<tensor<f32>>", "none",
    "!stablehlo.token", "complex<f32>", "(() -> (tensor<?xf32>))", "() -> tensor<f32>", "tensor<0xindex>", "tensor<2x!quant.uniform<i8:f32, 0.5:0>>",
]  # fmt: skip


@pytest.mark.parametrize("turn", range(len(STRANGE)))
def test_programs_of_strange_types_print_and_read_again(turn: int) -> None:
    """The printer also has programs that no verifier has seen: a form that leaves types out must not take them."""
    for place, text in enumerate(TEXTS):
        generic = print_module(parse_module(text, allow_unregistered=True), generic=True)
        for number, type in enumerate(sorted({match.group() for match in TYPE.finditer(generic)})):
            check(generic.replace(type, STRANGE[(turn + place + number) % len(STRANGE)]), allow_unregistered=True)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated(), st.booleans())
def test_many_mutated_programs(text: str, allow_unregistered: bool) -> None:
    check(text, allow_unregistered=allow_unregistered)
