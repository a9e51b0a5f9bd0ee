"""Rewrite rules and the worklist that applies them.

A rule is a named function on one instruction that returns what to use instead of its results, or None::

    RULES = RuleSet("arithmetic")

    @RULES.rule("subtract", Effect.EXACT)
    def subtract_zero(rewriter: Rewriter, subtract: Instruction) -> Value | None:
        \"\"\"x - 0 is x, for -0.0 too.\"\"\"
        lhs, rhs = subtract.operands
        return lhs if is_splat(rhs, 0, sign=False) else None

The function's name is the rule's name.  Rules make new instructions through the ``Rewriter`` only, never change what
they are given, and each of them makes the program smaller, cheaper or more canonical, so that no two undo each other.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.attributes import Dense
from hlojit.ir.graph import Block, Instruction, Module, Value
from hlojit.ir.ops.definition import OpDefinition, Pointwise, op
from hlojit.ir.passes.graph_facts import Effects, is_terminator, program_blocks, splat_dense
from hlojit.ir.types import TensorType, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.passes.constant_folding import Folder


class Effect(enum.Enum):
    """What a rewrite does to numbers."""

    EXACT = "the same bits"
    PERMITTED = "a freedom that the specification leaves"
    APPROXIMATES = "other numbers: the user's choice"


Replacement = Value | Sequence[Value] | None
RuleFunction = Callable[["Rewriter", Instruction], Replacement]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewrite: the full names of the ops that it looks at, its effect on numbers, and the function."""

    name: str
    ops: tuple[str, ...]
    effect: Effect
    apply: RuleFunction

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.apply.__doc__ or "").strip().partition("\n")[0]


POINTWISE: Final = "pointwise"
"""In a rule's ops: every op whose lowering is pointwise."""


class RuleSet:
    """The rules of one file, in the order in which they are tried."""

    def __init__(self, name: str):
        self.name = name
        self.rules: list[Rule] = []

    def rule(self, ops: str, effect: Effect) -> Callable[[RuleFunction], RuleFunction]:
        """Add the decorated function as a rule for the ops (mnemonics separated by spaces, or ``POINTWISE``)."""

        def add(function: RuleFunction) -> RuleFunction:
            names = tuple(name if "." in name or name == POINTWISE else f"stablehlo.{name}" for name in ops.split())
            self.rules.append(Rule(getattr(function, "__name__", "rule"), names, effect, function))
            return function

        return add

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)


RuleTable = Mapping[str, tuple[Rule, ...]]


def rule_table(rules: Iterable[Rule], allowed: frozenset[Effect]) -> RuleTable:
    """The rules of the allowed effects by the op that they look at."""
    table: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.effect in allowed:
            for name in rule.ops:
                table.setdefault(name, []).append(rule)
    return {name: tuple(entries) for name, entries in table.items()}


RuleObserver = Callable[[Rule, Instruction], None]

_observer: ContextVar[RuleObserver | None] = ContextVar("rule observer", default=None)


