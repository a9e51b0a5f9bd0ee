"""``check_op``: an op's record and its code agree: text, types, traits, constants, regions, loops, threads, every back end.

check_op(SILU).raise_if_failed()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from hlojit.compiler import parse
from hlojit.extensions import hookimpl, registry, using
from hlojit.ir.builder import Builder
from hlojit.ir.compare import first_difference as module_difference
from hlojit.ir.environment import OPS, tables
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import ElementType, FloatFormat, element_type
from hlojit.ir.graph import Module, Value
from hlojit.ir.ops.definition import OpDefinition, Trait, op
from hlojit.ir.text.printer import print_module
from hlojit.ir.verifier import collect_faults
from hlojit.testing.comparison import INEXACT, Tolerance, first_difference, tolerance_for
from hlojit.testing.contexts import Sample, alone, context_arguments, programs, two_sets
from hlojit.testing.execution import NDArray, interpret, result_types
from hlojit.testing.recorder import Budget, Found, Raised, Recorder, Skipped, budget_of
from hlojit.testing.report import Report
from hlojit.testing.script import script
from hlojit.testing.stated import StatedArguments, StatedShapes, stated_shapes
from hlojit.testing.trials import Trial, Trials

ELEMENTS = ("f32", "f64", "bf16", "f16", "f8E4M3FN", "i32", "i8", "ui8", "i1")
DEFAULT_BACKENDS = ("cpu", "reference")


def check_op(
    record: OpDefinition | str,
    *,
    operands: Sequence[str] | Sequence[Sequence[str]] = (),
    attributes: Mapping[str, Any] | None = None,
    shapes: StatedShapes = (),
    arguments: StatedArguments | None = None,
    tolerance: Tolerance | None = None,
    oracle: Callable[..., Any] | None = None,
    backends: Sequence[str] = DEFAULT_BACKENDS,
    seed: int = 0,
    budget: str | Budget = "quick",
    progress: bool | None = None,
) -> Report:
    """Try an op, given as a record or by its name.

    ``operands`` are names of element types (or several lists of them), by default one type for all of them, several in turn,
    those that the record's constraints take.  ``attributes`` are those that have to be said.  ``shapes`` are those that the op
    takes, each one for all operands or a list with one for each; by default it is taken for an op on elements, whose operands
    and results have one shape.  ``arguments(types, random)`` makes arrays where not all numbers make sense; ``tolerance`` is what
    results may differ by.  ``oracle(*arrays)`` is a function of NumPy arrays in compute form, which says what is right; without
    it the record's reference does.
    """
    found = op(record) if isinstance(record, str) else record
    recorder = Recorder("op", found.name, budget_of(budget), seed, progress)
    trials = Trials(recorder)
    with _registered(found):
        reasons: list[str] = []
        make = _sampler(found, attributes or {}, shapes, arguments, reasons)
        samples = [sample for sample in map(make, _signatures(found, operands)) if sample]
        if not samples:
            raise HlojitError(
                f"{found.name}: no types of operands fit its record; give operands=, shapes= and attributes= "
                f"(with {reasons[0]})"
            )
        for sample in samples:
            if operands:
                recorder.run(
                    str(sample), "its reference computes what its types say", partial(_refers, sample, found, seed)
                )
            _check(sample, found, tolerance, oracle, backends, recorder, trials)
    return recorder.report()


@contextmanager
def _registered(record: OpDefinition) -> Iterator[None]:
    registry().load()  # an installed plugin may bring it
    if tables().table(OPS).get(record.name) is record:
        yield
        return
    with using(SimpleNamespace(__name__="hlojit.testing ops", hlojit_ops=hookimpl(lambda: [record]))):
        yield


def _signatures(record: OpDefinition, operands: Any) -> list[tuple[ElementType, ...]]:
    if operands:
        lists = [operands] if isinstance(operands[0], str) else operands
        return [tuple(map(element_type, each)) for each in lists]
    count = sum(not each.optional for each in record.operands)
    return [(element_type(name),) * count for name in ELEMENTS]


def _sampler(
    record: OpDefinition,
    attributes: Mapping[str, Any],
    shapes: StatedShapes,
    arguments: StatedArguments | None,
    reasons: list[str],
) -> Callable[[tuple[ElementType, ...]], Sample | None]:
    def write(builder: Builder, values: Sequence[Value]) -> Sequence[Value]:
        types = None if record.infer is not None else [values[0].type]
        return builder.create(record.name, values, attributes=dict(attributes), result_types=types).results

    def make(elements: tuple[ElementType, ...]) -> Sample | None:
        stated = stated_shapes(shapes, len(elements))
        faults: Sequence[object]
        sample = Sample(record.name, elements, write, stated, not stated, arguments)
        try:
            first = stated[0] if stated else sample.alike((3,))
            faults = collect_faults(alone(sample, first))
        except HlojitError as error:
            faults = [error]
        if faults:
            reasons.append(f"{', '.join(map(str, elements))}: {faults[0]}")
        return None if faults else sample

    return make


def _check(
    sample: Sample,
    record: OpDefinition,
    stated: Tolerance | None,
    oracle: Callable[..., Any] | None,
    backends: Sequence[str],
    recorder: Recorder,
    trials: Trials,
) -> None:
    threaded = []
    run = recorder.run
    for name, module in programs(sample, recorder.budget.sizes):
        arguments, second = (tuple(each) for each in two_sets(sample, name, module, recorder.seed))
        tolerance = tolerance_for(module) if stated is None else stated
        trial = Trial(f"{sample} {name}", module, arguments, tolerance, second=second)
        if name.startswith("alone"):
            threaded.append(trial)
            if oracle is not None:
                trial = Trial(trial.name, module, arguments, stated or INEXACT, _given(oracle, module), second)
        for backend in backends:
            run(str(sample), f"{name} on {backend}", partial(trials.run, trial, backend, times=2), backend=backend)
    first = threaded[0].module
    run(str(sample), "is printed and read back", lambda: _round_trip(first))
    run(str(sample), "its record's traits hold", lambda: _traits(sample, record, recorder.seed))
    run(str(sample), "refuses what does not fit", lambda: _refusals(sample, record))
    for backend in backends:
        count = recorder.budget.threads
        run(str(sample), f"in threads on {backend}", partial(trials.threads, threaded, backend, count), backend=backend)


def _given(oracle: Callable[..., Any], module: Module) -> Callable[..., Sequence[NDArray]]:
    from hlojit.ir.scalar.arrays import to_compute, to_storage

    kinds = [argument.tensor_type.element_type for argument in module.main.body.arguments]
    wanted = [kind.element_type for kind in result_types(module)]

    def made(*arrays: NDArray) -> Sequence[NDArray]:
        with np.errstate(all="ignore"):
            found = oracle(*map(to_compute, arrays, kinds))
            parts = found if isinstance(found, tuple) else (found,)
            return [to_storage(np.asarray(part), element) for part, element in zip(parts, wanted, strict=True)]

    return made


def _round_trip(module: Module) -> None:
    for generic in (False, True):
        text = print_module(module, generic=generic)
        difference = module_difference(parse(text), module)
        if difference is not None:
            raise Found(f"what is printed is read back as another program: {difference}", text)


def _refers(sample: Sample, record: OpDefinition, seed: int) -> int:
    """The record's reference takes what the record takes, and gives results of the types that the record infers."""
    if record.reference is None:
        raise Skipped("the record has none")
    module = alone(sample, sample.usual)
    arrays = context_arguments(sample, "alone", module, seed)
    found = interpret(module, arrays)
    if found.results is None:
        raise Found(f"{sample}: its reference fails: {found.message}", script(module, arrays, "reference"))
    for result, kind in zip(found.results, result_types(module), strict=True):
        if result.shape != kind.shape:
            raise Found(f"{sample}: its reference gives the shape {result.shape} for a result of {kind}", str(module))
    return len(found.results)


