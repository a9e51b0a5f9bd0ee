"""Texts with traced values in them: they are put together when the compiled function runs.

``f"{x:.3f}"`` in a traced function is a ``Text``, which can be printed, raised, warned of and put into other texts.  What it
shows is what the values are where it is made.
"""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, final

import numpy as np
from hlojit.extensions.calls.host_texts import MESSAGE, PRINT, WARN, field
from hlojit.ir.attribute_values import attribute_of
from hlojit.ir.blocks import Block
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Value
from hlojit.ir.types import Type, tensor
from hlojit.tracing.calls.containers import Parted
from hlojit.tracing.checks import place_of
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.rewriting.protocol import Part
from hlojit.tracing.tracer import Tracer

_TYPED: Final = 4
"""The version of the call interface whose configuration is a dictionary."""
_ONLY: Final = (
    "a text with traced values is known only when the compiled function runs; print or raise it, or return the values"
)


@final
class Text:
    """The result of an operation of ``host_texts`` on arguments that hold traced values (``Leaf``)."""

    __slots__ = ("arguments", "operation")

    def __init__(self, operation: str, arguments: tuple[Any, ...]):
        self.operation = operation
        self.arguments = arguments

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What ``isinstance`` goes by."""
        return str

    def __repr__(self) -> str:
        return "<a text with traced values>"

    def __add__(self, other: Any) -> Text:
        return Text("text", (self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: Any) -> Text:
        return Text("text", (other, self)) if isinstance(other, str) else NotImplemented

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TracingError(_ONLY)

    def _refused(self, *arguments: Any) -> NoReturn:
        raise TracingError(_ONLY)

    __str__ = __format__ = __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = _refused
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __mod__ = __mul__ = __rmul__ = _refused


@final
@dataclass(frozen=True, eq=False)
class Leaf:
    """A traced value, as it was when the text was made."""

    value: Value
    kind: str


# -------------------------------------------------------------------------------------------------------------- making


def is_traced(ops: Operations, tree: Any) -> bool:
    """Whether something in it is known only when the function runs."""
    if type(tree) is Tracer:
        return tree.context is not ops or ops.known(tree) is None
    if type(tree) is Text or type(tree) is Leaf or isinstance(tree, Parted):
        return True
    if isinstance(tree, dict):
        return any(is_traced(ops, each) for pair in tree.items() for each in pair)
    return isinstance(tree, (list, tuple, set, frozenset)) and any(is_traced(ops, each) for each in tree)


def made(ops: Operations, operation: str, *arguments: Any) -> Text:
    """The text of an operation on these arguments."""
    ops.mark()
    return Text(operation, tuple(frozen(ops, each) for each in arguments))


def frozen(ops: Operations, tree: Any) -> Any:
    """The tree with the values that are traced now: arrays may be written before the text is shown."""
    kind = type(tree)
    if kind is Tracer:
        known = tree._known()
        return Leaf(ops.value(tree), _kind(tree)) if known is None else frozen(ops, known)
    if kind in (Text, Leaf, str, bool, int, float, type(None)):
        return tree
    if kind in (list, tuple):
        return kind(frozen(ops, each) for each in tree)
    if kind is dict:
        return {key: frozen(ops, value) for key, value in tree.items() if _is_key(key)}
    if isinstance(tree, (np.ndarray, np.generic, complex)) and np.asarray(tree).dtype.kind in "biufc":
        name = "complex" if kind is complex else "scalar" if isinstance(tree, np.generic) else "array"
        return Leaf(ops.value(tree), name)
    raise TracingError(f"a {kind.__name__} cannot stand in a text with traced values; print its parts")


def _is_key(key: Any) -> bool:
    if type(key) in (str, bool, int, float, type(None)):
        return True
    raise TracingError(f"a dictionary with the key {key!r} cannot stand in a text with traced values; print its parts")


def _kind(tracer: Tracer) -> str:
    if tracer.weak is not None:
        return tracer.weak.__name__
    # Refuses formats that NumPy does not know.
    assert tracer.dtype is not None
    return "scalar" if tracer.is_scalar else "array"


def formatted(ops: Operations, parts: Sequence[Part]) -> Any:
    """A formatted string: a ``str`` where nothing in it is traced."""
    found: list[Any] = [
        each if isinstance(each, str) else made(ops, "field", *each) if is_traced(ops, each) else field(*each)
        for each in parts
    ]
    return made(ops, "text", *found) if any(type(each) is Text for each in found) else "".join(found)


def shown(ops: Operations, operation: Callable[[Any], str], value: Any) -> Any:
    """``str(value)`` or ``repr(value)``."""
    if type(value) is Text and operation is str:
        return value
    return made(ops, operation.__name__, value) if is_traced(ops, value) else operation(value)


# ------------------------------------------------------------------------------------------------------ calls in a program


def printed(
    ops: Operations, *values: Any, sep: Any = None, end: Any = None, file: Any = None, flush: Any = False
) -> None:
    """``print``, whenever the function runs."""
    if file is not None and file is not sys.stdout and file is not sys.stderr:
        raise TracingError("a compiled function prints to sys.stdout or sys.stderr only; return what goes elsewhere")
    stream = "stderr" if file is sys.stderr and file is not sys.stdout else "stdout"
    options = {"sep": sep, "end": end, "flush": bool(flush), "file": stream}
    _tell(ops, PRINT, ([shown(ops, builtins.str, each) for each in values], options))


def warned(ops: Operations, message: Any, category: type[Warning] | None = None, stacklevel: Any = 1) -> None:
    """``warnings.warn``, whenever the function runs."""
    category = UserWarning if category is None else category
    name = str(category.__name__)
    if isinstance(message, Warning) or getattr(builtins, name, None) is not category:
        raise TracingError("a compiled function warns with a text and one of Python's own categories: UserWarning, ...")
    ops.mark()
    place = place_of(ops.builder.location)
    _tell(ops, WARN, (shown(ops, builtins.str, message), name, place.file, place.line))


def noted(ops: Operations, tree: Any, number: int) -> Value:
    """A number by which the call finds the values of a tree, and the number of the check that they belong to."""
    values: list[Value] = []
    text = json.dumps(_encoded(frozen(ops, tree), values))
    (code,) = _called(ops, MESSAGE, values, {"tree": text, "number": number}, [tensor((), "i32")])
    return code


def raised(ops: Operations, exception: BaseException) -> None:
    """Have the call raise this where the program comes here."""
    parts = (exception.args, vars(exception))
    for each in (exception, exception.__cause__):
        if each is not None and _shows_tracer(each):
            raise TracingError(
                f"the message of {type(each).__name__} is made of a traced value by a function that is not compiled; make it "
                "where it is raised: raise ValueError(f'... {x}')"
            )
    if is_traced(ops, getattr(exception.__cause__, "args", ())):
        raise TracingError("the cause of an exception cannot hold traced values; put them into the exception itself")
    ops.require_uncaught(type(exception))
    if is_traced(ops, parts):
        ops.checks.add_exception(ops.builder, exception, lambda number: noted(ops, parts, number))
    else:
        ops.checks.add_exception(ops.builder, exception)


def _shows_tracer(exception: BaseException) -> bool:
    """Whether a text in it has the name of a traced value in the place of the value."""
    return any(type(each) is str and "<traced " in each for each in exception.args)


def _tell(ops: Operations, target: str, tree: Any) -> None:
    """A call for its effect, where nothing has failed before."""
    ops.mark()
    values: list[Value] = []
    text = json.dumps(_encoded(frozen(ops, tree), values))
    failed = ops.checks.before
    if not failed:
        _called(ops, target, values, {"tree": text}, [])
        return
    outer, b = ops.builder, ops.builder
    none = b.constant(0, tensor((), "i32"))
    sound = [b.compare(each, none, "EQ") for each in failed]
    while len(sound) > 1:
        sound.append(b.create("and", [sound.pop(), sound.pop()]).result)
    blocks = [Block(()), Block(())]
    ops.builder = Builder(blocks[0], location=outer.location)
    try:
        _called(ops, target, values, {"tree": text}, [])
        ops.builder.return_()
    finally:
        ops.builder = outer
    Builder(blocks[1], location=outer.location).return_()
    outer.create("stablehlo.if", sound, regions=blocks)


def _called(
    ops: Operations, target: str, values: Sequence[Value], config: dict[str, Any], types: Sequence[Type]
) -> Sequence[Value]:
    attributes: dict[str, Any] = {
        "call_target_name": target,
        "api_version": _TYPED,
        "has_side_effect": True,
        "backend_config": attribute_of(config),
    }
    made = ops.builder.create("stablehlo.custom_call", list(values), attributes=attributes, result_types=list(types))
    return made.results


def _encoded(tree: Any, values: list[Value]) -> Any:
    """As ``host_texts`` reads it; adds what leaves name to ``values``."""
    kind = type(tree)
    if kind is Leaf:
        values.append(tree.value)
        return ["leaf", len(values) - 1, tree.kind]
    if kind is dict:
        return ["dict", *([key, _encoded(value, values)] for key, value in tree.items())]
    if kind in (list, tuple):
        return [kind.__name__, *_all_encoded(tree, values)]
    return [tree.operation, *_all_encoded(tree.arguments, values)] if kind is Text else tree


def _all_encoded(trees: Iterable[Any], values: list[Value]) -> list[Any]:
    return [_encoded(each, values) for each in trees]
