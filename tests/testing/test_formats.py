"""``check_format``: formats that are right conform, and every defect that is put in is found and shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit import testing
from hlojit.cpu.kernels import key_sort, merge_sort, scatter
from hlojit.extensions import FloatFormat
from hlojit.extensions.functions import linked_code
from hlojit.ir.format_fields import Rounding
from hlojit.ir.formats import BUILT_IN, element_types
from hlojit.ir.scalar import formats as rules
from hlojit.ir.scalar import rounding
from hlojit.lowering import elements, structure
from hlojit.testing import exact
from hlojit.tracing.calls import arguments

from .formats import fixed, plain


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", "off")


def check(row: FloatFormat, *groups: str) -> testing.Report:
    return testing.check_format(row, budget="smoke", groups=groups)


# ------------------------------------------------------------------- the oracle


KERNELS: dict[str, tuple[Any, ...]] = {"sort": (key_sort, merge_sort), "scatter": (scatter,)}
SMALL = [row for row in element_types() if isinstance(row, FloatFormat) and row.bits <= 8]


@pytest.mark.parametrize("row", SMALL, ids=str)
def test_the_exact_model_is_that_of_ml_dtypes(row: FloatFormat) -> None:
    model = exact.model_of(row)
    codes = np.arange(1 << row.bits, dtype=row.storage_bits)
    values = codes.view(row.storage).astype(np.float32)
    for code, value in zip(codes.tolist(), values.tolist()):
        assert exact.same(model.value(code), exact.exact(value)), (code, value)
    numbers = np.random.default_rng(1).standard_normal(500).astype("f4") * np.float32(2) ** np.arange(-12, 13).repeat(
        20
    )
    rounded = numbers.astype(row.storage).view(row.storage_bits)
    if row.signed:
        for number, code in zip(numbers.tolist(), rounded.tolist()):
            assert model.is_same(model.encode(exact.exact(number)), code), number


def test_roots_are_rounded_right() -> None:
    assert exact.square_root(Fraction(9, 4)) == Fraction(3, 2)
    assert float(exact.square_root(Fraction(2))) == 2**0.5
    assert exact.is_nan(exact.square_root(Fraction(-1)))


def test_zeros_have_signs() -> None:
    assert exact.same(exact.multiply(Fraction(0), Fraction(-1)), -0.0)
    assert exact.same(exact.add(Fraction(1), Fraction(-1)), exact.ZERO)
    assert exact.same(exact.maximum(-0.0, exact.ZERO), exact.ZERO)
    assert not exact.same(exact.ZERO, -0.0)


# --------------------------------------------------------- what is right conforms


@pytest.mark.slow
def test_a_format_conforms() -> None:
    report = check(plain())
    report.raise_if_failed()
    groups = {result.group for result in report.results}
    assert groups >= {"encodings", "rounding", "arithmetic", "sort", "scatter", "jit", "threads", "registering again"}
    assert report.score == 1.0
    assert report.timings


def test_a_format_by_functions_conforms_where_functions_are_called() -> None:
    check(fixed(), "encodings", "rounding", "text", "registering again").raise_if_failed()


def test_a_registered_format_is_checked_by_its_name() -> None:
    assert check(BUILT_IN["f8E5M2"], "rounding").ok  # type: ignore[arg-type]
    assert testing.check_format("f4E2M1FN", budget="smoke", groups=["encodings"]).ok
    with pytest.raises(hlojit.HlojitError, match="float formats"):
        testing.check_format("i8")


# ----------------------------------------------------------- what is wrong is found


def expect(report: testing.Report, *words: str) -> None:
    """The report has findings, one of which has all the words, and a program that can be pasted."""
    assert not report.ok
    assert report.score < 1.0
    texts = [finding.message + finding.program for finding in report.findings]
    assert any(all(word in text for word in words) for text in texts), texts
    for finding in report.findings:
        if finding.program.startswith("import"):
            compile(finding.program, "finding", "exec")


def test_constants_that_are_read_as_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    right = elements.constant_numbers

    def codes(dense: Any) -> tuple[float, ...]:
        if isinstance(dense.type.element_type, FloatFormat) and dense.type.element_type.dtype is None:
            return tuple(map(float, elements.constant_codes(dense)))
        return right(dense)

    monkeypatch.setattr(elements, "constant_numbers", codes)
    report = check(plain(), "arithmetic", "comparison")
    expect(report, "multiply on cpu", "stablehlo.constant", "hlojit.Array")
    assert not any("on reference" in finding.message for finding in report.findings)
    smallest = min(len(finding.program.splitlines()) for finding in report.findings)
    assert smallest <= 20


def test_arrays_of_a_format_that_jit_takes_for_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    right = arguments.as_array
    monkeypatch.setattr(
        arguments,
        "as_array",
        lambda leaf, name: leaf.storage if isinstance(leaf, hlojit.Array) else right(leaf, name),
    )
    expect(check(plain(), "jit"), "in a jitted function")


def test_codes_that_functions_get_as_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = linked_code._wrapper
    monkeypatch.setattr(linked_code, "_wrapper", lambda *given: right(*given).replace("= zext i32", "= sext i32"))
    expect(check(fixed(32), "encodings"), "a conversion to f64 on cpu gives -")


def test_a_format_whose_replaced_functions_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "fingerprint", lambda record: getattr(record, "name", "record"))
    expect(check(fixed(), "registering again"), "another format of this name")


@pytest.mark.parametrize("group", ["sort", "scatter"])
def test_kernels_without_the_code_that_they_call(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in KERNELS[group]:
        right = module.kernel_code
        monkeypatch.setattr(
            module, "kernel_code", lambda *given, right=right, **named: replace(right(*given, **named), linked=())
        )
    expect(check(fixed(20), group), "on cpu", "ymbols", "stablehlo." + group)


def rule(name: str, change: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(rules, name)
    monkeypatch.setattr(rules, name, lambda *given: change(right, *given))


def test_ties_that_go_away_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: Any, magnitude: Any) -> Any:
        return self.b.add(magnitude, self.native.of(1 << (self.shift - 1)))

    monkeypatch.setattr(rounding.NearestEven, "raised", away)
    expect(check(plain(), "rounding"), "becomes", "a conversion from f64 on cpu")


@pytest.mark.parametrize("mode", list(Rounding), ids=lambda mode: mode.name)
def test_every_rounding_conforms(mode: Rounding) -> None:
    check(plain(rounding=mode), "rounding").raise_if_failed()


def test_a_format_that_is_rounded_in_another_mode_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "rounding_mode", lambda format: "toward-zero")
    expect(check(plain(), "rounding"), "becomes", "on cpu")


def test_random_choices_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "rounding_mode", lambda format: "stochastic")
    expect(check(plain(), "rounding"), "becomes the farther neighbour in 0.0%")


def test_a_negative_zero_that_loses_its_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsigned(right: Any, b: Any, value: Any, *rest: Any) -> Any:
        zero = b.constant(value.kind, 0.0)
        return right(b, b.select(b.fcmp("oeq", value, zero), zero, value), *rest)

    rule("_encode_generic", unsigned, monkeypatch)
    expect(check(plain(), "rounding"), "-0.0 becomes -0.0", "makes it 0.0")


def test_a_nan_with_the_code_of_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rules.codes
    monkeypatch.setattr(rules, "codes", lambda format: replace(right(format), nan=right(format).largest))
    expect(check(plain(), "rounding"), "nan becomes nan")


def test_a_mantissa_that_is_cut_off_in_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(right: Any, native: Any, magnitude: Any, format: FloatFormat) -> Any:
        return right(native, native.b.and_(magnitude, native.of(-2)), format)

    rule("_decode_finite", odd, monkeypatch)
    expect(check(plain(), "encodings"), "stands for")


def test_a_wrong_encode_function_is_the_vendors() -> None:
    def encode(value: float) -> int:
        return encode_off(value)

    def encode_off(value: float) -> int:
        if value != value or value <= 0.0:
            return 0
        return min(int(value * 8.0 + 1.5), 255)

    expect(check(fixed(encode=encode), "encodings"), "which encodes to")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda scaled: 12 if 9.1 < scaled < 9.4 else None, "lies between"),
        (lambda scaled: 0 if scaled > 1e30 else None, "lies beyond"),
        (lambda scaled: 7 if 7.5 < scaled < 8.5 else None, "which encodes to"),
    ],
)
def test_encode_functions_that_are_wrong_of_a_few_numbers(wrong: Callable[[float], int | None], words: str) -> None:
    def encode(value: float) -> int:
        if value != value or value <= 0.0:
            return 0
        found = wrong(value * 2)
        return found if found is not None else int(min(value * 2 + 0.5, 255))

    row = fixed(decode=lambda code: code * 0.5, encode=encode)
    expect(testing.check_format(row, backends=[], groups=["encodings", "rounding"], budget="smoke"), words)


def test_the_report_as_text_json_and_page(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rules.codes
    monkeypatch.setattr(rules, "codes", lambda format: replace(right(format), nan=right(format).largest))
    report = check(plain(), "rounding", "encodings")
    text = report.text()
    assert "does not conform" in text
    assert "hlojit.compile(text" in text
    again = testing.Report.from_json(report.json())
    assert (again.findings, again.score, again.counts) == (report.findings, report.score, report.counts)
    page = report.html()
    assert page.startswith("<!doctype html>")
    assert "http" not in page.replace("http-equiv", "")
    assert "does not conform" in page
    with pytest.raises(testing.ConformanceError, match="does not conform"):
        report.raise_if_failed()
    with pytest.raises(hlojit.HlojitError, match="no report"):
        testing.Report.from_json("{}")
