"""Random programs of quantized numbers: the CPU and the reference give the same bits."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import Run
from .oracle import LIMITS, Quantization, quantizations, stored


class Program:
    """Lines of a program, and the values that are there: names, shapes, types."""

    def __init__(self, draw: st.DrawFn):
        self.draw = draw
        self.storage = draw(st.sampled_from(["i8", "ui8", "i4", "i16"]))
        self.expressed = draw(st.sampled_from(["f32", "f32", "bf16", "f16"]))
        self.lines: list[str] = []
        self.values: list[tuple[str, tuple[int, ...], Quantization]] = []
        self.arrays: list[np.ndarray] = []
        self.arguments: list[str] = []

    def type(self, zero: int | None = None) -> Quantization:
        """Parameters of a new type."""
        return self.draw(quantizations(self.storage, self.expressed, zero=zero, limits=LIMITS[self.storage]))

    def argument(self, *shape: int, zero: int | None = None) -> None:
        type = self.type(zero)
        name = f"%a{len(self.arguments)}"
        self.arrays.append(stored(self.draw, type, *shape))
        self.arguments.append(f"{name}: {type.type(*shape)}")
        self.values.append((name, shape, type))

    def add(self, call: str, operands: list[str], shape: tuple[int, ...], type: Quantization) -> None:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {call} : ({', '.join(operands)}) -> {type.type(*shape)}")
        self.values.append((name, shape, type))

    def step(self) -> None:
        """One op on values that are there."""
        name, shape, type = self.draw(st.sampled_from(self.values))
        own = type.type(*shape)
        same = [each for each in self.values if each[1] == shape]
        other, _, its = self.draw(st.sampled_from(same))
        result = self.draw(st.sampled_from([type, self.type()]))
        kind = self.draw(
            st.sampled_from(["binary", "unary", "transpose", "requantize", "dot", "reduce", "slice", "pad"])
        )
        if kind == "binary":
            op = self.draw(st.sampled_from(["add", "subtract", "multiply", "maximum", "minimum"]))
            self.add(f'"stablehlo.{op}"({name}, {other})', [own, its.type(*shape)], shape, result)
        elif kind == "unary":
            op = self.draw(st.sampled_from(["abs", "negate", "floor", "sign", "round_nearest_even"]))
            self.add(f'"stablehlo.{op}"({name})', [own], shape, result)
        elif kind == "transpose":
            self.add(f'"stablehlo.transpose"({name}) {{permutation = array<i64: 1, 0>}}', [own], shape[::-1], type)
        elif kind == "requantize":
            self.add(f'"stablehlo.uniform_quantize"({name})', [own], shape, self.type())
        elif kind == "reduce" and shape[0] > 1:
            self.reduce(name, shape, type)
        elif kind == "slice" and shape[1] > 1:
            bounds = f"start_indices = array<i64: 0, 1>, limit_indices = array<i64: {shape[0]}, {shape[1]}>"
            call = f'"stablehlo.slice"({name}) {{{bounds}, strides = array<i64: 1, 1>}}'
            self.add(call, [own], (shape[0], shape[1] - 1), type)
        elif kind == "dot":
            self.dot(name, shape, type, result)

    def reduce(self, name: str, shape: tuple[int, ...], type: Quantization) -> None:
        op = self.draw(st.sampled_from(["add", "maximum"]))
        scalar, zero = type.type(), f"%z{len(self.lines)}"
        storage = self.storage
        self.lines.append(
            f'  {zero} = "stablehlo.constant"() <{{value = dense<{type.zeros[0]}> : tensor<{storage}>}}> : () -> {scalar}'
        )
        body = f"""({{
  ^bb0(%x: {scalar}, %y: {scalar}):
    %s = "stablehlo.{op}"(%x, %y) : ({scalar}, {scalar}) -> {scalar}
    "stablehlo.return"(%s) : ({scalar}) -> ()
  }}) {{dimensions = array<i64: 0>}}"""
        reduced = f"%r{len(self.lines)}"
        row = type.type(shape[1])
        self.lines.append(
            f'  {reduced} = "stablehlo.reduce"({name}, {zero}) {body} : ({type.type(*shape)}, {scalar}) -> {row}'
        )
        self.add(f'"stablehlo.reshape"({reduced})', [row], (1, shape[1]), type)

    def dot(self, name: str, shape: tuple[int, ...], type: Quantization, result: Quantization) -> None:
        columns = self.draw(st.integers(1, 6))
        self.argument(shape[1], columns, zero=0)
        weights, its, kind = self.values.pop()
        if any(kind.zeros):
            return
        numbers = "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>"
        call = f'"stablehlo.dot_general"({name}, {weights}) <{{dot_dimension_numbers = {numbers}}}>'
        self.add(call, [type.type(*shape), kind.type(*its)], (shape[0], columns), result)

    def text(self) -> str:
        """The program, which returns its last values."""
        chosen = self.values[-3:]
        types = ", ".join(type.type(*shape) for _, shape, type in chosen)
        lines = "\n".join(self.lines)
        returned = ", ".join(name for name, _, _ in chosen)
        return (
            f"func.func @main({', '.join(self.arguments)}) -> ({types}) {{\n{lines}\n  return {returned} : {types}\n}}"
        )


@settings(max_examples=9, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_programs(run: Run, data: st.DataObject) -> None:
    program = Program(data.draw)
    rows, columns = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    for _ in range(2):
        program.argument(rows, columns)
    for _ in range(data.draw(st.integers(1, 7))):
        program.step()
    run(program.text(), *program.arrays)
