"""Golden cases: an input program, the passes to run, and the program that must come out.

A file of cases looks like this; the text before the first case is a comment::

    //// case add_zero : canonicalize
    func.func @main(%x: tensor<4xi32>) -> tensor<4xi32> {
      %c = stablehlo.constant dense<0> : tensor<4xi32>
      %0 = stablehlo.add %x, %c : tensor<4xi32>
      return %0 : tensor<4xi32>
    }
    //// becomes
    module {
      func.func @main(%x: tensor<4xi32>) -> tensor<4xi32> {
        return %x : tensor<4xi32>
      }
    }

``pytest --update-golden`` writes what comes out.  A case whose rules are all exact must agree with its input bit for
bit when the reference interpreter runs both on random arguments, others within a tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hlojit.ir.formats import BooleanType, ElementType, IntegerType
from hlojit.ir.graph import Module
from hlojit.ir.interpreter import evaluate
from hlojit.ir.passes.pipeline_text import parse_pipeline
from hlojit.ir.passes.rewriting import Effect, Rule, observe_rules
from hlojit.ir.text.parser import parse_module
from hlojit.ir.text.printer import print_module
from hlojit.ir.types import TensorType, Type
from hlojit.ir.verifier import verify

CASES = Path(__file__).parent / "cases"
SPECIAL_FLOATS = (0.0, -0.0, 1.0, -1.5, float("nan"), float("inf"), float("-inf"), 1e-40, 2.5, -0.75)


@dataclass(frozen=True)
class Case:
    """One case of a file."""

    name: str
    passes: str
    before: str
    after: str

    def parse(self) -> Module:
        """The input program."""
        return parse_module(self.before, source_name=self.name)

    def transform(self) -> tuple[Module, list[Rule]]:
        """The program that comes out, verified after every pass, and the rules that fired."""
        fired: list[Rule] = []
        module = self.parse()
        verify(module)
        with observe_rules(lambda rule, instruction: fired.append(rule)):
            parse_pipeline(self.passes).run(module, verify="always")
        return module, fired


def read_cases(path: Path) -> tuple[str, list[Case]]:
    """The comment at the head of a file and its cases."""
    head, *chunks = path.read_text().split("//// case ")
    cases = []
    for chunk in chunks:
        title, _, text = chunk.partition("\n")
        name, _, passes = title.partition(":")
        before, _, after = text.partition("//// becomes\n")
        cases.append(Case(name.strip(), passes.strip(), before.strip() + "\n", after.strip() + "\n"))
    return head, cases


def write_cases(path: Path, head: str, cases: list[Case]) -> None:
    """Write a file of cases."""
    parts = [head]
    for case in cases:
        parts.append(f"//// case {case.name} : {case.passes}\n{case.before}//// becomes\n{case.after}\n")
    path.write_text("".join(parts).rstrip() + "\n")


def all_cases() -> list[tuple[Path, Case]]:
    """Every case of every file."""
    return [(path, case) for path in sorted(CASES.glob("*.cases")) for case in read_cases(path)[1]]


def arguments_for(module: Module, run: int) -> list[Any]:
    """Arguments of one run: the first runs go through all special values, later ones are random."""
    generator = np.random.default_rng(run)
    arguments = []
    for position, type in enumerate(map(_static, module.main.type.inputs)):
        values = _random_elements(type, generator)
        if run < 4:
            special = _special_elements(type.element_type)
            # Coprime steps bring every special value of one argument together with every one of another.
            indices = (np.arange(type.size) * (2 * position + 1) + run * type.size) % len(special)
            values = special[indices].reshape(type.shape)
        arguments.append(values)
    return arguments


def _static(type: Type) -> TensorType:
    assert isinstance(type, TensorType)
    return type.refined((4,) * type.rank)


def _special_elements(element: ElementType) -> Any:
    if isinstance(element, BooleanType):
        return np.array([False, True])
    if isinstance(element, IntegerType):
        values = [0, 1, element.maximum, element.minimum, 7, element.maximum - 1, 2]
        return np.array(values, dtype=element.storage)
    return np.array(SPECIAL_FLOATS).astype(element.dtype or element.storage)


def _random_elements(type: TensorType, generator: np.random.Generator) -> Any:
    element = type.element_type
    if isinstance(element, BooleanType):
        return generator.integers(0, 2, type.shape).astype(bool)
    if isinstance(element, IntegerType):
        return generator.integers(0 if not element.signed else -9, 10, type.shape).astype(element.storage)
    return generator.normal(size=type.shape).astype(element.dtype or element.storage)


def assert_same_results(before: Module, after: Module, effects: set[Effect]) -> None:
    """Run both programs; exact rewrites must give the same bits (all NaNs count as one)."""
    exact = effects <= {Effect.EXACT}
    for run in range(6):
        # A pass may find sizes that were open before.
        arguments = arguments_for(after, run)
        expected, found = evaluate(before, *arguments), evaluate(after, *arguments)
        for one, other in zip(expected, found, strict=True):
            if exact:
                assert_same_bits(one, other)
            else:
                np.testing.assert_allclose(np.asarray(other, "f8"), np.asarray(one, "f8"), rtol=1e-4, atol=1e-5)


def assert_same_bits(one: Any, other: Any) -> None:
    """Equal dtype, shape and bits; NaNs of any payload are equal."""
    one, other = np.asarray(one), np.asarray(other)
    assert one.dtype == other.dtype and one.shape == other.shape
    different = one.reshape(-1).view(f"V{one.itemsize}") != other.reshape(-1).view(f"V{one.itemsize}")
    if one.dtype.kind not in "biu":
        different &= ~(np.isnan(one.reshape(-1)) & np.isnan(other.reshape(-1)))
    assert not different.any(), f"{one.reshape(-1)[different]} became {other.reshape(-1)[different]}"


def printed(module: Module) -> str:
    """The text of a program as cases hold it."""
    return print_module(module).strip() + "\n"
