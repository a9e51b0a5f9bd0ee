"""``check_custom_call``: a custom call means the same everywhere, and what its function says.

check_custom_call(ElementwiseCall("nova.silu", function=silu), operands=["f32"]).raise_if_failed()
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from hlojit.compiler import compile as compile_program
from hlojit.extensions import CustomCall, ElementwiseCall, hookimpl, registry, using
from hlojit.ir.attribute_values import attribute_of
from hlojit.ir.builder import Builder
from hlojit.ir.errors import HlojitError, PluginError
from hlojit.ir.formats import BooleanType, ElementType, FloatFormat, IntegerType, element_type
from hlojit.ir.graph import Value
from hlojit.ir.scalar.arrays import encode_array, to_compute
from hlojit.ir.types import TensorType, tensor
from hlojit.ir.verifier import collect_faults
from hlojit.testing.comparison import INEXACT, Tolerance
from hlojit.testing.contexts import Sample, alone, programs, two_sets
from hlojit.testing.exact import plain_function
from hlojit.testing.execution import NDArray
from hlojit.testing.recorder import Budget, Found, Recorder, Skipped, Unreached, budget_of
from hlojit.testing.report import Report
from hlojit.testing.stated import Shapes, StatedArguments, StatedShapes, stated_shapes
from hlojit.testing.trials import Oracle, Trial, Trials

ELEMENTS = ("f32", "f64", "i32", "ui8", "bf16")
DEFAULT_BACKENDS = ("cpu", "reference")
NEAR = Tolerance(ulps=64, zeros=True, scaled=True)


def check_custom_call(
    call: CustomCall | str,
    *,
    operands: Sequence[str] | Sequence[Sequence[str]] = (),
    results: Sequence[str | TensorType] = (),
    config: Mapping[str, Any] | None = None,
    shapes: StatedShapes = (),
    arguments: StatedArguments | None = None,
    tolerance: Tolerance | None = None,
    oracle: Callable[..., Any] | None = None,
    backends: Sequence[str] = DEFAULT_BACKENDS,
    seed: int = 0,
    budget: str | Budget = "quick",
    progress: bool | None = None,
) -> Report:
    """Try a custom call, given as a record or by the target under which a plugin has registered it.

    ``operands`` are names of element types (or several lists of them), by default several, as many as the function has
    parameters.  ``results`` are types of the results, or names of element types, which get the first operand's shape; by default
    what the call's rule says, or the first operand's type.  ``config`` is the call's dictionary: numbers, texts, lists, arrays.
    ``shapes`` are those that the call takes, each one for all operands or a list with one for each; by default several, for all
    operands.  ``arguments(types, random)`` makes arrays where not all numbers make sense; ``tolerance`` is what results may
    differ by.  An elementwise call is compared with its function, called from Python; any with ``oracle(*arrays)``, a function
    of NumPy arrays, which is given ``config`` by keyword if it takes any.  Of other calls the back ends are compared with the
    reference.
    """
    found = registry().custom_call(call) if isinstance(call, str) else call
    if found is None:
        raise HlojitError(registry().unknown_target(str(call)))
    recorder = Recorder("custom call", found.target, budget_of(budget), seed, progress)
    trials = Trials(recorder, isolate=found.trust != "checked")
    with _registered(found):
        refused = []
        for elements in _signatures(found, operands):
            sample = _sample(found, elements, results, config, stated_shapes(shapes, len(elements)), arguments)
            if _is_refused(sample, recorder, is_asked_for=bool(operands)):
                refused.append(sample)
                continue
            known = _oracle(found, elements, results, config, oracle)
            _check(sample, known, tolerance, backends, recorder, trials)
        if not operands and len(refused) == len(recorder.results):
            recorder.run("reach", "types that it takes", partial(_unreached, refused))
    return recorder.report()


def _unreached(refused: Sequence[Sample]) -> int:
    raise Unreached(
        f"it takes none of {', '.join(map(str, refused))}: give operands=, and config= or shapes= if it needs them"
    )


@contextmanager
def _registered(call: CustomCall) -> Iterator[None]:
    if registry().load().custom_calls.get(call.target) is call:
        yield
        return
    with using(SimpleNamespace(__name__="hlojit.testing calls", hlojit_custom_calls=hookimpl(lambda: [call]))):
        yield


def _is_refused(sample: Sample, recorder: Recorder, *, is_asked_for: bool) -> bool:
    """Whether a call is refused, with a reason: then it is not for types that nobody asked for; of others that is found."""
    try:
        first = sample.shapes[0] if sample.shapes else sample.alike((3,))
        compile_program(alone(sample, first), backend="cpu")
    except PluginError as error:
        reason = str(error)

        def refuse() -> None:
            if is_asked_for:
                raise Found(f"{sample} is refused: {reason}")
            raise Skipped(reason.partition("\n")[0])

        recorder.run(str(sample), "is refused", refuse)
        return True
    except HlojitError:
        pass
    return False


def _check(
    sample: Sample,
    oracle: Oracle | None,
    tolerance: Tolerance | None,
    backends: Sequence[str],
    recorder: Recorder,
    trials: Trials,
) -> None:
    threaded = []
    for name, module in programs(sample, recorder.budget.sizes):
        faults = collect_faults(module)
        if faults:
            recorder.run(str(sample), f"{name}: is a valid program", partial(_invalid, faults))
            continue
        arrays, second = (tuple(each) for each in two_sets(sample, name, module, recorder.seed))
        trial = Trial(f"{sample} {name}", module, arrays, tolerance or INEXACT, second=second)
        if name.startswith("alone"):
            trial = Trial(trial.name, module, arrays, tolerance or NEAR, oracle, second)
            threaded.append(trial)
        for backend in backends:
            recorder.run(
                str(sample), f"{name} on {backend}", partial(trials.run, trial, backend, times=2), backend=backend
            )
    for backend in backends:
        threads = partial(trials.threads, threaded, backend, recorder.budget.threads)
        recorder.run(str(sample), f"in threads on {backend}", threads, backend=backend)


def _invalid(faults: Sequence[Any]) -> None:
    raise HlojitError(str(faults[0]))


def _signatures(call: CustomCall, operands: Any) -> list[tuple[ElementType, ...]]:
    if operands:
        lists = [operands] if isinstance(operands[0], str) else operands
        return [tuple(map(element_type, each)) for each in lists]
    count = 1
    function = getattr(call, "function", None)
    if isinstance(call, ElementwiseCall) and function is not None:
        try:
            parameters = inspect.signature(plain_function(function)).parameters.values()
        except (TypeError, ValueError):
            raise HlojitError(f"{call.target}: the parameters of its function are not known; give operands=") from None
        count = sum(each.default is each.empty and each.kind != each.KEYWORD_ONLY for each in parameters)
    return [(element_type(name),) * count for name in ELEMENTS]


def _sample(
    call: CustomCall,
    elements: tuple[ElementType, ...],
    results: Sequence[str | TensorType],
    config: Mapping[str, Any] | None,
    shapes: tuple[Shapes, ...],
    arguments: StatedArguments | None,
) -> Sample:
    attributes: dict[str, Any] = {"call_target_name": call.target}
    if config:
        attributes |= {"api_version": 4, "backend_config": attribute_of(dict(config))}

    def write(builder: Builder, values: Sequence[Value]) -> Sequence[Value]:
        types = _result_types(call, [value.tensor_type for value in values], results, config)
        return builder.create("stablehlo.custom_call", values, attributes=dict(attributes), result_types=types).results

    is_elementwise = isinstance(call, ElementwiseCall) or (call.result_types is None and not shapes)
    return Sample(call.target, elements, write, shapes, is_elementwise, arguments)


def _result_types(
    call: CustomCall,
    operands: Sequence[TensorType],
    results: Sequence[str | TensorType],
    config: Mapping[str, Any] | None,
) -> Sequence[Any]:
    shape = operands[0].shape if operands else ()
    if results:
        return [each if isinstance(each, TensorType) else tensor(shape, element_type(each)) for each in results]
    ruled = call.ruled_types(operands, dict(config) if config else None)
    return ruled if ruled is not None else [operands[0] if operands else tensor((), "f32")]


# --------------------------------------------------------------------- oracles


def _oracle(
    call: CustomCall,
    elements: Sequence[ElementType],
    results: Sequence[str | TensorType],
    config: Mapping[str, Any] | None,
    given: Callable[..., Any] | None,
) -> Oracle | None:
    """What a call of arrays in storage form means; None where only the reference knows."""
    if given is not None:
        return _of_arrays(call, given, elements, results, config)
    wanted = [each.element_type if isinstance(each, TensorType) else element_type(each) for each in results]
    wanted = wanted or list(elements[:1])
    function = getattr(call, "function", None)
    if not isinstance(call, ElementwiseCall) or function is None or len(wanted) != 1 or not callable(function):
        return None
    if not inspect.isfunction(plain_function(function)):
        return None
    return _of_scalars(plain_function(function), elements, wanted[0], dict(config or {}))


def _of_arrays(
    call: CustomCall,
    function: Callable[..., Any],
    elements: Sequence[ElementType],
    results: Sequence[str | TensorType],
    config: Mapping[str, Any] | None,
) -> Oracle:
    named = dict(config) if config and _takes_keywords(function) else {}

    def oracle(*arrays: NDArray) -> Sequence[NDArray]:
        with np.errstate(all="ignore"):
            made = function(*(to_compute(array, element) for array, element in zip(arrays, elements)), **named)
        parts = made if isinstance(made, (tuple, list)) else (made,)
        operands = [tensor(array.shape, element) for array, element in zip(arrays, elements)]
        kinds = _result_types(call, operands, results, config)
        return [_stored(np.asarray(part), kind.element_type) for part, kind in zip(parts, kinds, strict=True)]

    return oracle


def _takes_keywords(function: Callable[..., Any]) -> bool:
    """Whether an oracle is to be told the call's configuration."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD) for each in parameters)