@contextmanager
def observe_rules(observer: RuleObserver) -> Iterator[None]:
    """Have ``observer(rule, instruction)`` called whenever a rule fires, before the instruction is replaced."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


@dataclass
class RuleLimit:
    """How often rules (folding is one) may still fire, and the name of the one that fired last: for looking for a guilty one."""

    left: int
    last: str = ""


_limit: ContextVar[RuleLimit | None] = ContextVar("rule limit", default=None)


@contextmanager
def limited_rules(count: int) -> Iterator[RuleLimit]:
    """Have rules fire ``count`` times at most, in all rewriters of the block together."""
    limit = RuleLimit(count)
    token = _limit.set(limit)
    try:
        yield limit
    finally:
        _limit.reset(token)


class Rewriter:
    """Applies rules until none fires, visiting only what a rewrite may have changed.

    ``visits`` counts the instructions looked at: the measure of work that the scaling test compares.
    """

    _MOST_FIRINGS: Final = 64
    """Firings per instruction, on average, after which the rules must be running in a circle (our bug)."""

    def __init__(self, module: Module, table: RuleTable, folder: Folder | None = None):
        self.module = module
        self.effects = Effects(module)
        self.visits = 0
        self.fired = 0
        self.swept = False
        """Whether code that nothing reads was removed on the way."""
        self._table = table
        self._folder = folder
        self._rules: dict[str, tuple[Rule, ...]] = {}
        self._worklist: list[Instruction] = []
        self._waiting: set[Instruction] = set()
        self._anchor: Instruction | None = None
        self._observer = _observer.get()
        self._limit = _limit.get()

    def run(self) -> bool:
        """Rewrite every block that the host program runs; combiners are left alone."""
        for function in self.module.functions.values():
            for block in program_blocks(function):
                self._worklist.extend(block)
        self._worklist.reverse()
        self._waiting.update(self._worklist)
        limit = self._MOST_FIRINGS * (len(self._worklist) + 16)
        while self._worklist:
            instruction = self._worklist.pop()
            self._waiting.discard(instruction)
            if instruction.block is not None:
                self._visit(instruction)
                assert self.fired < limit, f"rewrite rules run in a circle around {instruction.op.name}"
        return self.fired > 0 or self.swept

    def _visit(self, instruction: Instruction) -> None:
        self.visits += 1
        for result in instruction.results:
            if result.users:
                break
        else:
            if not is_terminator(instruction) and not self.effects.has_effect(instruction):
                self._erase(instruction)
                self.swept = True
                return
        self._anchor = instruction
        if self._limit is not None and self._limit.left <= 0:
            return
        if self._folder is not None and self._fold(instruction):
            self._count("constant-folding")
            return
        for rule in self._rules_for(instruction.op):
            replacement = rule.apply(self, instruction)
            if replacement is not None:
                if self._observer is not None:
                    self._observer(rule, instruction)
                self._count(rule.name)
                self.fired += 1
                self._replace(instruction, (replacement,) if isinstance(replacement, Value) else tuple(replacement))
                return

    def _count(self, name: str) -> None:
        if self._limit is not None:
            self._limit.left -= 1
            self._limit.last = name

    def _rules_for(self, record: OpDefinition) -> tuple[Rule, ...]:
        rules = self._rules.get(record.name)
        if rules is None:
            rules = self._table.get(record.name, ())
            if isinstance(record.lowering, Pointwise):
                rules += self._table.get(POINTWISE, ())
            self._rules[record.name] = rules
        return rules

    def _fold(self, instruction: Instruction) -> bool:
        assert self._folder is not None
        folded = self._folder.fold(instruction)
        if folded is None:
            return False
        self.fired += 1
        self._replace(instruction, tuple(map(self.constant, folded)))
        return True

    def _replace(self, instruction: Instruction, values: tuple[Value, ...]) -> None:
        for result, value in zip(instruction.results, values, strict=True):
            assert result.type is value.type, f"{instruction.op.name}: {result.type} replaced by {value.type}"
            for user in result.users:
                self.revisit(user)
            if result.name_hint and not value.name_hint and not value.is_argument:
                value.name_hint = result.name_hint
            result.replace_all_uses_with(value)
        self._erase(instruction)

    def _erase(self, instruction: Instruction) -> None:
        operands = instruction.operands
        instruction.erase()
        for operand in operands:
            producer = operand.owner
            if isinstance(producer, Instruction):
                # It may be dead now, or have one user left, which some rules wait for.
                self.revisit(producer)

    def revisit(self, instruction: Instruction) -> None:
        """Have the instruction looked at again."""
        if instruction not in self._waiting:
            self._waiting.add(instruction)
            self._worklist.append(instruction)

    # -- what rules build with -------------------------------------------------------------------------------------

    def create(
        self,
        mnemonic: str,
        operands: Sequence[Value],
        result_types: Type | Sequence[Type],
        attributes: Mapping[str, Any] | None = None,
        regions: Sequence[Block] = (),
    ) -> Any:
        """Make an instruction in front of the one being rewritten; returns its result, or the tuple of results."""
        anchor = self._anchor
        assert anchor is not None and anchor.block is not None
        types = (result_types,) if isinstance(result_types, Type) else result_types
        created = Instruction(op(mnemonic), operands, types, attributes, regions, location=anchor.location)
        anchor.block.insert_before(anchor, created)
        self.revisit(created)
        return created.results[0] if len(created.results) == 1 else created.results

    def create_like(
        self, instruction: Instruction, operands: Sequence[Value], result_type: Type | None = None
    ) -> Value:
        """The same op with the same attributes on other operands (ops with one result and no region)."""
        types = [instruction.results[0].type if result_type is None else result_type]
        anchor = self._anchor
        assert anchor is not None and anchor.block is not None
        created = Instruction(
            instruction.op,
            operands,
            types,
            instruction.attributes,
            (),
            instruction.discardable,
            instruction.location,
        )
        anchor.block.insert_before(anchor, created)
        self.revisit(created)
        return created.results[0]

    def constant(self, dense: Dense) -> Value:
        """A constant with these elements."""
        value: Value = self.create("stablehlo.constant", (), dense.type, {"value": dense})
        return value

    def splat(self, type: TensorType, element: Any) -> Value:
        """A constant with one element value."""
        return self.constant(splat_dense(type, element))

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """``value`` in another shape; itself if it has that shape."""
        type = value.tensor_type
        if type.shape == tuple(shape):
            return value
        reshaped: Value = self.create("stablehlo.reshape", [value], tensor(shape, type.element_type))
        return reshaped

    def inline(self, region: Block, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """Move a region's instructions in front of the one being rewritten; returns what the region returned.

        The region is used up: the instruction that holds it must be replaced.
        """
        anchor = self._anchor
        assert anchor is not None and anchor.block is not None
        for parameter, argument in zip(region.arguments, arguments, strict=True):
            parameter.replace_all_uses_with(argument)
        for instruction in region:
            if not is_terminator(instruction):
                instruction.unlink()
                anchor.block.insert_before(anchor, instruction)
                self.revisit(instruction)
        return region.returned
