"""Errors of jitted functions: every one names the user's line, and its traceback has the user's frames only."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest

X = np.arange(3.0)


def element(x: Any, i: Any) -> Any:
    return x[i]


def index(x: Any, i: Any) -> Any:
    return element(x, i) * 2


def divided(n: Any) -> Any:
    return 7 // n


def masked(x: Any) -> Any:
    return x[x > 0].reshape(2, -1)


def other_shapes(x: Any) -> Any:
    return x + np.ones(4)


def cast_in_place(x: Any) -> Any:
    k = np.arange(3)
    k += x
    return k


def no_such_axis(x: Any) -> Any:
    return x.sum(axis=3)


def no_such_attribute(x: Any) -> Any:
    return x.foo


def no_such_name(x: Any) -> Any:
    return x + undefined_name  # type: ignore[name-defined]  # noqa: F821


def grows(x: Any, n: Any) -> Any:
    while n > 0:
        x = np.concatenate([x, x])
        n -= 1
    return x


def cannot_be_compiled(x: Any) -> Any:
    return hlojit.custom_call("nobody.knows", x, result=x)


CASES: list[tuple[Callable[..., Any], tuple[Any, ...], type[BaseException], str]] = [
    (index, (X, 5), IndexError, "return x[i] : an index is out of bounds"),
    (divided, (0,), ZeroDivisionError, "return 7 // n : integer division or modulo by zero"),
    (masked, (X,), hlojit.HlojitError, "return x[x > 0].reshape(2, -1) : <traced array of shape (at most"),
    (
        other_shapes,
        (X,),
        ValueError,
        "return x + np.ones(4) : operands could not be broadcast together with shapes (3,) (4,)",
    ),
    (cast_in_place, (X,), np._core._exceptions._UFuncOutputCastingError, "k += x : Cannot cast"),  # type: ignore[attr-defined]
    (no_such_axis, (X,), np.exceptions.AxisError, "return x.sum(axis=3) : axis 3 is out of bounds"),
    (no_such_attribute, (X,), AttributeError, "return x.foo : 'numpy.ndarray' object has no attribute 'foo'"),
    (no_such_name, (X,), NameError, "name 'undefined_name' is not defined"),
    (grows, (X, 3), hlojit.HlojitError, "while n > 0 : the variable 'x' is f64 of shape (3,)"),
    (cannot_be_compiled, (X,), hlojit.UnsupportedError, "return hlojit.custom_call"),
]


@pytest.mark.parametrize(("function", "arguments", "kind", "said"), CASES, ids=[each[0].__name__ for each in CASES])
def test_errors_name_the_line(
    function: Callable[..., Any], arguments: tuple[Any, ...], kind: type[BaseException], said: str
) -> None:
    for _ in range(2):
        with pytest.raises(kind) as caught:
            hlojit.jit(function)(*arguments)
        message = str(caught.value)
        assert message.startswith("test_reports.py:")
        assert said in message
        # This test, and functions of this file.
        assert {each.filename for each in traceback.extract_tb(caught.tb)} == {__file__}
        assert caught.value.__cause__ is None
        assert str(pickle.loads(pickle.dumps(caught.value)))


def test_the_place_of_a_check_is_in_the_traceback() -> None:
    with pytest.raises(IndexError) as caught:
        hlojit.jit(index)(X, 5)
    last = traceback.extract_tb(caught.tb)[-1]
    assert (last.name, last.line) == ("element", "return x[i]")


def raises(x: Any) -> Any:
    if x[0] < 1:
        raise KeyError("mine", 3)
    return x


def raises_always(x: Any) -> Any:
    raise KeyError("mine", 3)


@pytest.mark.parametrize("function", [raises, raises_always])
def test_what_a_function_raises_is_its_own(function: Any) -> None:
    with pytest.raises(KeyError) as caught:
        hlojit.jit(function)(X)
    assert caught.value.args == ("mine", 3)
    assert [each.name for each in traceback.extract_tb(caught.tb)][1:] == [function.__name__]


@pytest.mark.parametrize(
    ("arguments", "named", "said"),
    [
        ((), {}, "missing 2 required positional arguments: 'x' and 'i'"),
        ((X, 1, 2), {}, "takes 2 positional arguments but 3 were given"),
        ((X, 1), {"axis": 0}, "got an unexpected keyword argument 'axis'"),
    ],
)
def test_mistakes_of_calls_name_the_call(arguments: Any, named: Any, said: str) -> None:
    with pytest.raises(TypeError, match=r"^test_reports\.py:\d+: hlojit\.jit\(index\)\(\*arguments, .* : ") as caught:
        hlojit.jit(index)(*arguments, **named)
    assert said in str(caught.value)
    assert len(traceback.extract_tb(caught.tb)) == 1


def test_mistakes_of_decorating_name_the_line() -> None:
    with pytest.raises(hlojit.HlojitError, match=r"^test_reports\.py:\d+: .* : static_argnames names k"):
        hlojit.jit(static_argnames="k")(index)


def test_a_switch_shows_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_TRACEBACK", "full")
    with pytest.raises(IndexError, match=r"^test_reports\.py:\d+: return x\[i\] : ") as caught:
        hlojit.jit(index)(X, 5)
    assert any(Path(each.filename).name == "outcomes.py" for each in traceback.extract_tb(caught.tb))


def test_causes_of_the_users_stay() -> None:
    @hlojit.jit
    def function(x: Any) -> Any:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    with pytest.raises(ValueError, match="^second$") as caught:
        function(X)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__cause__.__traceback__ is not None


IN_A_NOTEBOOK = [
    ("return x[x > 0].reshape(2, -1)", "its length depends on values"),
    ("return x[np.argmax(x) + 1]", "out of bounds"),
    ("return x + np.ones(4)", "could not be broadcast together"),
    ("if x[0] < 1:\n        raise ValueError('mine')\n    return x", "mine"),
    ("return np.lexsort((x,))", "cannot be compiled"),
]


@pytest.mark.parametrize(("body", "said"), IN_A_NOTEBOOK)
def test_in_a_notebook_errors_are_short(body: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    shell = interactive.InteractiveShell.instance(colors="NoColor")
    try:
        cell = f"import hlojit, numpy as np\n\n@hlojit.jit\ndef function(x):\n    {body}\n\nx = np.arange(3.0)\n"
        shell.run_cell(f"{cell}\nfunction(x)\n")
        shown = capsys.readouterr().out.rstrip().splitlines()
        assert said in shown[-1] or said in shown[-2]
        assert len(shown) < 15, "\n".join(shown)
    finally:
        interactive.InteractiveShell.clear_instance()


TRANSFORMED: list[tuple[Callable[[], Any], str]] = [
    (lambda: hlojit.grad(lambda x: other_shapes(x).sum())(X), "return x + np.ones(4) : operands could not"),
    (lambda: hlojit.grad(lambda x: index(x, 5))(X), "return x[i] : "),
    (lambda: hlojit.vmap(no_such_axis)(X[None]), "return x.sum(axis=3) : "),
    (lambda: hlojit.jvp(other_shapes, (X,), (X,)), "return x + np.ones(4) : "),
    (lambda: hlojit.hessian(other_shapes)(X), "return x + np.ones(4) : "),
    (lambda: hlojit.jit(hlojit.vmap(no_such_axis))(X[None]), "return x.sum(axis=3) : "),
    (lambda: hlojit.grad(lambda x: x * 2)(X), "grad: the function must return a number"),
    (lambda: hlojit.op("nobody.knows")(X), "there is no op 'nobody.knows'"),
    (lambda: hlojit.jit(index).lower(X, "text"), "cannot be an index"),
]


@pytest.mark.parametrize(("call", "said"), TRANSFORMED)
def test_errors_of_transformations_and_ops_name_the_line(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(Exception) as caught:
        call()
    assert str(caught.value).startswith("test_reports.py:")
    assert said in str(caught.value)
    assert {each.filename for each in traceback.extract_tb(caught.tb)} == {__file__}
