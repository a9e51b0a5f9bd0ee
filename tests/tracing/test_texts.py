"""What a jitted function prints, warns of and raises holds the values of the run, as without ``jit``."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest

from .text_cases import asserts

X = np.arange(4.0)


def several(x: Any) -> Any:
    print("x is", x, x[0], x.sum(), [x[1], {"a": x[:2]}], (1, None), x.shape, sep="|", end=".\n")
    return x


def formatted(x: Any) -> Any:
    n = 3
    print(f"{x[1]:.{n}f} {x!r:>30} {x[0]=} {{}}" + "!", f"{x.dtype} {n:>4}", flush=True)
    print("%.2f of %s" % (x[1], x), "{:.1e} {name}".format(x[2], name=x[0]), ", ".join(f"{v:.1f}" for v in x))  # noqa: UP031, UP032
    print(
        str(x[1]), repr(x[1]), format(x[1], ".4f"), str(n), int(x[1]), float(x[2]), bool(x[0]), x[0] > 1, x.astype(int)
    )
    return x


def in_a_loop(x: Any) -> Any:
    total = 0.0
    print("begin")
    for i in range(30):
        total += x[i % 4]
        if total > 20:
            print(i, f"{total:.1f}")
            if i == 25:
                print("done")
                break
    print("end")
    return total


def in_a_while(n: Any) -> Any:
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        print(n, end=" ")
    return n


def before_it_is_written(x: Any) -> Any:
    y = x.copy()
    text = f"was {y}"
    y[0] = 9
    print(text, "is", y)
    return y


def told(word: Any, x: Any) -> Any:
    print(word, x)
    return x


def of_a_callee(x: Any) -> Any:
    return told("a", x[0]) + told("b", x[1])


def on_one_path(x: Any) -> Any:
    if x[0] > 1:
        print("large")
    else:
        print("small", file=sys.stdout)
    return x


def other_numbers(x: Any) -> Any:
    print(x.astype(np.float32) / 3, (x > 1), x + 1j, np.float16(0.1), np.float32(0.1) * x[1])
    return x


PRINTING: list[tuple[Callable[..., Any], Any]] = [
    *(
        (each, X)
        for each in (several, formatted, in_a_loop, before_it_is_written, of_a_callee, on_one_path, other_numbers)
    ),
    (in_a_while, 6),
]


@pytest.mark.parametrize(("function", "argument"), PRINTING, ids=[each[0].__name__ for each in PRINTING])
def test_prints_as_without_jit(function: Any, argument: Any, capsys: pytest.CaptureFixture[str]) -> None:
    compiled = hlojit.jit(function)
    for given in (argument, argument + 1):
        expected = function(given), capsys.readouterr()
        found = compiled(given), capsys.readouterr()
        assert found[1] == expected[1]
        np.testing.assert_array_equal(found[0], expected[0])


def test_threads_print_whole_lines_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    @hlojit.jit
    def counted(name: Any, n: Any) -> Any:
        for i in range(n):
            print(name, i)
        return n

    counted(-1, 1)
    threads = [threading.Thread(target=counted, args=(name, 20)) for name in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    shown = capsys.readouterr().out.split("\n")[1:-1]
    for name in range(4):
        assert [each for each in shown if each.startswith(f"{name} ")] == [f"{name} {i}" for i in range(20)]


def test_nothing_is_printed_behind_what_raises(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any, i: Any) -> Any:
        print("first")
        y = x[i]
        print("second", y)
        if y > 1:
            print("third")
        return y

    compiled = hlojit.jit(function)
    for i in (0, 3, 4):
        for each in (function, compiled):
            if i < 4:
                each(X, i)
            else:
                with pytest.raises(IndexError):
                    each(X, i)
            if each is function:
                expected = capsys.readouterr()
        assert capsys.readouterr() == expected


class OfTheirs(Exception):
    def __init__(self, what: str, value: Any = None):
        super().__init__(what)
        self.value = value


def raises_text(x: Any) -> Any:
    if x[0] < 1:
        raise ValueError(f"too small: {x[0]:.2f} in {x}")
    return x


def raises_values(x: Any) -> Any:
    if x[0] < 1:
        raise KeyError("too small", x[0], [x])
    return x


def raises_in_a_loop(x: Any) -> Any:
    total = 0.0
    for i in range(40):
        total += x[i % 4]
        if total > 20:
            raise OverflowError("%d rounds: %.1f" % (i, total))  # noqa: UP031
    return total


def raises_always(x: Any) -> Any:
    raise ValueError(f"the sum is {x.sum()}")


def raises_theirs(x: Any) -> Any:
    if x[1] > 0:
        raise OfTheirs("theirs " + str(x[1]), x[1])
    return x


@pytest.mark.parametrize(
    "function", [raises_text, raises_values, asserts, raises_in_a_loop, raises_always, raises_theirs]
)
def test_exceptions_hold_the_values_of_the_run(function: Any) -> None:
    compiled = hlojit.jit(function)
    for given in (X, X + 0.125):
        with pytest.raises(Exception) as expected:
            function(given)
        with pytest.raises(type(expected.value)) as found:
            compiled(given)
        assert repr(found.value) == repr(expected.value)
        assert vars(found.value) == vars(expected.value)


def test_warnings_come_with_every_call() -> None:
    @hlojit.jit
    def function(x: Any) -> Any:
        if x[0] < 1:
            warnings.warn(f"small: {x[0]}", RuntimeWarning, stacklevel=1)
        return x

    for first in (0.5, 0.25):
        with pytest.warns(RuntimeWarning, match=f"small: {first}") as found:
            function(np.array([first]))
        assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(X + 1)


def test_effects_of_branches_that_give_nothing_are_kept() -> None:
    """An ``if`` whose branches change nothing was left out, with the calls in it."""
    printed = hlojit.jit(on_one_path).lower(X)
    assert str(printed).count("custom_call @hlojit.print") == 2


def length(x: Any) -> Any:
    return np.zeros(len(f"{x[0]}"))


def compares(x: Any) -> Any:
    return x if f"{x[0]}" == "0.0" else -x


def counts(x: Any) -> Any:
    d = {f"{x[0]}": 1}
    return np.zeros(len(d))


def gives(x: Any) -> Any:
    return f"{x[0]:.1f}"


@hlojit.as_is
def spelt(x: Any) -> str:
    return "%s" % x  # noqa: UP031


def of_an_uncompiled_function(x: Any) -> Any:
    if x[0] < 1:
        raise OfTheirs(spelt(x[0]))
    return x


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (length, "a text with traced values is known only"),
    (compares, "a text with traced values is known only"),
    (counts, "a text with traced values is known only"),
    (gives, "return the values, and format them outside"),
    (of_an_uncompiled_function, "made of a traced value by a function that is not compiled"),
]


@pytest.mark.parametrize(("function", "said"), REFUSED, ids=[each[0].__name__ for each in REFUSED])
def test_texts_that_the_function_needs_are_refused(function: Any, said: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=said):
        hlojit.jit(function)(X)


def test_derivatives_print_once(capsys: pytest.CaptureFixture[str]) -> None:
    @hlojit.grad
    def function(x: Any) -> Any:
        print("x is", x)
        if x[0] > 9:
            raise ValueError(f"{x[0]}")
        return (x * x).sum()

    np.testing.assert_array_equal(function(X), 2 * X)
    assert capsys.readouterr().out == f"x is {X}\n"
