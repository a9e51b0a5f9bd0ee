"""Mutated text gives a program or an error of ours, nothing else."""

from __future__ import annotations

from hlojit.ir.compare import structurally_equal
from hlojit.ir.errors import HlojitError
from hlojit.ir.text.parser import parse_module
from hlojit.ir.text.printer import print_module
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import programs

TOKENS = [
    *"{}()<>[]\",:=#!%@^x?-.|\n\x00\\é0", "%0", "->", "99999999999999999999", "dense<", "tensor<", "loc(", "#loc", "//",
    "stablehlo.", "0x", "true", "^bb0", "i32", "f32", "1e999",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A program of JAX with a few pieces deleted, inserted, repeated or moved."""
    text = programs.text_of(
        draw(st.sampled_from(["scan", "constants", "convolution", "collective", "sharded", "exported"]))
    )
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 1, 2, 5, 20, 200])))
        kind = draw(st.sampled_from(["insert", "repeat", "move", "line"]))
        if kind == "insert":
            text = text[:start] + draw(st.sampled_from([*TOKENS, ""])) + text[end:]
        elif kind == "repeat":
            text = text[:end] + text[start:]
        elif kind == "move":
            target = draw(st.integers(0, len(text)))
            text = text[:start] + text[end:target] + text[start:end] + text[max(end, target) :]
        else:
            lines = text.split("\n")
            lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(lines)))
            text = "\n".join(lines)
    return text


def _round_trip_or_error(text: str) -> None:
    try:
        module = parse_module(text)
    except HlojitError as error:
        str(error)
        return
    assert structurally_equal(parse_module(print_module(module)), module)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated())
def test_mutated_programs(text: str) -> None:
    """What still parses also survives printing."""
    _round_trip_or_error(text)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*TOKENS, "func.func @f(", "return", "module", "stablehlo.constant ", "{-#", "#-}"])))
def test_random_tokens(tokens: list[str]) -> None:
    """Text from nothing."""
    _round_trip_or_error("".join(tokens))


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet="[]()0123456789-+.eExtrufalsAF, \n\"'", max_size=40),
    st.sampled_from(["f32", "i4", "i1", "ui8", "complex<f32>"]),
)
def test_random_elements(body: str, element: str) -> None:
    """Constants from nothing."""
    _round_trip_or_error(
        f"func.func @f() {{\n %0 = stablehlo.constant dense<{body}> : tensor<2x{element}>\n return\n}}"
    )
