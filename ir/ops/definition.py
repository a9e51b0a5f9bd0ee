"""``OpDefinition``: everything that hlojit knows about an op, in one record.

Parser, printer, verifier, interpreter, passes, back ends, the op-status table and the tests all derive from these
records; no other file branches on an op's name (a back end's table of library kernels is the one exception).

    ADD = define(OpDefinition(
        "stablehlo.add",
        operands=(Operand("lhs"), Operand("rhs")),
        infer=same_as_operands,
        constraints=(Constraint("C1", check_same_types),),
        reference=lambda call, lhs, rhs: lhs + rhs,
        syntax="pretty-same-type",
        traits=frozenset({Trait.COMMUTATIVE}),
        lowering=Pointwise(arithmetic.add),
    ))
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from hlojit.ir.environment import OPS, process_environment, tables
from hlojit.ir.errors import HlojitError
from hlojit.ir.named_fields import named_fields
from hlojit.ir.types import TensorType, Type

if TYPE_CHECKING:
    from hlojit.ir.graph import Block, Instruction, Value
    from hlojit.ir.ops.attribute_kinds import AttributeKind
    from hlojit.ir.ops.batching.kinds import BatchingRule
    from hlojit.ir.ops.derivatives.kinds import Derivative
    from hlojit.ir.ops.padded_values import PaddingRule
    from hlojit.ir.ops.parts import RuleOfParts
    from hlojit.ir.ops.symbolic_values import ShapeRule
    from hlojit.ir.scalar.builder import Scalar

Array = np.ndarray[Any, Any]


class Trait(enum.Enum):
    """Facts about an op that passes and the verifier use."""

    COMMUTATIVE = "the two operands may be exchanged"
    ASSOCIATIVE = "may be reassociated in a reduction, as the specification's freedom of order allows"
    EFFECT = "has effects: neither removed, duplicated nor merged"
    TERMINATOR = "ends a block"
    STRUCTURAL = "is control flow or module structure"
    CONSTANT = "is a constant"
    BITCAST = "alone, outside a fused kernel, its result is the operand's memory"
    IDEMPOTENT = "applied to its own result gives that result; of two operands: of x and x, x"
    MAXIMUM = "gives the larger of two operands; NaN if either is NaN, and 0.0 is larger than -0.0"
    MINIMUM = "gives the smaller of two operands; NaN if either is NaN, and -0.0 is smaller than 0.0"
    SELECTION = "gives the second operand where the first is true, the third elsewhere"
    COMPARISON = "compares two operands as comparison_direction and compare_type say (see CompareView)"
    SORTS = "puts its operands into the order of its comparator along a dimension (see SortView)"
    PART = "gives the part of its operand between starts and limits (see SliceView)"
    NUMBERS = "gives elements their numbers along a dimension (see IotaView)"
    CONJUNCTION = "of booleans: true where both operands are"
    DISJUNCTION = "of booleans: true where at least one operand is"
    DEQUANTIZES = "computes with the numbers that quantized elements stand for, and quantizes what it gives"
    ADDS = "gives the sum of its two operands"
    SUBTRACTS = "gives the difference of its two operands"
    MULTIPLIES = "gives the product of its two operands"
    BEGINS = "takes a part of its first operand, or puts its second one there; the last operands are where that begins, clamped"
    ORDERS = "only compares elements and moves them: stored integers of one quantized type as well as their numbers"
    PER_AXIS = "takes and gives tensors quantized per axis, too"
    ASYNCHRONOUS = "may be the body of an asynchronous call"
    PARTS = "takes numbers apart into their parts, or puts them together: all that must know them in memory"
    TALKS = "gives whoever is at the other end of a channel its operands, or takes its results: done by the host, on any machine"
    UNRANKED = "takes and gives tensors of which not even the rank is known"
    SENDS = "gives its operands, the last one aside, to who receives from its channel"
    RECEIVES = "gives what comes through its channel, and a token"
    FUSION = "its one region is the body of one kernel"


class Cost(enum.Enum):
    """What computing an element costs, its operands left aside: fusions compute cheap elements again and again."""

    CHEAP = "an instruction or two: less than reading the element from memory"
    EXPENSIVE = "a division, a polynomial or a call: as much as reading from memory or more, never computed twice"


@named_fields
@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of an op; a variadic one takes what the others leave.  The elements of ``sizes`` decide result shapes."""

    name: str
    variadic: bool = False
    optional: bool = False
    sizes: bool = False


