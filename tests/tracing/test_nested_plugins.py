"""Plugins that come into scope inside of a traced function: they mean there what they mean alone, or the function is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import FloatFormat, NanEncoding, Overflow
from hlojit.ir.builder import Builder
from hlojit.ir.errors import HlojitError

X = np.float32([0.3, 1.13, 100.0])


class Format:
    """Brings a format of six bits: with a bias of 5 it ends at 6, with a bias of 1 at 96."""

    def __init__(self, bias: int, name: str = "acmq"):
        self.bias, self.name = bias, name

    @ext.hookimpl
    def hlojit_formats(self) -> list[FloatFormat]:
        return [
            FloatFormat(
                self.name,
                exponent_bits=3,
                mantissa_bits=2,
                bias=self.bias,
                has_infinity=False,
                nan=NanEncoding.ALL_ONES,
                overflow=Overflow.SATURATE,
            )
        ]


def rounded(x: Any, name: str = "acmq") -> Any:
    return x.astype(name).astype("f4")


SMALL = np.float32([0.3125, 1.25, 6.0])
LARGE = np.float32([0.25, 1.25, 96.0])


@pytest.fixture
def inner() -> Callable[[Any], Any]:
    return hlojit.jit(plugins=[Format(5)])(rounded)


def test_what_does_not_conflict_is_what_it_is_alone(inner: Any) -> None:
    np.testing.assert_array_equal(inner(X), SMALL)
    np.testing.assert_array_equal(hlojit.jit(lambda x: inner(x))(X), SMALL)
    np.testing.assert_array_equal(hlojit.jit(plugins=[Format(5)])(lambda x: inner(x) + rounded(x))(X), SMALL * 2)

    @hlojit.jit(plugins=[Format(1, "other")])
    def both(x: Any) -> Any:
        with ext.using(Format(5, "third")):
            third = rounded(x, "third")
        return inner(x), rounded(x, "other"), third, inner(x)

    for result, expected in zip(both(X), (SMALL, LARGE, SMALL, SMALL)):
        np.testing.assert_array_equal(result, expected)


def test_a_function_with_plugins_for_a_name_of_the_outer_ones_is_refused(inner: Any) -> None:
    @hlojit.jit(plugins=[Format(1)])
    def outer(x: Any) -> Any:
        return inner(x), rounded(x)

    message = "element type 'acmq' means two things in one program.*'Format'"
    with pytest.raises(HlojitError, match=message):
        outer(X)
    with pytest.raises(HlojitError, match=message):
        outer.lower(X)
    with ext.using(Format(1)), pytest.raises(HlojitError, match=message):
        hlojit.jit(lambda x: inner(x))(X)


def test_using_inside_of_a_traced_function_is_refused_where_it_conflicts() -> None:
    def two(x: Any) -> Any:
        first = rounded(x)
        with ext.using(Format(5)):
            return first, rounded(x)

    with ext.using(Format(1)), pytest.raises(HlojitError, match="means two things"):
        hlojit.jit(two)(X)

    @hlojit.jit
    def apart(x: Any) -> Any:
        with ext.using(Format(1)):
            large = rounded(x)
        with ext.using(Format(5)):
            return large, rounded(x)

    with pytest.raises(HlojitError, match="means two things"):
        apart(X)

    @hlojit.jit
    def equal(x: Any) -> Any:
        with ext.using(Format(5)):
            first = rounded(x)
        with ext.using(Format(5)):
            return first + rounded(x)

    np.testing.assert_array_equal(equal(X), SMALL * 2)


@pytest.fixture
def registered() -> Iterator[None]:
    ext.register(Format(1))
    yield
    ext.registry().unregister("Format")


def test_what_is_registered_while_a_function_is_traced_changes_nothing_for_this_call(registered: None) -> None:
    traced = []

    @hlojit.jit
    def f(x: Any) -> Any:
        result = rounded(x)
        if not traced:
            ext.register(Format(5))
        traced.append(True)
        return result

    np.testing.assert_array_equal(f(X), LARGE)
    np.testing.assert_array_equal(f(X), SMALL)


class Twice(ext.Pass):
    """Doubles what is added, so that it shows that the pass ran."""

    name = "adds-twice"
    phase = "simplify"

    def run(self, module: hlojit.Module) -> bool:
        found = [each for each in module.walk() if each.op.name == "stablehlo.subtract"]
        for each in found:
            builder = Builder.in_front_of(each)
            each.replace_with([builder.add(*each.operands)])
        return bool(found)


class Passes:
    @ext.hookimpl
    def hlojit_passes(self) -> list[ext.Pass]:
        return [Twice()]


def test_passes_of_an_inner_function_run() -> None:
    inner = hlojit.jit(plugins=[Passes()])(lambda x: x - 1)
    np.testing.assert_array_equal(inner(X), X + 1)
    np.testing.assert_array_equal(hlojit.jit(lambda x: inner(x))(X), X + 1)
