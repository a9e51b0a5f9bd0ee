"""Custom calls: functions that a plugin binds to the target name of ``stablehlo.custom_call``.

An ``ElementwiseCall`` (``hlojit.extensions.elementwise_calls``) is a scalar function; an ``ExpansionCall`` builds the call out
of other ops::

    ExpansionCall("acme.twice", expand=lambda builder, call: [builder.add(call.operands[0], call.operands[0])])

Both are *checked*: nothing they do can crash the process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from hlojit.ir.attributes import Attribute
from hlojit.ir.errors import PluginError
from hlojit.ir.graph import Function, Instruction, Value
from hlojit.ir.ops.custom_calls import described
from hlojit.ir.ops.definition import OpDefinition
from hlojit.ir.types import Type


@dataclass(frozen=True, slots=True)
class CustomCall(ABC):
    """Base of the forms.  ``target`` is the ``call_target_name`` that programs use."""

    target: str

    @property
    def is_family(self) -> bool:
        """Whether the call is for all targets of a form that nobody binds by name."""
        return False

    @property
    def trust(self) -> str:
        """``checked``, or ``trusted native`` where a mistake in the plugin can crash the process."""
        return "checked"

    def records(self) -> Sequence[OpDefinition]:
        """Op records that calls of this target become; they are registered with the call."""
        return ()

    def refine(self, instruction: Instruction) -> Sequence[Type] | None:
        """Result types of a call by what is known of its operands, with ``DYNAMIC`` for sizes that are not; None for all of them.

        Asked where the call's own types leave sizes open (``tensor<?xf32>``), again for each combination of argument shapes.
        """
        return None

    @abstractmethod
    def replace(self, builder: Any, instruction: Instruction) -> Sequence[Value]:
        """Build what stands for one call and return its results."""


@dataclass(frozen=True, slots=True)
class ExpansionCall(CustomCall):
    """A function ``expand(builder, instruction)`` that builds the call out of other ops and returns the results.

    A ``*`` in the target stands for any characters: the call is then for all targets of that form that no plugin binds by name
    (of several forms, the longest).  ``expand`` raises ``UnsupportedError`` for a call that it does not take; it finds the
    call's configuration in ``call_config(instruction)``, the functions that it names in ``called_functions(instruction)``.
    """

    expand: Callable[[Any, Any], Sequence[Value]] = field(kw_only=True, default=cast(Any, None))

    def __post_init__(self) -> None:
        if not callable(self.expand):
            raise PluginError(
                f"custom call target {self.target!r}: an ExpansionCall needs expand=, a function (builder, instruction) that "
                f"returns a list of values; got {self.expand!r}"
            )

    @property
    def is_family(self) -> bool:
        return "*" in self.target

    def replace(self, builder: Any, instruction: Instruction) -> Sequence[Value]:
        """What ``expand`` builds."""
        return self.expand(builder, instruction)


def call_config(instruction: Instruction) -> Any:
    """The configuration of a custom call in plain Python, or None: its ``backend_config`` or ``mhlo.backend_config``."""
    attribute = config_attribute(instruction.attributes, instruction.discardable)
    return None if attribute is None else plain_value(attribute)


def called_functions(instruction: Instruction) -> tuple[Function, ...]:
    """The functions of the module that a custom call names in ``called_computations``, which have bodies.

    ``builder.call(function, ...)`` runs one where it stands, ``builder.inline(function.body, ...)`` copies it, into a region as
    well.  Raises ``PluginError`` for a name that is no function's; programs may have such, since some targets are told by name.
    """
    module = instruction.function.module if instruction.function is not None else None
    known = module.functions if module is not None else {}
    found = [(name, known.get(name)) for name in instruction.callees]
    for name, function in found:
        if function is None or function.is_declaration:
            raise PluginError(f"{described(instruction)} names the function @{name}, which the module does not have")
    return tuple(function for _, function in found if function is not None)


def config_attribute(attributes: Mapping[str, Any], discardable: Mapping[str, Attribute]) -> Attribute | None:
    """The configuration attribute of a custom call that is not empty, or None."""
    for attribute in (attributes.get("backend_config"), discardable.get("mhlo.backend_config")):
        if isinstance(attribute, Attribute) and not _is_empty(plain_value(attribute)):
            return attribute
    return None


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, dict, tuple)) and not value)


def plain_value(attribute: Attribute) -> Any:
    """A generic attribute as a Python value: dictionary, tuple, string, number, bool or (read-only) array; others stay."""
    from hlojit.ir import attributes as kinds

    match attribute:
        case kinds.DictAttr():
            return {name: plain_value(value) for name, value in attribute.items}
        case kinds.ArrayAttr():
            return tuple(map(plain_value, attribute.elements))
        case kinds.DenseArrayAttr():
            return attribute.values
        case kinds.UnitAttr():
            return True
        case kinds.BoolAttr() | kinds.IntegerAttr() | kinds.FloatAttr() | kinds.StringAttr():
            return attribute.value
        case kinds.SymbolAttr():
            return attribute.name
        case kinds.Dense():
            return attribute.array
    return attribute
