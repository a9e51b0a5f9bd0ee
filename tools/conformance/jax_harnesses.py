"""The harnesses that ship in the jax wheel: every primitive of ``jax.lax`` with many shapes, types and parameters.

A harness is a function and arguments.  JAX lowers it to StableHLO text, which hlojit compiles and runs; JAX's own compiler for
the CPU gives the results that ours are compared with, as ``tolerances.py`` says.  64-bit types are enabled.  Arguments are drawn
from a generator that is seeded by the harness's name.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import hlojit
import numpy as np
from hlojit.extensions import CompileOptions

from tools.conformance import oracles
from tools.conformance.comparison import differs_by
from tools.conformance.programs import Program
from tools.conformance.tolerances import tolerance

SUITE = "jax"
Array = np.ndarray[Any, Any]


@cache
def harnesses() -> dict[str, Any]:
    """The harnesses that JAX runs on the CPU, by name; a name that comes again is numbered."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax

    with jax.enable_x64(True):
        from jax._src.internal_test_util import test_harnesses

    found: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    for harness in test_harnesses.all_harnesses:
        if harness.filter("cpu"):
            number = seen[harness.fullname]
            seen[harness.fullname] += 1
            found[f"{harness.fullname}.{number}" if number else harness.fullname] = harness
    return found


def programs() -> Iterator[Program]:
    """One program for every harness; its text is made in the worker."""
    for name, harness in harnesses().items():
        yield Program(SUITE, name, "harness", labels=(harness.group_name,))


def run_harness(program: Program, backend: str) -> tuple[str, str]:
    """Lower, compile and run a harness, and compare with JAX."""
    import jax

    with jax.enable_x64(True):
        return _run(program, backend)


def _run(program: Program, backend: str) -> tuple[str, str]:
    harness = harnesses()[program.name]
    arguments = arguments_of(program.name)
    try:
        lowered, expected = lowered_and_expected(harness.dyn_fun, arguments)
    except Exception as error:
        return "skipped", f"JAX itself: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    inputs, results = compiled_results(lowered, arguments, backend)
    failure = _compare(harness, inputs, results, expected)
    if failure[0] and len(results) == 1 and (wanted := oracles.exact(harness, arguments, inputs)) is not None:
        return judged(harness, np.asarray(results[0]), expected[0], wanted, failure)
    return failure


def judged(harness: Any, result: Array, expected: Array, wanted: Array, failure: tuple[str, str]) -> tuple[str, str]:
    """Where hlojit and JAX are farther apart than the table allows, the exact value decides, by the same table."""
    allowed = tolerance(harness.group_name, str(expected.dtype))
    if result.shape != wanted.shape or result.dtype != expected.dtype or not oracles.decides(result, expected, wanted):
        return failure
    ulp, large = oracles.errors(result, wanted)
    if ulp <= allowed.ulp or large <= allowed.of_largest:
        return "", ""
    return "wrong", f"{failure[1]}; {ulp:.3g} ULP from the exact value, {large:.3g} of the largest"


def arguments_of(name: str) -> Sequence[Any]:
    """The arguments of a harness, always the same ones."""
    made: Sequence[Any] = harnesses()[name].dyn_args_maker(np.random.RandomState(zlib.crc32(name.encode())))
    return made


def lowered_and_expected(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[str, list[Array]]:
    """JAX's text for a function, and its results from JAX's own compiler."""
    import jax

    lowered = jax.jit(function, keep_unused=True).lower(*arguments)
    return lowered.as_text(), [_plain(each) for each in jax.tree.leaves(lowered.compile()(*arguments))]


def compiled_results(text: str, arguments: Sequence[Any], backend: str) -> tuple[list[Array], list[Any]]:
    """The arguments as arrays, and the results of the text that hlojit compiles."""
    import jax

    executable = hlojit.compile(text, backend=backend, options=CompileOptions(fold_limit=0))
    inputs = [_plain(each) for each in jax.tree.leaves(arguments)]
    returned = executable(*inputs)
    return inputs, list(returned) if isinstance(returned, tuple | list) else [returned]


def _plain(value: Any) -> Array:
    """An argument or result as an array; random keys as their bits."""
    import jax

    if isinstance(value, jax.Array) and "key<" in str(value.dtype):
        value = jax.random.key_data(value)
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        value = jax.numpy.asarray(value)
    return np.asarray(value)


def _compare(
    harness: Any, inputs: Sequence[Array], results: Sequence[Any], expected: Sequence[Array]
) -> tuple[str, str]:
    if len(results) != len(expected):
        return "wrong", f"{len(results)} results for {len(expected)}"
    arrays = [np.asarray(each) for each in results]
    if harness.group_name == "approx_top_k" and (found := _not_of_place(inputs[0], *arrays)):
        return "wrong", found
    if harness.group_name == "approx_top_k":
        arrays, expected = arrays[:1], expected[:1]
    if harness.group_name == "sort" and not harness.params.get("is_stable", True):
        arrays, expected = (_ties_in_order(each, harness.params["dimension"]) for each in (arrays, expected))
    for number, (actual, wanted) in enumerate(zip(arrays, expected, strict=True)):
        if found := differs_by(tolerance(harness.group_name, str(wanted.dtype)), actual, wanted):
            return "wrong", found if len(results) == 1 else f"result {number}: {found}"
    return "", ""


def _ties_in_order(arrays: Sequence[Any], axis: int) -> list[Any]:
    """Sorted rows of several arrays with equal keys in the order of what goes with them: an unstable sort leaves it open."""
    last = [np.moveaxis(array, axis, -1) for array in arrays]
    order = np.lexsort([_sortable(array) for array in reversed(last)], axis=-1)
    return [np.moveaxis(np.take_along_axis(array, order, axis=-1), -1, axis) for array in last]


def _sortable(array: Any) -> Any:
    return array if array.dtype.kind in "biufc" else array.astype(np.float32)


def _not_of_place(operand: Array, values: Array, places: Array) -> str:
    """Whether values do not stand where it says, or one place comes twice: which of equal values are taken is left open."""
    if not np.array_equal(np.take_along_axis(operand, places, axis=-1), values):
        return "a value is not that of its place"
    ordered = np.sort(places, axis=-1)
    return "a place comes twice" if (ordered[..., 1:] == ordered[..., :-1]).any() else ""
