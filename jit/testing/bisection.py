"""``bisect``: which pass, rule, kernel or plugin makes a program wrong, or fail.

    found = bisect(text, backend="cpu")
    print(found)            # rule subtract_zero of algebraic-simplifier ..., and the smallest program that shows it

The program is made smaller first.  Then the passes run one by one, and after each of them the reference interpreter says what
the program means now: the first pass after which it means something else is the guilty one, and of its rewrite rules the one
whose firing made the difference.  If all passes kept the meaning, the back end compiles the instructions that are left one by
one.  Besides, the program is compiled without each of the plugins.  What may crash or never end runs in a child process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hlojit.compile_options import checked_options
from hlojit.compiler import default_pipeline, generate, parse
from hlojit.extensions import Backend, CompileOptions, registry
from hlojit.extensions.calls.elementwise_calls import one_compilation
from hlojit.ir.builder import build_function
from hlojit.ir.environment import OPS, current, scope_for, tables
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Instruction, Module, Value, clone_instruction
from hlojit.ir.interpreter import Interpreter
from hlojit.ir.ops.block_arithmetic import block_format
from hlojit.ir.ops.internal import is_fusion
from hlojit.ir.passes.instruction_fusion import InstructionFusion
from hlojit.ir.passes.pass_manager import Pass, PassPipeline
from hlojit.ir.passes.rewriting import limited_rules
from hlojit.ir.scalar.arrays import to_compute, to_storage
from hlojit.ir.types import TensorType
from hlojit.placement import named_backend
from hlojit.testing.arguments import SETS
from hlojit.testing.comparison import Difference, Tolerance, first_difference, lost_numbers, tolerance_for
from hlojit.testing.execution import (
    Outcome,
    execute,
    execute_isolated,
    interpret,
    isolated,
    meaning_of,
    result_types,
    run_executable,
)
from hlojit.testing.narrowing import TRIES
from hlojit.testing.reduction import reduce_with_arguments
from hlojit.testing.runs import Fault, failure, unequal
from hlojit.testing.script import script
from hlojit.testing.signatures import arguments_of, of_parts

NDArray = np.ndarray[Any, Any]
Progress = Callable[[str], None]
FUSION = InstructionFusion.name


@dataclass(frozen=True)
class Bisection:
    """Who is guilty: ``kind`` is pass, rule, kernel, plugin or back end, ``name`` which; ``package`` brought it, if a plugin did.

    ``problem`` is what is wrong, ``evidence`` what was tried, ``module`` with ``arguments`` the smallest program that shows it.
    """

    kind: str
    name: str
    package: str
    problem: str
    evidence: tuple[str, ...]
    module: Module = field(repr=False)
    arguments: tuple[NDArray, ...] = field(repr=False)
    backend: str = "cpu"

    @property
    def script(self) -> str:
        """A Python script to paste that shows the problem."""
        return script(self.module, self.arguments, self.backend)

    def __str__(self) -> str:
        of = f" of {self.package}" if self.package else ""
        lines = [f"{self.kind} {self.name}{of}: {self.problem}", *(f"  - {each}" for each in self.evidence)]
        return "\n".join([*lines, "", self.script])


def bisect(
    program: str | Module,
    *,
    backend: str = "cpu",
    against: str = "reference",
    arguments: Sequence[NDArray] | None = None,
    tolerance: Tolerance | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    seed: int = 0,
    seconds: float = 60.0,
    progress: Progress | None = None,
) -> Bisection:
    """Find what makes ``program`` wrong on a back end, beside what another one computes.

    ``arguments`` are arrays in storage form, ``hlojit.Array``s where the type is in blocks (default: several sets, made up from
    ``seed``: numbers about one with few edge values, with many, and small integers); ``tolerance`` says what counts as equal
    (default: the same bits where the specification leaves no choice).  Raises ``HlojitError`` if nothing is wrong, or if
    nothing could be compared.  ``seconds`` bounds the time for making the program smaller.
    """
    whole = parse(program) if isinstance(program, str) else program
    given = [arguments_of(whole, seed, values) for values in SETS] if arguments is None else [arguments]
    tried = [of_parts(whole, each) for each in given]
    chosen = tolerance_for(tried[0][0]) if tolerance is None else tolerance
    search = _Search(backend, against, chosen, checked_options(options, None, None), progress or (lambda text: None))
    return search.run(tried, seconds)


@dataclass
class _Search:
    backend: str
    against: str
    tolerance: Tolerance
    options: CompileOptions
    progress: Progress
    in_child: bool = False
    evidence: list[str] = field(default_factory=list)

    def run(self, tried: Sequence[tuple[Module, list[NDArray]]], seconds: float) -> Bisection:
        """The first of the sets of arguments that shows something."""
        self.in_child = True
        compared = _Compared()
        for module, arrays in tried:
            outcome, expected, problem = self.problem(module, arrays)
            if problem is not None:
                return self._found(module, arrays, outcome, problem, seconds)
            compared.note(module, expected)
        raise HlojitError(compared.verdict(self.backend, self.against))

    def _found(
        self, module: Module, arrays: list[NDArray], outcome: Outcome, problem: Fault, seconds: float
    ) -> Bisection:
        self.in_child = outcome.kind in ("crash", "endless")

        def same(module: Module, arrays: Sequence[NDArray]) -> bool:
            _, _, fault = self.problem(module, arrays)
            return fault is not None and fault.is_like(problem)

        if not any(same(module, arrays) for _ in range(TRIES)):
            raise HlojitError(
                f"not reproducible: {problem.text}, and not in {TRIES} more runs with the same arguments; what comes and goes "
                "depends on memory that nobody has written, on time or on threads"
            )
        self.progress(f"{problem.text}; making the program smaller")
        small, fewer = reduce_with_arguments(module, arrays, same, seconds=seconds, progress=self.progress)
        again, meant, said = self.problem(small, fewer)
        if said is not None:
            module, arrays, outcome, problem = small, fewer, again, said
        else:
            self.evidence.append("it comes and goes: the program that was made smaller is right now and then")
        expected = meant if said is not None else self.expected(module, arrays)
        kind, name, package = self.guilty(module, arrays, outcome, expected)
        plugins = list(self.plugins_without_which_it_is_right(module, arrays))
        if plugins and not package:
            package = ", ".join(f"plugin {each!r}" for each in plugins)
        if plugins and kind == "back end":
            kind, name, package = "plugin", ", ".join(plugins), ""
        return Bisection(
            kind, name, package, problem.text, tuple(self.evidence), module, tuple(arrays), backend=self.backend
        )

    # --------------------------------------------------------------- problems

    def problem(self, module: Module, arrays: Sequence[NDArray]) -> tuple[Outcome, Outcome, Fault | None]:
        """What the back end makes of a program, what is expected, and what is wrong (None: nothing)."""
        expected = self.expected(module, arrays)
        if not expected.is_good:
            return expected, expected, None  # nobody knows what is right
        found = (execute_isolated if self.in_child else execute)(module, self.backend, arrays, self.options)
        return found, expected, self.fault(module, found, expected)

    def expected(self, module: Module, arrays: Sequence[NDArray]) -> Outcome:
        meaning = meaning_of(module, arrays)
        if self.against == "reference" or meaning.kind == "endless":
            return meaning
        return execute(module, self.against, arrays)

    def fault(self, module: Module, found: Outcome, expected: Outcome) -> Fault | None:
        if not found.is_good:
            return failure(found)
        difference = self.difference(module, found, expected)
        return unequal(difference) if difference is not None else None

    def difference(self, module: Module, found: Outcome, expected: Outcome) -> Difference | None:
        assert found.results is not None
        assert expected.results is not None
        return first_difference(found.results, expected.results, result_types(module), self.tolerance)

    # ----------------------------------------------------------------- guilty

    def guilty(
        self, module: Module, arrays: Sequence[NDArray], outcome: Outcome, expected: Outcome
    ) -> tuple[str, str, str]:
        """Kind, name and package of what makes the program wrong."""
        chosen = named_backend(self.backend)
        if not outcome.is_good:
            return self._guilty_of_failure(module, arrays, chosen, outcome)
        before, lowered = module, module
        for pass_, package, changed in self._lowering(module, chosen):
            before, lowered = lowered, changed
            meaning = interpret(changed, arrays)
            if meaning.is_good and self.difference(module, meaning, expected) is not None:
                self.evidence.append(f"before {pass_.name} the program means what it should, behind it no more")
                rule = self._guilty_rule(before, arrays, pass_, expected)
                if rule:
                    return "rule", f"{rule} of {pass_.name}", package
                return "pass", pass_.name, package
        self.evidence.append("every pass keeps the program's meaning")
        return self._guilty_kernel(module, lowered, arrays, chosen)

    def _guilty_of_failure(
        self, module: Module, arrays: Sequence[NDArray], chosen: Backend, outcome: Outcome
    ) -> tuple[str, str, str]:
        """Where a compilation or a run ended: in a pass, or behind them."""
        ended = isolated(lambda say: self._passes_run(module, chosen, say))
        if ended.value is None or ended.value != "done":
            name = ended.trace or "the first pass"
            package = default_pipeline(chosen, self.options).packages.get(name, "")
            self.evidence.append(f"it ends in {name}: {ended.reason or ended.value}")
            return "pass", name, package
        self.evidence.append("every pass runs to its end")
        lowered = [changed for _, _, changed in self._lowering(module, chosen)][-1]
        return self._guilty_kernel(module, lowered, arrays, chosen)

    def _passes_run(self, module: Module, chosen: Backend, say: Callable[[str], None]) -> str:
        try:
            for _ in self._lowering(module, chosen, say):
                pass
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "done"

    def _lowering(
        self, module: Module, chosen: Backend, say: Callable[[str], None] = lambda name: None
    ) -> Iterator[tuple[Pass, str, Module]]:
        """Each pass of the pipeline, its package, and the program behind it, whether it has changed it or not."""
        scope = scope_for(module.environment).snapshot()
        with one_compilation(), scope.activate():
            pipeline = default_pipeline(chosen, self.options)
            working = module.clone()
            working.environment = scope
            for pass_ in pipeline.passes:
                say(pass_.name)
                # What a pass says of itself is not believed here.
                PassPipeline((pass_,), pipeline.packages).run(working, verify="never")
                yield pass_, pipeline.packages.get(pass_.name, ""), working.clone()

    def _guilty_rule(self, before: Module, arrays: Sequence[NDArray], pass_: Pass, expected: Outcome) -> str:
        """The rule behind whose firing the program means something else; empty if the pass has no rules."""

        def fired(count: int) -> tuple[bool, str, int]:
            working = before.clone()
            with one_compilation(), scope_for(before.environment).activate(), limited_rules(count) as limit:
                pass_.run(working)
            meaning = interpret(working, arrays)
            wrong = meaning.is_good and self.difference(before, meaning, expected) is not None
            return wrong, limit.last, count - limit.left

        most = 1 << 30
        wrong, _, total = fired(most)
        if not wrong or not total or fired(0)[0]:
            return ""
        low, high = 0, total
        while high - low > 1:
            middle = (low + high) // 2
            if fired(middle)[0]:
                high = middle
            else:
                low = middle
        name = fired(high)[1]
        self.evidence.append(f"of its {total} rewrites number {high}, {name}, makes the difference")
        return name

    def _guilty_kernel(
        self, module: Module, lowered: Module, arrays: Sequence[NDArray], chosen: Backend
    ) -> tuple[str, str, str]:
        """The instruction that the back end computes wrongly, given what the reference computes in front of it."""
        for instruction, operands in _steps(lowered, arrays):
            alone = _alone(instruction, lowered)
            wanted = interpret(alone, operands)
            if not wanted.is_good:
                continue
            ran = self._generated(alone, operands, chosen)
            fault = self.fault(alone, ran, wanted)
            if fault is not None:
                self.evidence.append(f"alone it is wrong, too: {fault.text}")
                for name, source in _kernels_taken(module, self.backend):
                    self.evidence.append(f"the kernel {name} of {source} was taken")
                return "kernel", described_instruction(instruction), _brought_by(instruction) or _origin_of(chosen)
        self.evidence.append("each instruction alone is computed as it should be")
        unfused = replace(self, options=replace(self.options, disable_passes=(FUSION,)), evidence=[])
        if chosen.fuses and unfused.problem(module, arrays)[2] is None:
            self.evidence.append(f"without fusions (disable_passes={unfused.options.disable_passes}) it is right")
        return "back end", f"{self.backend} (schedule, memory or threads of the whole program)", ""

    def _generated(self, alone: Module, operands: Sequence[NDArray], chosen: Backend) -> Outcome:
        """What the back end computes for one lowered instruction."""

        def run() -> Outcome:
            try:
                with one_compilation(), scope_for(alone.environment).activate():
                    executable = generate(alone.clone(), chosen, self.options)
                return run_executable(executable, alone, operands)
            except Exception as error:
                return Outcome(None, "error", f"{type(error).__name__}: {error}")

        if not self.in_child:
            return run()
        ended = isolated(lambda say: run())
        return Outcome(None, "crash", ended.reason) if ended.reason else ended.value

    # ---------------------------------------------------------------- plugins

    def plugins_without_which_it_is_right(self, module: Module, arrays: Sequence[NDArray]) -> Iterator[str]:
        """Third-party plugins without each of which nothing is wrong."""
        with scope_for(module.environment).activate():
            home = current()
            text = str(module)
            names = [name for name, each in tables().contributions.items() if not each.built_in]
        for name in names:
            with home.without(name).activate():
                try:
                    same = parse(text)
                except HlojitError:
                    continue  # the program needs it
                _, expected, fault = self.problem(same, arrays)
            if expected.is_good and fault is None:
                self.evidence.append(f"without the plugin {name} it is right")
                yield name


@dataclass
class _Compared:
    """What was compared of programs in which nothing is wrong."""

    sets: int = 0
    elements: int = 0
    lost: int = 0
    unknown: str = ""

    def note(self, module: Module, expected: Outcome) -> None:
        if expected.results is None:
            self.unknown = expected.describe()
            return
        self.sets += 1
        self.elements += sum(each.size for each in expected.results)
        self.lost += lost_numbers(expected.results, result_types(module))

    def verdict(self, backend: str, against: str) -> str:
        if not self.sets:
            return f"nothing was compared: {against!r} does not tell what the program means: {self.unknown}"
        of = f"{self.elements} elements, of {self.sets} set{'s' if self.sets > 1 else ''} of arguments"
        if self.elements and self.lost == self.elements:
            return (
                f"nothing that could differ was compared: all {of}, are NaN or infinite with both {backend!r} and {against!r}; "
                "give arguments that the program is meant for (--input)"
            )
        most = ""
        if 2 * self.lost > self.elements:
            most = f"; {self.lost} of these are NaN or infinite, which tells little: give arguments that the program is meant for"
        return f"nothing is wrong: {backend!r} computes what {against!r} does, for these arguments ({of}{most})"


def _steps(lowered: Module, arrays: Sequence[NDArray]) -> Iterator[tuple[Instruction, list[NDArray]]]:
    """The entry function's instructions with the values of what they read, in storage form."""
    main = lowered.main
    environment: dict[Value, Any] = {}
    entered = [to_compute(array, each.tensor_type.element_type) for array, each in zip(arrays, main.body.arguments)]
    scope = scope_for(lowered.environment).snapshot()
    with scope.activate(), np.errstate(all="ignore"):
        try:
            Interpreter(lowered).run(main.body, entered, environment)
        except Exception:
            return
        for instruction in main.body:
            reads = reads_of(instruction)
            tensors = all(isinstance(each.type, TensorType) for each in (*reads, *instruction.results))
            tensors &= not any(block_format(each.type) for each in (*reads, *instruction.results))
            if instruction.op.is_terminator or not instruction.results or not tensors or not reads:
                continue
            yield (
                instruction,
                [to_storage(np.asarray(environment[each]), each.tensor_type.element_type) for each in reads],
            )


