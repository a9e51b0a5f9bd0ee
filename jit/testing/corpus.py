"""Programs that passes and back ends are tried with: small real ones, and random ones.

    for program in corpus(seed=0, count=20):
        program.name, program.module, program.arguments

The real ones stand in ``corpus_programs`` as text; those of each element type and random ones are built by ``corpus_types`` and
``random_programs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hlojit.compiler import parse
from hlojit.ir.graph import Module
from hlojit.testing.arguments import Values, arguments_for
from hlojit.testing.comparison import EXACT, Tolerance, tolerance_for
from hlojit.testing.corpus_programs import PROGRAMS
from hlojit.testing.corpus_types import typed_programs
from hlojit.testing.random_programs import random_module

NDArray = np.ndarray[Any, Any]


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
    """Small real programs, with ordinary numbers."""
    for name, text in PROGRAMS.items():
        yield of_module(name, parse(text, source_name=f"{name}.mlir"), seed=seed, values=Values.ORDINARY)


def random_programs(count: int, *, seed: int = 0) -> Iterator[CorpusProgram]:
    """Random valid programs; arguments hold NaN, infinities, denormals, both zeros and integers' extremes."""
    for number in range(count):
        made = of_module(f"random program {seed}.{number}", random_module(seed * 100_003 + number), seed=seed + number)
        yield replace(made, tolerance=EXACT)


def corpus(*, seed: int = 0, count: int = 20) -> Iterator[CorpusProgram]:
    """The real programs, one for each element type, then ``count`` random ones."""
    yield from real_programs(seed=seed)
    for name, module in typed_programs():
        yield of_module(name, module, seed=seed)
    yield from random_programs(count, seed=seed)
