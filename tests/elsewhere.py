"""The suites on another back end: ``HLOJIT_CUDA=simulator pytest --backend cuda --every 4 tests/tracing tests/ops``.

Programs that tests compile without naming a back end are compiled for the one given, and so are those of cases that name
the CPU by a parameter.  What takes no program - the interpreter in ``tests/ops``, fusions in ``tests/lowering``, functions in
``tests/math`` - is put into one.  The oracles stay what they are: tables by hand, NumPy, JAX, the interpreter.

``--every N`` keeps one case of N in every *stratum*: test function, op, family of the element type, kind of the shape.  The
sample depends on the order of the cases only, so it is the same in every run.  Where the back end refuses a program, naming
op and reason, the case counts as one that is expected to fail; anything else that goes wrong is a failure.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hlojit.compiler import load_program
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.blocks import clone_instruction
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Block, Function, Instruction, Module
from hlojit.ir.ops.definition import OpDefinition, Pointwise, op
from hlojit.ir.types import tensor

Array = np.ndarray[Any, Any]

_NAMED = "cpu"
"""The back end that cases name where they compare the compiled program with something else."""
_ELEMENT = re.compile(r"(?:u?i|f|bf|complex<f)\d+\w*>?")
_FAMILIES = (
    (r"i1", "predicate"),
    (r"u?i[248]", "narrow integer"),
    (r"u?i\d+", "integer"),
    (r"f32|f64", "float"),
    (r"b?f16", "half"),
    (r"complex.*", "complex"),
    (r".*", "small float"),
)

# ------------------------------------------------------------------------------------------------------------- sample


def family(element: str) -> str:
    """The family of an element type."""
    return next(name for pattern, name in _FAMILIES if re.fullmatch(pattern, element))


def kind_of_shape(shape: Sequence[int]) -> str:
    """What is special about a shape."""
    if not shape or 0 in shape:
        return "empty" if shape else "scalar"
    inner = "" if shape[-1] % 4 else ", aligned"
    return f"{'one element' if max(shape) == 1 else 'line' if len(shape) == 1 else 'many dimensions'}{inner}"


def _class_of(value: Any) -> str:
    if isinstance(value, str):
        return family(value) if _ELEMENT.fullmatch(value) else value
    if isinstance(value, tuple) and all(isinstance(extent, int) for extent in value):
        return kind_of_shape(value)
    return type(value).__name__


def stratum(item: Any) -> tuple[str, ...]:
    """What a case has in common with those that one of them stands for."""
    call = getattr(item, "callspec", None)
    parameters = sorted(call.params.items()) if call else ()
    return (item.nodeid.partition("[")[0], *(_class_of(value) for _, value in parameters))


def sampled(items: Sequence[Any], every: int) -> list[Any]:
    """One case of ``every`` of each stratum, the first of them always."""
    seen: dict[tuple[str, ...], int] = {}
    kept = []
    for item in items:
        key = stratum(item)
        number = seen[key] = seen.get(key, -1) + 1
        if number % every == 0:
            kept.append(item)
    return kept


# --------------------------------------------------------------------------------------------------------- redirection


def module_of(instruction: Instruction) -> Module:
    """A program of one instruction whose operands are arguments."""
    module = Module()
    types = [value.type for value in instruction.operands]
    main = module.add_function(Function("main", types, [value.type for value in instruction.results]))
    made = clone_instruction(instruction, dict(zip(instruction.operands, main.body.arguments)))
    main.body.append(made)
    main.body.append(Instruction(op("func.return"), made.results, ()))
    return module


def run_instruction(instruction: Instruction, *arrays: Any) -> list[Array]:
    """Run one instruction as it is, after all passes."""
    backend = registry().backend(os.environ["HLOJIT_BACKEND"])
    module = module_of(instruction)
    module.freeze()
    results = load_program(backend.compile(module, CompileOptions()), backend)(*arrays)
    return list(results) if isinstance(results, tuple) else [results]


def evaluate(module: Module, *arrays: Any) -> tuple[Any, ...]:
    """In the place of the interpreter."""
    import hlojit

    results = hlojit.compile(module)(*arrays)
    return results if isinstance(results, tuple) else (results,)


class ScalarFunction:
    """In the place of ``tools/vector_function.py``: an elementwise op whose rule is a function of ``hlojit.ir.scalar``."""

    def __init__(self, name: str, kind: str, lanes: int | None = None, operands: int = 1):
        from hlojit.ir.scalar import functions

        rule: Callable[..., Any] = getattr(functions, name)
        self.record = OpDefinition(f"test.{name}", lowering=Pointwise(lambda b, call, *values: rule(b, *values)))
        self.kind, self.operands = kind, operands

    def __call__(self, *inputs: Array) -> Array:
        """The function of every element."""
        type = tensor((inputs[0].size,), self.kind)
        instruction = Instruction(self.record, Block([type] * self.operands).arguments, [type])
        (result,) = run_instruction(instruction, *[np.ravel(each) for each in inputs])
        return result


_REPLACED = {"tests/ops": ("evaluate", evaluate), "tests/math": ("VectorFunction", ScalarFunction)}


def redirect(item: Any, backend: str) -> bool:
    """Make a case run on the back end; whether that can be done."""
    call = getattr(item, "callspec", None)
    if call is not None and "backend" in call.params:
        if call.params["backend"] != _NAMED:
            return False
        call.params["backend"] = backend
    module = getattr(item, "module", None)
    for folder, (name, replacement) in _REPLACED.items():
        if item.nodeid.startswith(folder) and hasattr(module, name):
            setattr(module, name, replacement)
    return True


# -------------------------------------------------------------------------------------------------------------- hooks

_REFUSED = "refused: "

processors_only = pytest.mark.skipif(
    os.environ.get("HLOJIT_BACKEND", "cpu") != "cpu",
    reason="of memory and exceptions of a back end whose programs run in the caller's memory",
)
"""For cases that ask what only calls on a processor promise: no copies, donated memory, exceptions by their own class."""


def refusal(error: BaseException | None, backend: str) -> str:
    """What the back end refused and why, if that is what an error is about: its own, its cause's, another process's."""
    while error is not None:
        if isinstance(error, UnsupportedError) and error.backend == backend and error.op and error.reason:
            return f"{error.op}: {error.reason}"
        told = re.search(rf"UnsupportedError: (\S+) is not supported by the back end '{backend}': (.+)", str(error))
        if told:
            return f"{told[1]}: {told[2]}"
        error = error.__cause__
    return ""


class Elsewhere:
    """The hooks of pytest that ``--backend`` adds."""

    def __init__(self, backend: str, every: int):
        self.backend, self.every = backend, every
        os.environ["HLOJIT_BACKEND"] = backend

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Take the sample, and make its cases run on the back end.  Cases of ``tests/simulator`` are one already."""
        whole = [item for item in items if item.nodeid.startswith("tests/simulator")]
        others = [item for item in items if not item.nodeid.startswith("tests/simulator")]
        kept = whole + sampled([item for item in others if redirect(item, self.backend)], self.every)
        chosen = set(map(id, kept))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """A refusal is expected."""
        try:
            yield
        except Exception as error:
            refused = refusal(error, self.backend)
            if not refused:
                raise
            pytest.xfail(_REFUSED + refused)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What was refused, and how often."""
        reports = terminalreporter.stats.get("xfailed", ())
        refused = Counter(report.wasxfail.partition(_REFUSED)[2] for report in reports if _REFUSED in report.wasxfail)
        terminalreporter.section(f"refused by the back end {self.backend!r}")
        for reason, count in refused.most_common():
            terminalreporter.line(f"{count:5}  {reason}")