@named_fields
@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """One attribute of an op: its kind converts from and to text; ``default`` is not printed."""

    name: str
    kind: AttributeKind
    optional: bool = False
    default: Any = None


@named_fields
@dataclass(frozen=True, slots=True)
class Constraint:
    """A rule under its label; ``check`` returns a complaint or None.

    The label is the specification's (``C1``, ``I2``), or a word (``aliases``) for a rule that it does not number.
    """

    label: str
    check: Callable[[Instruction], str | None]
    compares_results: bool = False
    """Whether it says all there is to say of the result types; without such a one the verifier compares them itself."""


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """What type inference sees: operand types, attributes and regions of an instruction not yet made."""

    operand_types: tuple[Type, ...]
    attributes: Mapping[str, Any]
    regions: Sequence[Block] = ()


InferenceRule = Callable[[InferenceRequest], Sequence[Type]]
RefinementRule = Callable[["Instruction"], "Sequence[Type] | None"]
"""``rule(instruction)`` returns the result types as far as they are known, or None."""


class ReferenceCall(Protocol):
    """What an op's reference semantics may ask of the interpreter."""

    instruction: Instruction
    process: int
    """The number of the process that runs the program, among several that do."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The instruction's converted attributes."""

    def exchange(self, members: tuple[int, ...], value: Any) -> Mapping[int, Any]:
        """What each of some processes, in ascending order, has at this instruction: this one ``value``."""

    def run(self, region: int, *arguments: Any) -> tuple[Any, ...]:
        """Evaluate one of the instruction's regions and return what its terminator returns."""

    def call(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        """Evaluate a function of the module."""


ValueRange = tuple[int, int]
"""Least and greatest value of the elements of an integer tensor."""
RangeOf = Callable[["Value"], "ValueRange | None"]
"""Gives the bounds of a value, or None where nothing is known."""


class Lowering:
    """Base of the ways in which an op becomes code."""

    __slots__ = ()


@named_fields
@dataclass(frozen=True, slots=True)
class Pointwise(Lowering):
    """The element at an index from the operands' elements at that index: ``rule(builder, call, *scalars)``.

    ``call`` is the ``PointwiseCall`` below; scalars are in compute form (see ``hlojit.ir.scalar.builder``).  Operands of
    rank 0 are the same for every index (``clamp``, ``select``).  Whoever runs the rule rounds its result into a float
    format that is not native, and wraps a sub-byte integer; ``exact`` says that there is nothing to round or wrap.
    ``moves``: the result is an element of one of the operands of its type, bit for bit, and the rule never looks at what
    these stand for; it is also given memory forms.
    """

    rule: Callable[..., Scalar]
    exact: bool = False
    moves: bool = False


@named_fields
@dataclass(frozen=True, slots=True)
class Indexed(Lowering):
    """The element at an index from operand elements at other indices: ``rule(emitter, instruction, index)``.

    ``index`` is a tuple of index expressions, one a dimension of the result; see ``hlojit.lowering.index``.
    """

    rule: Callable[[Any, Instruction, Any], Scalar]
    reads: Callable[[Instruction, int], float] | None = None
    """How many elements of operand ``number`` one element of the result reads on average: ``reads(instruction, number)``;
    one, if this is None.  Elements of a concatenation read less than one of each operand."""
    broadcasts: Callable[[Instruction], tuple[int, ...]] | None = None
    """For an op that only repeats its operand's elements: the dimension of the result that each of the operand's is."""
    moves: bool = False
    """The result is an element of one of the operands of its type, bit for bit; the rule is also given memory forms."""
    looks_up: bool = False
    """Which elements it reads is known when it runs only: operands hold indices."""
    expansion: Callable[[Any, Instruction], Sequence[Value] | None] | None = None
    """A rule like that of ``Expand``, for back ends that do not take an instruction as it is."""


@named_fields
@dataclass(frozen=True, slots=True)
class Reduction(Lowering):
    """Inits and a combiner region over some dimensions of the inputs; ``expansion`` as that of ``Kernel``."""

    expansion: Callable[[Any, Instruction], Sequence[Value] | None] | None = field(default=None, compare=False)


@named_fields
@dataclass(frozen=True, slots=True)
class Expand(Lowering):
    """Into other ops: ``rule(builder, instruction)`` builds them and returns the replacement values.

    It returns None, having built nothing, where it does not apply (a shape operand that is no constant).
    """

    rule: Callable[[Any, Instruction], Sequence[Value] | None]


@dataclass(frozen=True, slots=True)
class Kernel(Lowering):
    """A routine that each back end supplies under this name.

    ``operations(instruction)`` counts its arithmetic, two for a multiply-add; ``runs(instruction)`` says how often its region
    runs, about.  Without either the region counts as run once for each element of the result or of the last operand.
    ``expansion`` is a rule as that of ``Expand``, for back ends without the routine and for instructions that it is not for:
    ``declines(instruction)`` says why, or an empty string.  ``without`` says why a back end may have none.
    """

    name: str
    operations: Callable[[Instruction], int] | None = field(default=None, compare=False)
    runs: Callable[[Instruction], int] | None = field(default=None, compare=False)
    takes_pairs: bool | Callable[[Instruction], bool] = field(default=False, compare=False)
    """Whether it takes complex numbers as they are in memory (or those of which instructions); to others they are their parts."""
    expansion: Callable[[Any, Instruction], Sequence[Value] | None] | None = field(default=None, compare=False)
    declines: Callable[[Instruction], str] | None = field(default=None, compare=False)
    without: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class HostFunction(Kernel):
    """A kernel that is a plugin's function of arrays, which the host calls (``hlojit.extensions.functions.array_functions``)."""

    function: Any = None


@dataclass(frozen=True, slots=True)
class DeviceFunction(Lowering):
    """One launch of a function that a plugin has written for the machine of one back end.

    ``user`` is what messages call it; ``geometry`` says for types of operands and results how many blocks of how many threads
    with how many shared bytes are launched; ``substitute`` computes the results from NumPy arrays where the machine is not.
    """

    backend: str
    user: str
    function: Callable[..., Any]
    geometry: Callable[[Sequence[TensorType], Sequence[TensorType]], tuple[int, int, int]]
    substitute: Callable[..., Any] | None = None

    def reason_against(self, backend: str) -> str:
        """Why another back end cannot run it, or an empty string."""
        return "" if backend == self.backend else f"it is a kernel written for the back end {self.backend!r}"


@dataclass(frozen=True, slots=True)
class Structural(Lowering):
    """Control flow, calls, constants and tuples: what the host program itself executes.

    ``role`` says what it does with it: ``constant``, ``loop`` (condition and body), ``branch`` (one of the regions),
    ``call``, ``function`` (what is called, as a value), ``return``, ``alias`` (results are the operands' memory), ``tuple``,
    ``token``, ``start`` (somebody else runs the region) and ``finish`` (waits for that).  A ``return`` ends what ``ends``
    says: a ``function`` or a ``region``.
    ``expansion`` is a rule as that of ``Expand``, for back ends whose programs do not do it.
    """

    role: str
    ends: str = ""
    expansion: Callable[[Any, Instruction], Sequence[Value] | None] | None = None


@dataclass(frozen=True, slots=True)
class PointwiseCall:
    """The types and attributes that a pointwise rule may look at."""

    operand_types: tuple[Any, ...]
    """Element types (rows of the table) of the operands."""
    result_type: Any
    attributes: Mapping[str, Any]


@named_fields
@dataclass(frozen=True, slots=True)
class OpDefinition:
    """The record of one op.  Equality is identity of the name."""

    name: str
    operands: tuple[Operand, ...] = ()
    attributes: tuple[AttributeSpec, ...] = ()
    regions: tuple[str, ...] = ()
    """Names of the regions; a last name that ends in ``*`` stands for any number."""
    infer: InferenceRule | None = None
    """Result types, or None when they must be written (``convert``, ``reshape``)."""
    refine: RefinementRule | None = None
    """Result types by the operands' types and by operands that are constants, where ``infer`` cannot know them."""
    known_value: Callable[[Instruction], Any] | None = None
    """The elements of the only result, where the operands' types alone give them; otherwise None."""
    symbolic: ShapeRule | None = field(default=None, compare=False)
    """Of an op that is not pointwise: how the result's shape, and the places where its elements come from, follow from sizes
    that are given at run time (see ``hlojit.ir.ops.symbolic_values``)."""
    padded: PaddingRule | None = field(default=None, compare=False)
    """How the op works on values whose sizes only data tell (see ``hlojit.ir.ops.padded_values``); pointwise ones need none."""
    widens: bool = False
    """Whether a written result may have another element type than the inferred one (``dot_general``)."""
    constraints: tuple[Constraint, ...] = ()
    reference: Callable[..., Any] | None = None
    """NumPy semantics: ``reference(call, *arrays)`` returns an array, or a tuple of arrays for several results."""
    syntax: str = "generic"
    """Name of the pretty form in ``hlojit.ir.text.forms``; ``generic`` has none."""
    traits: frozenset[Trait] = frozenset()
    lowering: Lowering | None = None
    effect: Callable[[Instruction], bool] | None = field(default=None, compare=False)
    """For ops that have effects or not by their attributes (``custom_call``): asked of an instruction."""
    cost: Cost | None = None
    """What an element costs in a fusion.  None: a pointwise op counts as expensive, and so does an op with regions."""
    identity: Callable[[Any], Any] | None = None
    """``identity(element_type)``, a number e with op(e, x) = x: with the traits COMMUTATIVE and ASSOCIATIVE, a reduction
    by this op may be taken apart into lanes and chunks."""
    value_range: Callable[[Instruction, RangeOf], ValueRange | None] | None = None
    """``value_range(instruction, range_of)``: bounds of the integers that the op gives, from those of its operands."""
    parts: Mapping[type[Any], RuleOfParts] = field(default_factory=dict, compare=False)
    """What becomes of the op where a back end computes with the parts of numbers (see ``hlojit.ir.ops.parts``), by class of
    element type; ``ElementType`` stands for all of them.  What only moves elements needs no rule."""
    units: Mapping[str, float] = field(default_factory=dict, compare=False)
    """The largest error of the op's own rules in units in the last place of the result (of either part of a complex number),
    by name of element type; see ``hlojit.ir.ops.accuracy``."""
    largest: float = field(default=math.inf, compare=False)
    """The largest magnitude of a finite result of real operands."""
    callees: tuple[str, ...] = ()
    """Attributes that name functions of the module whose bodies run in place of the instruction."""
    registered: bool = field(default=True, compare=False)
    summary: str = ""
    derivative: Derivative | None = field(default=None, compare=False)
    """How the op is differentiated (see ``hlojit.ir.ops.derivatives.kinds``); without a rule, as what it expands into."""
    batching: BatchingRule | None = field(default=None, compare=False)
    """How many of the op are computed at once (see ``hlojit.ir.ops.batching.kinds``); pointwise ops need no rule."""

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, OpDefinition) and other.name == self.name)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_pure(self) -> bool:
        """Whether an unused instruction of this op may be removed."""
        return Trait.EFFECT not in self.traits and Trait.TERMINATOR not in self.traits

    @property
    def is_terminator(self) -> bool:
        """Whether instructions of this op end a block."""
        return Trait.TERMINATOR in self.traits

    @property
    def host_role(self) -> str:
        """What the host program does with instructions of this op (see ``Structural``), or an empty string."""
        return self.lowering.role if isinstance(self.lowering, Structural) else ""

    @property
    def dialect(self) -> str:
        """The name's part in front of the mnemonic."""
        return self.name.partition(".")[0]

    @property
    def mnemonic(self) -> str:
        """The name without its dialect."""
        return self.name.partition(".")[2]

    def attribute(self, name: str) -> AttributeSpec | None:
        """The spec of an attribute, or None if the record declares none of that name."""
        for spec in self.attributes:
            if spec.name == name:
                return spec
        return None


