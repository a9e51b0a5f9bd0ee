"""What loops and branches carry: values of several paths that must become one.

>>> joined([form_of(ops, 1), form_of(ops, 2.5)], lambda: "the result")    # a Python float
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from hlojit.ir.graph import Value
from hlojit.ir.types import TensorType, tensor
from hlojit.tracing.arrays.kinds import common_kind, element_of, kind_of
from hlojit.tracing.arrays.layouts import Strides, compact
from hlojit.tracing.calls.containers import Structure, flatten, paths
from hlojit.tracing.calls.pytrees import object_advice
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.python_numbers import python_kind
from hlojit.tracing.tracer import Kind, Tracer

_NUMBERS: Final = (bool, int, float, complex)


@final
@dataclass(frozen=True)
class Form:
    """What one leaf is on all paths: a Python number, a NumPy scalar or an array, of which type."""

    tensor_type: TensorType
    weak: type | None
    is_scalar: bool
    strides: Strides | None = None
    """How an array lies, if that is known and the same on all paths."""

    def tracer(self, ops: Operations, value: Value) -> Tracer:
        """A traced value of this form."""
        made = ops.wrap(value, self.strides)
        return Tracer(made.window, ops, is_scalar=self.is_scalar, weak=self.weak)

    def __str__(self) -> str:
        if self.weak is not None:
            return f"a Python {self.weak.__name__}"
        shape = (
            f" of shape {self.tensor_type.shape}"
            if self.tensor_type.shape
            else (" number" if self.is_scalar else " array")
        )
        return f"{self.tensor_type.element_type}{shape}"


def is_number_or_array(leaf: Any) -> bool:
    """Whether a leaf can be an element of a program."""
    if isinstance(leaf, (Tracer, np.generic)) or type(leaf) in _NUMBERS:
        return True
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def form_of(ops: Operations, leaf: Any) -> Form:
    """The form of one leaf alone."""
    weak = python_kind(leaf)
    if weak is not None:
        return Form(tensor((), element_of(np.dtype(weak))), weak, True)
    is_scalar = leaf.is_scalar if isinstance(leaf, Tracer) else isinstance(leaf, np.generic)
    if isinstance(leaf, Tracer):
        return Form(leaf.type, None, is_scalar, compact(leaf.shape, leaf.window.strides))
    return Form(tensor(np.shape(leaf), element_of(kind_of(leaf))), None, is_scalar)


def joined(forms: Sequence[Form], says: Callable[[], str]) -> Form:
    """The form that holds leaves of all these forms; raises ``TracingError`` that begins with ``says()``."""
    if len({form.strides for form in forms}) > 1:
        forms = [dataclasses.replace(form, strides=None) for form in forms]
    first = forms[0]
    if all(form == first for form in forms):
        return first
    ops = Operations.in_work.get()
    if ops is not None:
        ops.widened += 1
    weak = [form.weak for form in forms if form.weak is not None]
    strong: list[Kind] = [
        form.tensor_type.element_type.dtype or form.tensor_type.element_type for form in forms if form.weak is None
    ]
    if not strong:
        kind = max(weak, key=_NUMBERS.index)
        if bool in weak and kind is not bool:
            raise TracingError(f"{says()} is a truth value on one path and a number on another; make it one of both")
        return Form(tensor((), element_of(np.dtype(kind))), kind, True)
    if len({form.tensor_type.shape for form in forms}) > 1:
        raise TracingError(
            f"{says()} is {' and '.join(dict.fromkeys(map(str, forms)))}: it must have one shape on all paths"
        )
    if len(set(strong)) > 1:
        raise TracingError(
            f"{says()} is {' and '.join(dict.fromkeys(map(str, forms)))}: convert it to one type with .astype"
        )
    kind_ = common_kind(strong, says(), [each(0) for each in weak])
    if kind_ != strong[0]:
        raise TracingError(f"{says()} is {' and '.join(dict.fromkeys(map(str, forms)))}: convert it to one type")
    return Form(tensor(first.tensor_type.shape, element_of(kind_)), None, all(form.is_scalar for form in forms))


def value_in(ops: Operations, leaf: Any, form: Form) -> Value:
    """The value of a leaf in a form that was joined of its own."""
    element = form.tensor_type.element_type
    return ops.value(leaf, element.dtype if element.dtype is not None else element)


@final
class Leaves:
    """What one path gives: leaves that are traced or can be, others that stay as they are, and the containers around."""

    def __init__(self, tree: Any):
        self.all, self.structure = flatten(tree)
        self.names = [path for path, _ in paths(tree)]
        self.places = [number for number, leaf in enumerate(self.all) if is_number_or_array(leaf)]

    @property
    def traced(self) -> list[Any]:
        """The leaves that are numbers and arrays."""
        return [self.all[place] for place in self.places]

    def with_traced(self, leaves: Sequence[Any]) -> list[Any]:
        """All leaves, with others for the numbers and arrays."""
        made = list(self.all)
        for place, leaf in zip(self.places, leaves, strict=True):
            made[place] = leaf
        return made


def require_alike(several: Sequence[Leaves], what: str) -> None:
    """Raise where paths give other containers, or other things that are no numbers."""
    first = several[0]
    for other in several[1:]:
        if other.structure != first.structure or other.places != first.places:
            raise TracingError(f"{what} give other containers: {_shown(first.structure)} and {_shown(other.structure)}")
        for place, (one, two) in enumerate(zip(first.all, other.all)):
            if place not in first.places and one is not two and one != two:
                raise TracingError(
                    f"{what} give {one!r} and {two!r}; only numbers and arrays can differ{object_advice(one)}"
                )


def _shown(structure: Structure) -> str:
    if structure == "leaf":
        return "an array"
    kind, keys, children = structure[:3]
    if kind is type(None):
        return "None"
    return f"{kind.__name__} of {len(children)}" + (f" ({', '.join(map(str, keys))})" if kind is dict else "")
