"""Programs that passes and back ends are tried with: small real ones, and random ones.

    for program in corpus(seed=0, count=20):
        program.name, program.module, program.arguments

The real ones stand in ``corpus_programs`` as text, those in which attributes decide in ``corpus_attributes``; those of each
element type and random ones are built by ``corpus_types`` and ``random_programs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hlojit.compiler import parse
from hlojit.ir.graph import Module
from hlojit.testing.arguments import Values, arguments_for
from hlojit.testing.comparison import EXACT, Tolerance, tolerance_for
from hlojit.testing.corpus_attributes import ATTRIBUTES
from hlojit.testing.corpus_elements import elements_in, narrowed, retyped
from hlojit.testing.corpus_programs import PROGRAMS as REAL
from hlojit.testing.corpus_types import typed_programs
from hlojit.testing.random_programs import ELEMENTS, random_module

NDArray = np.ndarray[Any, Any]

PROGRAMS = REAL | ATTRIBUTES
"""Texts by name."""


@dataclass(frozen=True)
class CorpusProgram:
    """A program with arguments in storage form, and what its results may differ by."""

    name: str
    module: Module
    arguments: tuple[NDArray, ...]
    tolerance: Tolerance


def of_module(name: str, module: Module, *, seed: int = 0, values: Values = Values.SPECIAL) -> CorpusProgram:
    """A program of a corpus, with arguments that are made up."""
    return CorpusProgram(name, module, tuple(arguments_for(module, seed=seed, values=values)), tolerance_for(module))


def corpus_of(programs: Iterable[CorpusProgram | Module | str], *, seed: int = 0) -> Iterator[CorpusProgram]:
    """A vendor's own programs: those of a corpus as they are, modules and texts with arguments that are made up, twice.

    Among plain numbers stand few edge values, of which sums make NaN of everything where there are many.
    """
    for number, program in enumerate(programs):
        if isinstance(program, CorpusProgram):
            yield program
            continue
        module = parse(program) if isinstance(program, str) else program
        yield of_module(f"program {number}", module, seed=seed, values=Values.SPARSE)
        yield of_module(f"program {number}, edge values", module, seed=seed)


def real_programs(*, seed: int = 0) -> Iterator[CorpusProgram]:
    """Small real programs, and those in which attributes decide, with ordinary numbers."""
    for name, text in PROGRAMS.items():
        yield of_module(name, parse(text, source_name=f"{name}.mlir"), seed=seed, values=Values.ORDINARY)


def random_programs(
    count: int, *, seed: int = 0, elements: Sequence[str] = ELEMENTS, beside: Sequence[str] = ()
) -> Iterator[CorpusProgram]:
    """Random valid programs; arguments hold NaN, infinities, denormals, both zeros and integers' extremes.

    With ``beside`` each is of one of ``elements`` and of one of these.
    """
    for number in range(count):
        chosen = [elements[number % len(elements)], beside[number % len(beside)]] if beside else []
        module = random_module(seed * 100_003 + number, elements=ELEMENTS if beside else elements, chosen=chosen)
        yield replace(of_module(f"random program {seed}.{number}", module, seed=seed + number), tolerance=EXACT)


def corpus(
    *, seed: int = 0, count: int = 20, taken: frozenset[str] | None = None, is_split: bool = False
) -> Iterator[CorpusProgram]:
    """The real programs, one for each element type, then ``count`` random ones.

    ``taken`` are the element types that a back end has: where a program is in others it is written in these, if it can be;
    where programs are split (``is_split``), random ones are half in others.
    """
    for number, program in enumerate(real_programs(seed=seed)):
        yield program if taken is None else in_types(program, taken, number, seed)
    for name, module in typed_programs(taken):
        yield of_module(name, module, seed=seed)
    elements: Sequence[str] = ELEMENTS
    if taken:
        elements = [each for each in ELEMENTS if each in taken] or sorted(taken)
    beside = [each for each in ELEMENTS if taken is not None and each not in taken] if is_split else []
    yield from random_programs(count, seed=seed, elements=elements, beside=beside)


def in_types(program: CorpusProgram, taken: frozenset[str], number: int, seed: int) -> CorpusProgram:
    """A program in element types that are taken, with ordinary arguments; as it is if it fits, or cannot be written so."""
    module = retyped(program.module, taken, number)
    if module is None or module is program.module:
        return program
    name = f"{program.name} in {elements_in(module)}"
    made = of_module(name, module, seed=seed, values=Values.ORDINARY)
    return replace(made, tolerance=narrowed(made.tolerance, module))