def _of_scalars(
    function: Callable[..., Any], elements: Sequence[ElementType], wanted: ElementType, named: dict[str, Any]
) -> Oracle:
    """The function on Python's own numbers; elements are masked where Python raises, since then there is no telling."""

    def one(*values: Any) -> Any:
        try:
            return _converted(function(*values, **named), wanted)
        except (ArithmeticError, ValueError):
            return None

    def oracle(*arrays: NDArray) -> Sequence[NDArray]:
        shape = arrays[0].shape if arrays else ()
        columns = [to_compute(array, element).reshape(-1).tolist() for array, element in zip(arrays, elements)]
        made = [one(*values) for values in zip(*columns)]
        numbers = np.array([0 if each is None else each for each in made], _compute_dtype(wanted)).reshape(shape)
        mask = np.array([each is None for each in made], bool).reshape(shape)
        return [np.ma.MaskedArray(_stored(numbers, wanted), mask)]

    return oracle


def _converted(value: Any, element: ElementType) -> Any:
    """A Python number as the docs say that it becomes an element."""
    if isinstance(element, BooleanType):
        return value == value and value != 0
    if isinstance(element, IntegerType):
        if isinstance(value, (bool, int)):
            wrapped = value & ((1 << element.bits) - 1)
            return wrapped - (1 << element.bits) if element.signed and wrapped > element.maximum else wrapped
        return 0 if value != value else int(min(max(value, element.minimum), element.maximum))
    return value


def _compute_dtype(element: ElementType) -> Any:
    return np.float64 if isinstance(element, FloatFormat) else element.storage


def _stored(values: NDArray, element: ElementType) -> NDArray:
    with np.errstate(all="ignore"):
        if isinstance(element, FloatFormat) and not element.is_native:
            return encode_array(values.astype(np.float64), element)
        return values.astype(element.storage)
