"""Integers of one bit in ``arith``: MLIR's definitions, where true is -1 to an op that knows a sign and sums wrap round."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest

LEFT, RIGHT = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


BINARY: dict[str, Any] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "maxsi": lambda a, b: max(signed(a, 1), signed(b, 1)),
    "minsi": lambda a, b: min(signed(a, 1), signed(b, 1)),
    "maxui": max,
    "minui": min,
}
PREDICATES: dict[str, Any] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "slt": lambda a, b: signed(a, 1) < signed(b, 1),
    "sle": lambda a, b: signed(a, 1) <= signed(b, 1),
    "sgt": lambda a, b: signed(a, 1) > signed(b, 1),
    "sge": lambda a, b: signed(a, 1) >= signed(b, 1),
    "ult": lambda a, b: a < b,
    "uge": lambda a, b: a >= b,
}


def run(backend: str, body: str, result: str, *values: Any) -> list[Any]:
    names = {"bool": "i1", "int8": "i8", "int32": "i32", "float32": "f32"}
    arguments = ", ".join(f"%{name}: tensor<4x{names[value.dtype.name]}>" for name, value in zip("ab", values))
    text = (
        f"func.func @main({arguments}) -> tensor<4x{result}> {{ %r = arith.{body}\n return %r : tensor<4x{result}> }}"
    )
    answer: list[Any] = np.asarray(hlojit.compile(text, backend=backend)(*values)).tolist()
    return answer


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("op", BINARY)
def test_arithmetic(op: str, backend: str) -> None:
    expected = [bool(BINARY[op](int(a), int(b)) & 1) for a, b in zip(LEFT, RIGHT)]
    assert run(backend, f"{op} %a, %b : tensor<4xi1>", "i1", LEFT, RIGHT) == expected


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("op", ["divsi", "divui", "remsi", "remui"])
def test_division(op: str, backend: str) -> None:
    """By the only divisor that is not 0; what a division by 0 gives is the same on every back end."""
    quotient = run(backend, f"{op} %a, %b : tensor<4xi1>", "i1", LEFT, RIGHT)
    assert quotient[1::2] == ([False, True] if op.startswith("div") else [False, False])
    assert quotient == run("reference", f"{op} %a, %b : tensor<4xi1>", "i1", LEFT, RIGHT)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("predicate", PREDICATES)
def test_comparison(predicate: str, backend: str) -> None:
    expected = [PREDICATES[predicate](int(a), int(b)) for a, b in zip(LEFT, RIGHT)]
    assert run(backend, f"cmpi {predicate}, %a, %b : tensor<4xi1>", "i1", LEFT, RIGHT) == expected


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_conversions(backend: str) -> None:
    numbers = np.array([2, 3, -1, -128], np.int8)
    for op, result, value, expected in (
        ("extsi", "i32", LEFT, [0, 0, -1, -1]),
        ("extui", "i32", LEFT, [0, 0, 1, 1]),
        ("sitofp", "f32", LEFT, [0.0, 0.0, -1.0, -1.0]),
        ("trunci", "i1", numbers, [False, True, True, False]),
        ("extui", "i32", numbers, [2, 3, 255, 128]),
        ("fptosi", "i1", np.array([0, -1, 0.5, -1.5], np.float32), [False, True, False, True]),
    ):
        source = {"bool": "i1", "int8": "i8", "float32": "f32"}[value.dtype.name]
        answer = run(backend, f"{op} %a : tensor<4x{source}> to tensor<4x{result}>", result, value)
        assert answer == expected, op
        if op == "sitofp":
            assert not np.signbit(answer[0])
