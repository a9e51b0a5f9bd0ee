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
from hlojit.ir.attributes import Attribute, BoolAttr, DictAttr, FloatAttr, IntegerAttr, StringAttr
from hlojit.ir.builder import Builder
from hlojit.ir.errors import HlojitError, PluginError
from hlojit.ir.formats import BooleanType, ElementType, FloatFormat, IntegerType, element_type
from hlojit.ir.graph import Value
from hlojit.ir.scalar.arrays import encode_array, to_compute
from hlojit.ir.types import tensor
from hlojit.ir.verifier import collect_faults
from hlojit.testing.comparison import INEXACT, Tolerance
from hlojit.testing.contexts import Sample, alone, context_arguments, programs
from hlojit.testing.exact import plain_function
from hlojit.testing.execution import NDArray
from hlojit.testing.recorder import Budget, Recorder, Skipped, budget_of
from hlojit.testing.report import Report
from hlojit.testing.trials import Oracle, Trial, Trials

ELEMENTS = ("f32", "f64", "i32", "ui8", "bf16")
DEFAULT_BACKENDS = ("cpu", "reference")
NEAR = Tolerance(ulps=64, zeros=True, scaled=True)


def check_custom_call(
    call: CustomCall | str,
    *,
    operands: Sequence[str] | Sequence[Sequence[str]] = (),
    results: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    oracle: Callable[..., Any] | None = None,
    backends: Sequence[str] = DEFAULT_BACKENDS,
    seed: int = 0,
    budget: str | Budget = "quick",
    progress: bool | None = None,
) -> Report:
    """Try a custom call, given as a record or by the target under which a plugin has registered it.

    ``operands`` are names of element types (or several lists of them), by default several, as many as the function has
    parameters; ``results`` are those of the results (default: the first operand's).  ``config`` is the call's dictionary.  An
    elementwise call is compared with its function, called from Python; any with ``oracle(*arrays)``, a function of NumPy
    arrays.  Of other calls the back ends are compared with the reference.
    """
    found = registry().custom_call(call) if isinstance(call, str) else call
    if found is None:
        raise HlojitError(registry().unknown_target(str(call)))
    recorder = Recorder("custom call", found.target, budget_of(budget), seed, progress)
    trials = Trials(recorder, isolate=found.trust != "checked")
    with _registered(found):
        for elements in _signatures(found, operands):
            sample = _sample(found.target, elements, [element_type(name) for name in results], config)
            if not operands and _is_refused(sample, recorder):
                continue
            _check(sample, _oracle(found, elements, results, config, oracle), backends, recorder, trials)
    return recorder.report()


@contextmanager
def _registered(call: CustomCall) -> Iterator[None]:
    if registry().custom_calls.get(call.target) is call:
        yield
        return
    with using(SimpleNamespace(__name__="hlojit.testing calls", hlojit_custom_calls=hookimpl(lambda: [call]))):
        yield


def _is_refused(sample: Sample, recorder: Recorder) -> bool:
    """Whether a call of types that nobody asked for is refused, with a reason: then it is not for them."""
    try:
        compile_program(alone(sample, (3,)), backend="cpu")
    except PluginError as error:
        reason = str(error).partition("\n")[0]

        def skip() -> None:
            raise Skipped(reason)

        recorder.run(str(sample), "is refused", skip)
        return True
    except HlojitError:
        pass
    return False


def _check(sample: Sample, oracle: Oracle | None, backends: Sequence[str], recorder: Recorder, trials: Trials) -> None:
    threaded = []
    for name, module in programs(sample, recorder.budget.sizes):
        faults = collect_faults(module)
        recorder.run(str(sample), f"{name}: is a valid program", partial(_valid, faults))
        trial = Trial(f"{sample} {name}", module, tuple(context_arguments(name, module, recorder.seed)), INEXACT)
        if name.startswith("alone"):
            trial = Trial(trial.name, module, trial.arguments, NEAR, oracle)
            threaded.append(trial)
        for backend in backends:
            recorder.run(str(sample), f"{name} on {backend}", partial(trials.run, trial, backend))
    for backend in backends:
        threads = partial(trials.threads, threaded, backend, recorder.budget.threads)
        recorder.run(str(sample), f"in threads on {backend}", threads)


def _valid(faults: Sequence[Any]) -> None:
    if faults:
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
    target: str, elements: Sequence[ElementType], results: Sequence[ElementType], config: Mapping[str, Any] | None
) -> Sample:
    given = tuple(results) or tuple(elements[:1]) or (element_type("f32"),)
    attributes: dict[str, Any] = {"call_target_name": target}
    if config:
        attributes |= {"api_version": 4, "backend_config": _dictionary(config)}

    def write(builder: Builder, values: Sequence[Value]) -> Sequence[Value]:
        shape = values[0].tensor_type.shape if values else ()
        types = [tensor(shape, each) for each in given]
        return builder.create("stablehlo.custom_call", values, attributes=dict(attributes), result_types=types).results

    return Sample(target, tuple(elements), write)


def _dictionary(config: Mapping[str, Any]) -> DictAttr:
    """A configuration as a dictionary attribute: f64 and i64 numbers, booleans, strings."""

    def attribute(value: Any) -> Attribute:
        if isinstance(value, bool):
            return BoolAttr(value)
        if isinstance(value, int):
            return IntegerAttr(value)
        return FloatAttr(value) if isinstance(value, float) else StringAttr(str(value))

    return DictAttr(tuple((name, attribute(value)) for name, value in sorted(config.items())))


# --------------------------------------------------------------------- oracles


def _oracle(
    call: CustomCall,
    elements: Sequence[ElementType],
    results: Sequence[str],
    config: Mapping[str, Any] | None,
    given: Callable[..., Any] | None,
) -> Oracle | None:
    """What a call of arrays in storage form means; None where only the reference knows."""
    wanted = [element_type(name) for name in results] or list(elements[:1])
    if given is not None:
        return _of_arrays(given, elements, wanted)
    function = getattr(call, "function", None)
    if not isinstance(call, ElementwiseCall) or function is None or len(wanted) != 1 or not callable(function):
        return None
    if not inspect.isfunction(plain_function(function)):
        return None
    return _of_scalars(plain_function(function), elements, wanted[0], dict(config or {}))


def _of_arrays(function: Callable[..., Any], elements: Sequence[ElementType], wanted: Sequence[ElementType]) -> Oracle:
    def oracle(*arrays: NDArray) -> Sequence[NDArray]:
        with np.errstate(all="ignore"):
            made = function(*(to_compute(array, element) for array, element in zip(arrays, elements)))
        parts = made if isinstance(made, (tuple, list)) else (made,)
        return [_stored(np.asarray(part), element) for part, element in zip(parts, wanted, strict=True)]

    return oracle


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
