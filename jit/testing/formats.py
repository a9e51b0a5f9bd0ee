"""``check_format``: every code, every rounding, every kind of op of a float format, against exact arithmetic.

    report = check_format(ACME8)
    report.raise_if_failed()

What a format's codes mean is computed from its fields (or by its functions, called from Python) as fractions
(``hlojit.testing.exact``); nothing of what compiles formats takes part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from hlojit.arrays import Array
from hlojit.compiler import parse
from hlojit.extensions import BlockFormat, FloatFormat, hookimpl, registry, using
from hlojit.ir.builder import build_function
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import element_type, find_element_type
from hlojit.ir.graph import Module
from hlojit.ir.passes.dead_code_elimination import DeadCodeElimination
from hlojit.ir.types import tensor
from hlojit.ir.verifier import collect_faults
from hlojit.testing import exact
from hlojit.testing.exact import model_of
from hlojit.testing.execution import execute
from hlojit.testing.format_cases import SHAPE, Draft, FormatCase, NDArray, Palette, pointwise_cases
from hlojit.testing.format_structures import MIX, structural_cases
from hlojit.testing.format_uses import check_jit, check_registered_again, check_text, check_threads
from hlojit.testing.narrowing import smallest_program
from hlojit.testing.recorder import Budget, Found, Recorder, Refused, Skipped, budget_of
from hlojit.testing.report import Report
from hlojit.testing.script import script
from hlojit.testing.timing import compare_times

DEFAULT_BACKENDS = ("cpu", "reference")


def check_format(
    format: FloatFormat | str,
    *,
    backends: Sequence[str] = DEFAULT_BACKENDS,
    seed: int = 0,
    budget: str | Budget = "quick",
    progress: bool | None = None,
    groups: Collection[str] = (),
) -> Report:
    """Try a float format, given as a row or by the name under which a plugin has registered it.

    Every code and rounding is compared with exact arithmetic (of more than 12 bits a sample and the edges), then every kind of
    op on each of ``backends`` with arguments and constants, text, ``@hlojit.jit``, several threads and registering again.
    ``groups`` names the groups of checks to make (default: all).
    """
    row = element_type(format) if isinstance(format, str) else format
    if not isinstance(row, FloatFormat):
        also = "; check_block_format checks block formats" if isinstance(row, BlockFormat) else ""
        raise HlojitError(f"check_format checks float formats; {row} is none{also}")
    recorder = Recorder("format", row.name, budget_of(budget), seed, progress, frozenset(groups))
    check = _FormatCheck(row, recorder, tuple(backends))
    with registered(row):
        check.run()
    return recorder.report()


@contextmanager
def registered(row: FloatFormat) -> Iterator[None]:
    """Have a format registered if it is not, and the custom call that cases use."""
    registry().load()  # an installed plugin may bring it
    formats = [] if find_element_type(row.name) == row else [row]
    plugin = SimpleNamespace(
        __name__="hlojit.testing formats",
        hlojit_formats=hookimpl(lambda: formats),
        hlojit_custom_calls=hookimpl(lambda: [MIX]),
    )
    with using(plugin):
        yield


@dataclass
class _FormatCheck:
    row: FloatFormat
    recorder: Recorder
    backends: tuple[str, ...]

    def __post_init__(self) -> None:
        self.model = model_of(self.row)
        self.palette = Palette(self.row, self.model, self.recorder.seed)

    def run(self) -> None:
        run = self.recorder.run
        run("encodings", "codes mean what the fields or functions say", self._host_values)
        run("encodings", "numbers of codes encode to themselves", self._round_trip)
        run("rounding", "numbers become the codes that they should", self._host_rounding)
        run("rounding", "larger numbers have larger codes", self._monotone)
        run("rounding", "numbers become one of their neighbours", self._faithful)
        for backend in self.backends:
            run("encodings", f"decoding on {backend}", partial(self._decoding, backend), backend=backend)
            for source in ("f64", "f32"):
                run(
                    "rounding", f"from {source} on {backend}", partial(self._encoding, source, backend), backend=backend
                )
        if exact.rounding_mode(self.row) == "stochastic":
            run("rounding", "random choices are as frequent as near, and the same everywhere", self._frequencies)
        for case in (*pointwise_cases(), *structural_cases()):
            for backend in self.backends:
                run(case.group, f"{case.name} on {backend}", partial(self._case, case, backend), backend=backend)
        run(
            "text",
            "constants are read and written back",
            lambda: check_text(self.palette, self.recorder.budget.samples),
        )
        for name, check in check_jit(self.palette):
            run("jit", name, check)
        for backend in self.backends:
            threads = partial(check_threads, self.row, backend, self.recorder.budget.threads)
            run("threads", f"on {backend}", threads, backend=backend)
        run(
            "registering again",
            "another meaning takes effect at once",
            partial(check_registered_again, self.row, self.backends),
        )
        if "cpu" in self.backends and self.recorder.wants("timings"):
            self._time()

    # ------------------------------------------------------------------ codes

    def _host_values(self) -> int:
        codes = self.palette.codes
        found = Array(self.palette.stored(codes), self.row).to_values() if not self.row.is_native else None
        if found is None:
            raise Skipped("the format is a native float")
        for code, value in zip(codes, np.asarray(found).tolist()):
            self._expect_value(code, value, "hlojit.Array.to_values gives")
        return len(codes)

    def _expect_value(self, code: int, value: float, what: str, backend: str = "") -> None:
        wanted = self.model.value(code)
        if not exact.same(exact.exact(value), wanted):
            raise Found(
                f"{self.row}: the code {code:#x} stands for {_shown(wanted)}, {what} {value!r}",
                self._convert_script(code, backend) if backend else "",
            )

    def _round_trip(self) -> int:
        for code in self.palette.numbers:
            again = self.model.encode(self.model.value(code))
            if not self.model.is_same(code, again):
                raise Found(
                    f"{self.row}: the code {code:#x} stands for {_shown(self.model.value(code))}, which encodes to {again:#x}, "
                    f"{_shown(self.model.value(again))}"
                )
        return len(self.palette.numbers)

    def _monotone(self) -> int:
        finite = sorted(
            {value for code in self.palette.numbers if isinstance(value := self.model.value(code), Fraction)}
        )
        last: Fraction | None = None
        for low, high in zip(finite, finite[1:]):
            for number in (low, (low + high) / 2, high):
                became = self.model.value(self.model.encode(number))
                if isinstance(became, Fraction):
                    if last is not None and became < last:
                        raise Found(
                            f"{self.row}: {_shown(number)} becomes {_shown(became)}, but a smaller number {_shown(last)}"
                        )
                    last = became
        return 3 * max(len(finite) - 1, 0)

    def _faithful(self) -> int:
        """What lies between two numbers of the format becomes none that is smaller or larger than both."""
        finite = sorted(
            {value for code in self.palette.numbers if isinstance(value := self.model.value(code), Fraction)}
        )
        count = 0
        for low, high in zip(finite, finite[1:]):
            for part in (1, 3, 5, 7):
                number = low + (high - low) * part / 8
                for code in self.model.codes(number):
                    became = self.model.value(code)
                    count += 1
                    if not (isinstance(became, Fraction) or became == 0) or not low <= became <= high:
                        raise Found(
                            f"{self.row}: {_shown(number)} lies between {_shown(low)} and {_shown(high)}, and becomes "
                            f"{_shown(became)} (code {code:#x})"
                        )
        for end, beyond in ((finite[:1], -1), (finite[-1:], 1)):
            factors = (2, 2**20, 2**60, 2**110)
            far: list[exact.Number] = [value + beyond * by * (abs(value) or 1) for value in end for by in factors]
            far.append(beyond * exact.INFINITY)
            for wide in far:
                became = self.model.value(self.model.encode(wide))
                count += 1
                if isinstance(became, Fraction) and became * beyond < end[0] * beyond:
                    raise Found(
                        f"{self.row}: {_shown(wide)} lies beyond {_shown(end[0])}, and becomes {_shown(became)}"
                    )
        return count

    def battery(self, source: str) -> NDArray:
        """Numbers of f32 or f64 that are hard to round: codes' own, midpoints and their neighbours, all edges."""
        dtype = np.dtype("f4" if source == "f32" else "f8")
        finite = sorted(
            {value for code in self.palette.numbers if isinstance(value := self.model.value(code), Fraction)}
        )
        finite = finite[: self.recorder.budget.samples * 4]
        # Far-out midpoints are wider than any float: of them their neighbours in the source are tried.
        with np.errstate(all="ignore"):
            own = np.array([_to_float(value) for value in finite], "f8").astype(dtype)
            middle = np.array([_to_float((a + b) / 2) for a, b in zip(finite, finite[1:])], "f8").astype(dtype)
            edge = np.array([_to_float(value) for value in (*finite[:1], *finite[-1:])], "f8").astype(dtype)
            beyond = [edge * dtype.type(factor) for factor in (1.01, 1.0625, 1.125, 1.25, 1.5, 2, 4)]
            limits = np.finfo(dtype)
            special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, limits.max, -limits.max, limits.tiny], dtype)
            tiny = np.array([limits.smallest_subnormal, -limits.smallest_subnormal, *(2.0 ** -np.arange(1, 40))], dtype)
            exactly = np.concatenate([own, middle, *beyond, special, tiny])
            near = [np.nextafter(exactly, dtype.type(limit)) for limit in (np.inf, -np.inf)]
            return np.unique(np.concatenate([exactly, *near]).view(f"u{dtype.itemsize}")).view(dtype)

    def _host_rounding(self) -> int:
        numbers = self.battery(self.row.compute)
        if self.row.is_native:
            raise Skipped("the format is a native float")
        found = np.asarray(Array.from_values(numbers, self.row).storage)
        self._expect_codes(numbers, found, "hlojit.Array.from_values", "")
        return numbers.size

    def _expect_codes(self, numbers: NDArray, found: NDArray, what: str, backend: str) -> None:
        codes = np.ascontiguousarray(found).view(self.row.storage_bits).reshape(-1).tolist()
        for number, code in zip(numbers.tolist(), codes):
            allowed = self.model.codes(exact.exact(number))
            if not any(self.model.is_same(code, each) for each in allowed):
                wanted = min(allowed)
                raise Found(
                    f"{self.row}: {number!r} becomes {_shown(self.model.value(wanted))} (code {wanted:#x}); {what} makes it "
                    f"{_shown(self.model.value(code))} (code {code:#x})",
                    self._encode_script(number, numbers.dtype, backend) if backend else "",
                )

    def _frequencies(self) -> int:
        """A number a quarter of the way between two neighbours becomes the farther one in a quarter of the elements."""
        low, high = (self.model.value(self.palette.ordinary[0]), None)
        above = [value for code in self.palette.numbers if (value := self.model.value(code)) > low]
        high = min(above)
        if not isinstance(low, Fraction) or not isinstance(high, Fraction):
            raise Skipped("it has no two neighbours")
        count, number = 1 << 14, _to_float(low + (high - low) / 4)
        module = _conversion("f64", self.row.name, count)
        first: NDArray | None = None
        for backend in self.backends:
            outcome = execute(module, backend, [np.full(count, number)])
            if outcome.results is None:
                raise _problem(outcome.kind, outcome.message, script(module, [np.full(count, number)], backend))
            codes = np.ascontiguousarray(outcome.results[0]).view(self.row.storage_bits)
            share = sum(self.model.value(code) == high for code in codes.tolist()) / count
            if abs(share - 0.25) > 5 * (0.1875 / count) ** 0.5:
                raise Found(
                    f"{self.row}: {number!r} becomes the farther neighbour in {share:.1%} of the elements on {backend}"
                )
            if first is not None and not (codes == first).all():
                raise Found(f"{self.row}: random roundings on {backend} differ from those on {self.backends[0]}")
            first = codes
        return count * len(self.backends)

    # -------------------------------------------------------------- back ends

    def _decoding(self, backend: str) -> int:
        codes = self.palette.codes
        module = _conversion(self.row, "f64", len(codes))
        outcome = execute(module, backend, [self.palette.stored(codes)])
        if outcome.results is None:
            raise _problem(
                outcome.kind, f"decoding on {backend}: {outcome.message}", self._convert_script(codes[0], backend)
            )
        for code, value in zip(codes, outcome.results[0].tolist()):
            self._expect_value(code, value, f"a conversion to f64 on {backend} gives", backend)
        return len(codes)

    def _encoding(self, source: str, backend: str) -> int:
        numbers = self.battery(source)
        module = _conversion(source, self.row.name, numbers.size)
        outcome = execute(module, backend, [numbers])
        if outcome.results is None:
            shown = self._encode_script(numbers[0], numbers.dtype, backend)
            raise _problem(outcome.kind, f"from {source} on {backend}: {outcome.message}", shown)
        self._expect_codes(numbers, outcome.results[0], f"a conversion from {source} on {backend}", backend)
        return numbers.size

    def _convert_script(self, code: int, backend: str) -> str:
        return script(_conversion(self.row, "f64", 1), [self.palette.stored([code])], backend)

    def _encode_script(self, number: float, dtype: Any, backend: str) -> str:
        source = "f32" if dtype.itemsize == 4 else "f64"
        return script(_conversion(source, self.row.name, 1), [np.array([number], dtype)], backend)

    def _case(self, case: FormatCase, backend: str) -> int:
        reason = case.needs(self.palette)
        if reason:
            raise Skipped(reason)
        given = case.arguments(self.palette)
        module = self.program(case)
        stored = [self.palette.stored(codes) if kind.element_type == self.row else codes for kind, codes in given]
        outcome = execute(module, backend, stored)
        if outcome.results is None:
            message = f"{self.row}: {case.name} on {backend}: {outcome.message}"
            raise _problem(outcome.kind, message, self._shown_small(module, stored, backend))
        expected = case.oracle(self.palette, [codes for _, codes in given])
        count = 0
        for number, (found, wanted) in enumerate(zip(outcome.results, expected, strict=True)):
            where, complaint = self._complaint(found, np.asarray(wanted), case.moves)
            if complaint:
                only = _one_result(module, number)
                small = self._one_element(only, stored, backend, found, where)
                small = small or self._shown_small(only, stored, backend)
                raise Found(f"{self.row}: {case.name} on {backend}: result {number}{complaint}", small)
            count += found.size
        return count

    def program(self, case: FormatCase) -> Module:
        """A case's module."""
        module = Module()
        kinds = [kind for kind, _ in case.arguments(self.palette)]
        with build_function(module, "main", kinds) as builder:
            builder.return_(*case.build(Draft(builder, self.palette), builder.arguments))
        return module

    def _complaint(self, found: NDArray, wanted: NDArray, moves: bool) -> tuple[tuple[int, ...], str]:
        """Where an element is wrong, and what is wrong; empty if nothing is."""
        if found.shape != wanted.shape:
            return (), f" has the shape {found.shape}, expected {wanted.shape}"
        if wanted.dtype != object:
            wrong = ~((found == wanted) | ((found != found) & (wanted != wanted)))
            if not wrong.any():
                return (), ""
            where = tuple(int(each) for each in np.argwhere(wrong)[0])
            return where, f"{list(where)} is {found[where]!r}, expected {wanted[where]!r}"
        codes = np.ascontiguousarray(found).view(self.row.storage_bits).reshape(found.shape)
        for where in np.ndindex(found.shape):
            code, allowed = int(codes[where]), wanted[where]
            choices = allowed if isinstance(allowed, frozenset) else {int(allowed)}
            # What only moves keeps its bits; but which NaN a NaN is, the specification leaves to the back end.
            free = not moves or exact.is_nan(self.model.value(code))
            if code in choices or (free and any(self.model.is_same(code, each) for each in choices)):
                continue
            one = min(choices)
            return where, (
                f"{list(where)} is {_shown(self.model.value(code))} (code {code:#x}), expected "
                f"{_shown(self.model.value(one))} (code {one:#x})"
            )
        return (), ""

    def _one_element(
        self, module: Module, stored: Sequence[NDArray], backend: str, found: NDArray, where: tuple[int, ...]
    ) -> str:
        """The program for the wrong element alone; empty if it is right there, or is made of others too."""
        if len(where) != len(SHAPE) or any(array.shape != SHAPE for array in stored):
            return ""
        text = str(module).replace("x".join(map(str, SHAPE)) + "x", "1x1x")
        one = tuple(slice(each, each + 1) for each in where)
        try:
            small = parse(text)
        except HlojitError:
            return ""
        if collect_faults(small):
            return ""
        arrays = [np.ascontiguousarray(array[one]) for array in stored]
        outcome = execute(small, backend, arrays)
        if outcome.results is None or outcome.results[0].tobytes() != np.ascontiguousarray(found[one]).tobytes():
            return ""
        return script(small, arrays, backend)

    def _shown_small(self, module: Module, stored: Sequence[NDArray], backend: str) -> str:
        """The smallest program on which the back end and the reference differ; the whole one if they agree (both wrong)."""
        if not self.recorder.reduces:
            return script(module, stored, backend)
        seconds = self.recorder.budget.reduction_seconds
        return smallest_program(module, stored, backend, seconds=seconds, is_judged_apart=True)

    def _time(self) -> None:
        """x * y + z over many elements beside f8E4M3FN and f32."""
        count = 1 << 18 if self.recorder.budget.name != "full" else 1 << 20
        compare_times(self.recorder, "x * y + z", self.row.name, ("f8E4M3FN", "f32"), count)


def _one_result(module: Module, number: int) -> Module:
    """The module with one of its results; all arguments stay."""
    made = module.clone()
    main = made.main
    kept = main.body.returned[number]
    main.body.terminator.operands = (kept,)
    main.result_types, main.result_attributes = [kept.type], [{}]
    DeadCodeElimination().run(made)
    return made


def _conversion(source: FloatFormat | str, target: FloatFormat | str, count: int) -> Module:
    module = Module()
    with build_function(module, "main", [tensor((count,), source)]) as builder:
        builder.return_(builder.convert(builder.arguments[0], target))
    return module


def _problem(kind: str, message: str, program: str) -> Exception:
    """A back end may refuse what it has no code for; anything else is found."""
    return Refused(message) if kind == "refused" else Found(message, program)


def _shown(number: exact.Number) -> str:
    return repr(float(number)) if not isinstance(number, Fraction) or abs(number) < Fraction(10) ** 300 else f"{number}"


def _to_float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