def _traits(sample: Sample, record: OpDefinition, seed: int) -> int:
    """What the record says of the op holds for its reference."""
    checks = 0
    module = alone(sample, sample.shapes[0] if sample.shapes else sample.alike((257,)))
    arrays = context_arguments(sample, "alone", module, seed)
    types = result_types(module)
    meant = interpret(module, arrays)
    if meant.results is None:
        raise Raised(f"the op has no reference semantics: {meant.message}")
    if Trait.COMMUTATIVE in record.traits and len(arrays) == 2:
        swapped = interpret(module, arrays[::-1])
        _hold(module, arrays, swapped.results, meant.results, types, "COMMUTATIVE: with its operands exchanged")
        checks += 1
    if Trait.IDEMPOTENT in record.traits and len(arrays) <= 2:
        again = interpret(module, [arrays[0]] * 2 if len(arrays) == 2 else [meant.results[0]])
        expected = [arrays[0]] if len(arrays) == 2 else meant.results
        _hold(module, arrays, again.results, expected, types, "IDEMPOTENT: applied again")
        checks += 1
    element = sample.elements[0]
    # Of narrow floats it may be a number of the type they are computed in.
    is_own = not isinstance(element, FloatFormat) or element.is_native
    if record.identity is not None and len(arrays) == 2 and is_own:
        neutral = np.full(arrays[0].shape, record.identity(element), element.storage)
        kept = interpret(module, [neutral, arrays[0]])
        _hold(module, arrays, kept.results, [arrays[0]], types, "identity: of its neutral element and x")
        checks += 1
    if not checks:
        raise Skipped("the record says nothing of that kind")
    return checks


def _hold(module: Module, arrays: Sequence[NDArray], found: Any, expected: Any, types: Any, what: str) -> None:
    if found is None:
        raise Found(f"{what} the reference fails")
    difference = first_difference(found, expected, types)
    if difference is not None:
        raise Found(f"{what} it gives something else: {difference}", script(module, arrays, "reference"))


def _refusals(sample: Sample, record: OpDefinition) -> int:
    """Wrong numbers of operands, attributes and shapes are errors of hlojit's, whatever the record's functions do."""
    tried = 0
    for count in {0, len(sample.elements) + 1} - {len(sample.elements)}:
        if any(each.variadic or each.optional for each in record.operands):
            continue
        tried += _refused(record, [(3,)] * count, sample.elements[0], {})
    misfit = [(3,), *[(4,)] * (len(sample.elements) - 1)]
    tried += _refused(record, [(3,)] * len(sample.elements), sample.elements[0], {"no_such_attribute": 1})
    if sample.is_elementwise and len(misfit) > 1:
        tried += _refused(record, misfit, sample.elements[0], {})
    return tried


def _refused(
    record: OpDefinition, shapes: Sequence[tuple[int, ...]], element: ElementType, wrong: Mapping[str, Any]
) -> int:
    from hlojit.ir.builder import build_function
    from hlojit.ir.types import tensor

    module = Module()
    try:
        with build_function(module, "main", [tensor(shape, element) for shape in shapes]) as builder:
            made = builder.create(record.name, builder.arguments, attributes=dict(wrong))
            builder.return_(*made.results)
        if not collect_faults(module):
            of = ", ".join("x".join(map(str, shape)) for shape in shapes)
            what = f"{len(shapes)} operands{of and f' of shapes {of}'}{f' and the attributes {sorted(wrong)}' if wrong else ''}"
            raise Found(f"{record.name} takes {what}", str(module))
    except HlojitError:
        pass
    return 1