def define(op: OpDefinition, *, replace: bool = False) -> OpDefinition:
    """Add a record of hlojit's own to the op table and return it; plugins' come through the hook ``hlojit_ops``."""
    if op.name in tables().ops and not replace:
        raise HlojitError(f"op {op.name!r} is defined twice")
    process_environment().define(OPS, op.name, op)
    return op


def undefine(name: str) -> None:
    """Remove a record that ``define`` added."""
    process_environment().undefine(OPS, name)


def find_op(name: str) -> OpDefinition | None:
    """Return the record of ``name`` in the current environment, or None."""
    return tables().ops.get(name)


def op(name: str) -> OpDefinition:
    """Return the record of ``name`` in the current environment; ``add`` is short for ``stablehlo.add``."""
    known = tables()
    found = known.ops.get(name) or known.ops.get(f"stablehlo.{name}")
    if found is None:
        raise HlojitError(f"unknown op {name!r}{known.who_brings(OPS, name)}")
    return found


def ops() -> Iterator[OpDefinition]:
    """Iterate over all records of the current environment."""
    return iter(tables().ops.values())


def unregistered_op(name: str) -> OpDefinition:
    """A record for an op that nobody registered: it is kept and printed, and has effects for all we know."""
    return OpDefinition(
        name,
        operands=(Operand("operands", variadic=True),),
        regions=("regions*",),
        traits=frozenset({Trait.EFFECT}),
        registered=False,
    )
