"""Programs from JAX: read, printed, and read again by us and by MLIR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hlojit.ir.compare import first_difference
from hlojit.ir.location import CallSiteLocation, FileLocation, NameLocation
from hlojit.ir.text.parser import parse_module
from hlojit.ir.text.printer import print_module

from . import programs

FORMS: tuple[dict[str, Any], ...] = ({}, {"generic": True}, {"locations": True})


@pytest.mark.parametrize("name", programs.NAMES)
def test_program_is_the_same_after_print_and_parse(name: str) -> None:
    """In each of the printer's forms."""
    module = parse_module(programs.text_of(name))
    for options in FORMS:
        again = parse_module(print_module(module, **options))
        assert first_difference(module, again) is None


@pytest.mark.parametrize("name", programs.NAMES)
def test_program_is_the_same_to_mlir(name: str, mlir_reads: Callable[[str], str]) -> None:
    """MLIR prints the same text for JAX's program and for ours."""
    text = programs.text_of(name)
    expected = mlir_reads(text)
    for options in FORMS:
        assert mlir_reads(print_module(parse_module(text), **options)) == expected


def test_printing_is_a_fixed_point() -> None:
    """What was printed prints as it stands."""
    text = print_module(parse_module(programs.text_of("control")))
    assert print_module(parse_module(text)) == text


def test_locations_of_jax_are_kept() -> None:
    """A name around a call site around this repository's file."""
    module = parse_module(programs.text_of("grad with locations"))
    found: list[Any] = [instruction.location for instruction in module.walk()]
    assert any(isinstance(location, NameLocation) and "tanh" in location.name for location in found)
    stack, files = found, set()
    while stack:
        location = stack.pop()
        if isinstance(location, NameLocation):
            stack.append(location.child)
        elif isinstance(location, CallSiteLocation):
            stack += [location.callee, location.caller]
        elif isinstance(location, FileLocation):
            files.add(location.file.rsplit("/", 1)[-1])
    assert "programs.py" in files


def test_locations_survive_printing() -> None:
    """With locations printed, they come back equal."""
    module = parse_module(programs.text_of("control with locations"))
    again = parse_module(print_module(module, locations=True))
    assert [i.location for i in module.walk()] == [i.location for i in again.walk()]


def test_without_locations_an_op_is_where_it_stands_in_the_text() -> None:
    """Source name, line and column."""
    body = "   %0 = stablehlo.abs %a : tensor<f32>\n return %0 : tensor<f32>"
    text = f"func.func @main(%a: tensor<f32>) -> tensor<f32> {{\n{body}\n}}"
    first, last = parse_module(text, source_name="f.mlir").main.body
    assert first.location == FileLocation("f.mlir", 2, 4)
    assert last.location == FileLocation("f.mlir", 3, 2)