def reads_of(instruction: Instruction) -> list[Value]:
    """What an instruction and its regions read from outside of it."""
    inside: set[Value] = set()
    reads: dict[Value, None] = {}
    for each in instruction.walk():
        inside.update(argument for region in each.regions for argument in region.arguments)
        inside.update(each.results)
        reads.update(dict.fromkeys(each.operands))
    return [value for value in reads if value not in inside]


def _alone(instruction: Instruction, lowered: Module) -> Module:
    """A module whose entry function is one instruction."""
    reads = reads_of(instruction)
    module = Module("alone")
    module.environment = lowered.environment
    with build_function(module, "main", [value.type for value in reads]) as builder:
        mapping = dict(zip(reads, builder.block.arguments))
        copy = builder.block.append(clone_instruction(instruction, mapping))
        builder.return_(*copy.results)
    for name in {callee for each in instruction.walk() for callee in each.callees}:
        if name in lowered.functions and name != "main":
            module.add_function(lowered.functions[name].clone())
    return module


def described_instruction(instruction: Instruction) -> str:
    """An instruction in a message: for a fusion, what is in it."""
    types = ", ".join(map(str, instruction.result_types))
    if not is_fusion(instruction):
        return f"{instruction.name} -> {types}"
    names = [each.name for each in instruction.regions[0] if not each.op.is_terminator]
    return f"{instruction.name} ({', '.join(dict.fromkeys(names))}) -> {types}"


def _kernels_taken(module: Module, backend: str) -> list[tuple[str, str]]:
    """Kernels of plugins that compute parts of a program, with who brought them."""
    from hlojit.kernel_report import kernel_report

    try:
        return list(dict.fromkeys((each.kernel, each.plugin) for each in kernel_report(module, backend=backend).taken))
    except HlojitError:
        return []


def _origin_of(backend: Backend) -> str:
    """The plugin that brought a back end; empty for hlojit's own."""
    found = [each for each in registry().load().records.values() if backend in each.backends and not each.built_in]
    return found[0].source if found else ""


def _brought_by(instruction: Instruction) -> str:
    """The plugin whose ops an instruction and its regions are of; empty for hlojit's own."""
    known = tables()
    found: dict[str, None] = {}
    for each in instruction.walk():
        owner = known.owners.get((OPS, each.name))
        contribution = known.contributions.get(owner) if owner is not None else None
        if contribution is not None and not contribution.built_in:
            found[contribution.origin] = None
    return ", ".join(found)
