"""Custom calls: functions that a plugin binds to the target name of ``stablehlo.custom_call``.

An ``ElementwiseCall`` (``hlojit.extensions.calls.elementwise_calls``) is a scalar function; an ``ExpansionCall`` builds the
call out of other ops::

    ExpansionCall("acme.twice", expand=lambda builder, call: [builder.add(call.operands[0], call.operands[0])])

Both are *checked*: nothing they do can crash the process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
from hlojit.extensions.origins import BACKENDS
from hlojit.ir.attributes import Attribute
from hlojit.ir.environment import tables
from hlojit.ir.errors import PluginError, UnsupportedError, short_repr
from hlojit.ir.graph import Function, Instruction, Value
from hlojit.ir.named_fields import named_fields
from hlojit.ir.near_names import did_you_mean
from hlojit.ir.ops.custom_calls import described
from hlojit.ir.ops.definition import OpDefinition
from hlojit.ir.types import Type
from hlojit.ir.vendor_places import place_of, told


@dataclass(frozen=True, slots=True)
class CallTypes:
    """What a rule for result types knows of a call: ``operands`` may have sizes that are not known (``DYNAMIC``).

    ``config`` is the call's configuration in plain Python, or None.
    """

    target: str
    operands: tuple[Any, ...]
    config: Any


@dataclass(frozen=True, slots=True)
class CustomCall(ABC):
    """Base of the forms.  ``target`` is the ``call_target_name`` that programs use.

    The fields are the same for all forms.  ``result_types`` is a function of the ``CallTypes`` that returns the results' types
    (one, or a list): calls are checked against it, sizes that a program leaves open follow from it, and ``hlojit.custom_call``
    needs no ``result=``.  ``effects``: calls are made in the program's order, also where nobody reads a result.  ``aliases``
    pairs operands with results that lie in their memory.  ``cost`` is what a call takes, in nanoseconds, or a function of the
    ``CallTypes``.  ``devices`` names the back ends that the call is for; others refuse it.  ``jvp`` and ``batching`` are rules
    that transformations of functions look for.
    """

    target: str
    result_types: Callable[[CallTypes], Any] | None = field(default=None, kw_only=True)
    effects: bool = field(default=False, kw_only=True)
    aliases: tuple[tuple[int, int], ...] = field(default=(), kw_only=True)
    cost: float | Callable[[CallTypes], float] | None = field(default=None, kw_only=True)
    devices: tuple[str, ...] = field(default=(), kw_only=True)
    jvp: Callable[..., Any] | None = field(default=None, kw_only=True)
    batching: Callable[..., Any] | None = field(default=None, kw_only=True)

    is_computation: ClassVar[bool] = False
    """Whether calls become other ops, or scalars in loops: what runs in their place has no effects, and no memory of its own."""

    def complaint(self) -> str | None:
        """What is wrong with the fields, or None."""
        if "*" in self.target and not self.is_family:
            return "has a * in its target, which stands for other characters in an ExpansionCall only"
        for name in ("result_types", "jvp", "batching"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                return f"has {name}={getattr(self, name)!r}, which is not a function"
        if not isinstance(self.effects, bool):
            return f"has effects={self.effects!r}, which is neither True nor False"
        if not _are_pairs(self.aliases):
            return f"has aliases={self.aliases!r}; they are pairs of an operand's and a result's number, each once: ((0, 0),)"
        if not (self.cost is None or callable(self.cost) or _is_time(self.cost)):
            return f"has cost={self.cost!r}, which is neither nanoseconds nor a function of the call's types"
        names = self.devices if isinstance(self.devices, (tuple, list, set, frozenset)) else (None,)
        if not all(isinstance(each, str) and each for each in names):
            return f"has devices={self.devices!r}; they are names of back ends: ('nova',)"
        if self.is_computation and (self.effects or self.aliases):
            name = "effects" if self.effects else "aliases"
            return f"is of a form that becomes other ops, which has no {name}; an ArrayCall has"
        return None

    @property
    def is_family(self) -> bool:
        """Whether the call is for all targets of a form that nobody binds by name."""
        return False

    @property
    def trust(self) -> str:
        """``checked``, or ``trusted native`` where a mistake in the plugin can crash the process."""
        return "checked"

    @property
    def level(self) -> str:
        """The same, where ``trust`` names a form."""
        return self.trust

    @property
    def user(self) -> str:
        """How messages name the call."""
        return f"custom call target {self.target!r}"

    def records(self) -> Sequence[OpDefinition]:
        """Op records that calls of this target become; they are registered with the call."""
        return ()

    def refine(self, instruction: Instruction) -> Sequence[Type] | None:
        """Result types of a call by what is known of its operands, with ``DYNAMIC`` for sizes that are not; None for all of them.

        Asked where the call's own types leave sizes open (``tensor<?xf32>``), again for each combination of argument shapes.
        """
        return self.types_of(instruction)

    def types_of(self, instruction: Instruction) -> Sequence[Type] | None:
        """What ``result_types`` says of a call, or None where there is no such rule."""
        if self.result_types is None:
            return None
        return self.ruled_types(instruction.operand_types, call_config(instruction))

    def ruled_types(self, operands: Sequence[Type], config: Any) -> Sequence[Type] | None:
        """What ``result_types`` says of operands and a configuration; raises ``PluginError`` where it fails."""
        if self.result_types is None:
            return None
        try:
            found = self.result_types(CallTypes(self.target, tuple(operands), config))
        except UnsupportedError as error:
            raise error.about(self.user) from error
        except Exception as error:
            listed = ", ".join(map(str, operands))
            raise PluginError(
                f"{self.user}: result_types failed for ({listed}): {told(error, self.result_types)}"
            ) from error
        types = [found] if isinstance(found, Type) else found
        if not isinstance(types, (list, tuple)) or not all(isinstance(each, Type) for each in types):
            raise PluginError(
                f"{self.user}: result_types returned {found!r}, which is neither a type nor a list of types"
            )
        return types

    def nanoseconds(self, instruction: Instruction) -> float | None:
        """What a call takes as ``cost`` says, or None."""
        if self.cost is None or not callable(self.cost):
            return None if self.cost is None else float(self.cost)
        try:
            stated: Any = self.cost(CallTypes(self.target, tuple(instruction.operand_types), call_config(instruction)))
        except Exception as error:
            found = f"{told(error, self.cost)}"
            raise PluginError(f"{self.user}: cost failed: {found}\n  at {instruction.location}") from error
        if not _is_time(stated):
            raise PluginError(
                f"{self.user}: cost returned {short_repr(stated)}, which is no number of nanoseconds{place_of(self.cost)}"
                f"\n  at {instruction.location}"
            )
        return float(stated)

    @abstractmethod
    def replace(self, builder: Any, instruction: Instruction) -> Sequence[Value]:
        """Build what stands for one call and return its results."""


@named_fields
@dataclass(frozen=True, slots=True)
class ExpansionCall(CustomCall):
    """A function ``expand(builder, instruction)`` that builds the call out of other ops and returns the results.

    A ``*`` in the target stands for any characters: the call is then for all targets of that form that no plugin binds by name
    (of several forms, the longest).  ``expand`` raises ``UnsupportedError`` for a call that it does not take; it finds the
    call's configuration in ``call_config(instruction)``, the functions that it names in ``called_functions(instruction)``.
    """

    is_computation: ClassVar[bool] = True
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


@named_fields
@dataclass(frozen=True, slots=True)
class DeclaredCall(CustomCall):
    """A target of which only the fields are known: what it computes, a back end knows that keeps such calls (``devices``)."""

    def complaint(self) -> str | None:
        """As for the other forms."""
        return CustomCall.complaint(self) or (None if self.devices else "needs devices=, the back ends that know it")

    def replace(self, builder: Any, instruction: Instruction) -> Sequence[Value]:
        """Nothing can."""
        raise UnsupportedError(
            described(instruction), "", f"only {listed_devices(self)} can do it", instruction.location
        )


def listed_devices(call: CustomCall) -> str:
    """The back ends that a call is for, in a message."""
    known = tables().table(BACKENDS)
    unknown = [each for each in call.devices if each not in known]
    hint = f" (nobody registers {unknown[0]!r}{did_you_mean(unknown[0], known)})" if unknown else ""
    return f"the back end{'s' if len(call.devices) > 1 else ''} {', '.join(map(repr, call.devices))}{hint}"


def _is_time(stated: object) -> bool:
    return (
        isinstance(stated, (int, float, np.number)) and not isinstance(stated, (bool, np.bool_)) and bool(stated >= 0)
    )


def _are_pairs(aliases: Any) -> bool:
    if not isinstance(aliases, tuple):
        return False
    pairs = [each for each in aliases if isinstance(each, tuple) and len(each) == 2]
    numbers = [number for pair in pairs for number in pair]
    if len(pairs) < len(aliases) or not all(type(number) is int and number >= 0 for number in numbers):
        return False
    return all(len({pair[side] for pair in pairs}) == len(pairs) for side in (0, 1))


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
