"""What is wrong with a record that a plugin brings, as far as its fields say it; None where nothing is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any, Final

from hlojit.extensions.backends.backend import Backend
from hlojit.ir.errors import short_repr
from hlojit.ir.formats import ElementType
from hlojit.ir.ops.attribute_kinds import AttributeKind
from hlojit.ir.ops.definition import (
    AttributeSpec,
    Constraint,
    Cost,
    Expand,
    Indexed,
    Lowering,
    OpDefinition,
    Operand,
    Pointwise,
    Trait,
)
from hlojit.ir.passes.fusion_limits import FusionLimits
from hlojit.ir.passes.pass_manager import NUMERIC_EFFECTS, PHASES, Pass
from hlojit.ir.vendor_places import place_of

_SPELLING: Final = re.compile(r"!?[A-Za-z]\w*")
"""What the reader of types takes for the name of an element type."""

_NAME: Final = re.compile(r"[A-Za-z_][\w.+-]*")
_OP_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_$][\w$.-]*)+")

MAXIMUM_BITS: Final = 64


def pass_complaint(pass_: Pass) -> str | None:
    """Phase and order of a pass."""
    if not _NAME.fullmatch(pass_.name):
        return f"cannot be named in a pipeline: a name is {_NAME.pattern}"
    if pass_.phase not in PHASES:
        return f"names the phase {pass_.phase!r}; phases are {', '.join(PHASES)}"
    for attribute in ("before", "after", "targets"):
        value: Any = getattr(pass_, attribute)
        plain = not isinstance(value, str) and isinstance(value, Iterable)
        if not plain or not all(isinstance(each, str) for each in value):
            return f"has {attribute} = {value!r}, which is not a sequence of names such as ('cpu',)"
    complaint = _effect_complaint(pass_)
    if complaint:
        return complaint
    kind = type(pass_)
    fields = [
        name for name, declared in vars(kind).get("__annotations__", {}).items() if "ClassVar" not in str(declared)
    ]
    if fields and "__dataclass_fields__" not in vars(kind):
        what = f"has the field {fields[0]}, and its class {kind.__name__} is no dataclass"
        return f"{what}; decorate it with @dataclass(frozen=True)"
    return None if _takes(pass_.run, 1) else "cannot run: its method run takes no module; write def run(self, module)"


def _effect_complaint(pass_: Pass) -> str:
    """What a pass says that it does to numbers."""
    effect, bound = pass_.numeric_effect, pass_.error_bound
    if effect not in ("", *NUMERIC_EFFECTS):
        return f"has numeric_effect = {short_repr(effect)}; effects are {', '.join(NUMERIC_EFFECTS)}"
    is_number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
    if not is_number or not 0 <= bound < float("inf"):
        return f"has error_bound = {short_repr(bound)}, expected a number such as 1e-3"
    if (effect == "approximates") != (bound > 0):
        wanted = (
            "say by how much results may differ: error_bound = 1e-3" if not bound else "only what approximates has one"
        )
        return f"has numeric_effect = {effect!r} and error_bound = {bound!r}; {wanted}"
    return ""


def backend_complaint(backend: Backend) -> str | None:
    """Name of a back end, and what it says of itself as attributes."""
    if not _NAME.fullmatch(backend.name):
        hint = f" ({backend.name} is the name of a device)" if re.fullmatch(r".*:\d+", backend.name) else ""
        return f"cannot be named: a name is {_NAME.pattern}{hint}"
    for attribute in ("capability", "compile", "devices", "unavailable"):
        value: Any = getattr(backend, attribute, None)
        if not callable(value):
            return f"has {attribute} = {short_repr(value)}, which is not a function"
    if not isinstance(backend.fuses, bool):
        return f"has fuses = {short_repr(backend.fuses)}, expected True or False"
    if not isinstance(backend.fusion_limits, FusionLimits):
        return f"has fusion_limits = {short_repr(backend.fusion_limits)}, expected FusionLimits"
    return None


_PARTS: Final[dict[str, type]] = {
    "operands": Operand,
    "attributes": AttributeSpec,
    "regions": str,
    "constraints": Constraint,
}


def op_complaint(op: OpDefinition) -> str | None:
    """Name of an op, and the classes of what its record is made of."""
    if "." not in op.name:
        return f"has no dialect: call it 'acme.{op.name}' or the like"
    if not _OP_NAME.fullmatch(op.name):
        return f"cannot be written in a program: a name is {_OP_NAME.pattern}"
    for attribute, kind in _PARTS.items():
        value: Any = getattr(op, attribute)
        if not isinstance(value, (tuple, list)) or not all(isinstance(each, kind) for each in value):
            return f"has {attribute} = {short_repr(value)}, expected a tuple of {kind.__name__} objects"
    names = [each.name for each in op.operands]
    if len(set(names)) < len(names):
        return f"has two operands of one name: {', '.join(names)}"
    wrong = [each for each in op.attributes if not isinstance(each.kind, AttributeKind)]
    if wrong:
        return (
            f"has the attribute {wrong[0].name!r} of kind {short_repr(wrong[0].kind)}, expected one of AttributeKinds such as "
            "AttributeKinds.F32"
        )
    if not isinstance(op.traits, (frozenset, set, tuple, list)) or not all(isinstance(e, Trait) for e in op.traits):
        return f"has traits = {short_repr(op.traits)}, expected frozenset({{Trait.COMMUTATIVE, ...}})"
    if op.cost is not None and not isinstance(op.cost, Cost):
        return f"has cost = {short_repr(op.cost)}, expected Cost.CHEAP or Cost.EXPENSIVE"
    rule = getattr(op.lowering, "rule", None)
    if isinstance(op.lowering, (Pointwise, Indexed, Expand)) and not callable(rule):
        return f"has lowering = {short_repr(op.lowering)}, whose rule is not a function"
    if op.lowering is not None and not isinstance(op.lowering, Lowering):
        return f"has lowering = {short_repr(op.lowering)}, expected a Lowering such as Pointwise(rule) or Expand(rule)"
    for attribute in ("infer", "refine", "reference"):
        value = getattr(op, attribute)
        if value is not None and not callable(value):
            return f"has {attribute} = {short_repr(value)}, which is not a function"
    return _rules_complaint(op)


def _rules_complaint(op: OpDefinition) -> str | None:
    """Functions of an op's record that cannot be called as they will be: said here, and not at the first use."""
    operands = [each.name for each in op.operands]
    fixed = not any(each.variadic or each.optional for each in op.operands)
    rules: list[tuple[str, Any, list[str]]] = [("infer", op.infer, ["request"]), ("refine", op.refine, ["instruction"])]
    rules += [(f"constraint {each.label}", each.check, ["instruction"]) for each in op.constraints]
    if isinstance(op.lowering, Expand):
        rules.append(("the rule of Expand", op.lowering.rule, ["builder", "instruction"]))
    if fixed:
        rules.append(("reference", op.reference, ["call", *operands]))
        if isinstance(op.lowering, Pointwise):
            rules.append(("the rule of Pointwise", op.lowering.rule, ["builder", "call", *operands]))
    for what, function, given in rules:
        if function is not None and callable(function) and not _takes(function, len(given)):
            return f"has a function of other parameters: {what} is given ({', '.join(given)}){place_of(function)}"
    return None


def _takes(function: Any, count: int) -> bool:
    """Whether a function can be called with so many arguments, as far as it says."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def format_complaint(row: ElementType) -> str | None:
    """Name and width of an element type; float formats have checked their fields themselves."""
    if not _SPELLING.fullmatch(row.name):
        return f"cannot be written in a program: a name is {_SPELLING.pattern}"
    if not isinstance(row.bits, int) or not 1 <= row.bits <= MAXIMUM_BITS:
        return f"has {row.bits} bits; an element type has 1 to {MAXIMUM_BITS}"
    return None
