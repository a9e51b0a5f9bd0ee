"""Random numbers: rng_bit_generator (Threefry and Philox, bit for bit what XLA and so JAX produce) and the older rng.

Both generators are those of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011: 20 rounds of
Threefry-2x32 and 10 rounds of Philox-4x32.  The state is (key, counter), for Philox (key, counter, high counter).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from hlojit.ir.formats import INDEX, BooleanType, FloatFormat, IntegerType
from hlojit.ir.ops.attribute_kinds import EnumKind
from hlojit.ir.ops.control import unsupported_reference
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    InferenceRequest,
    OpDefinition,
    Operand,
    ReferenceCall,
    Trait,
    define,
)
from hlojit.ir.ops.dynamic_types import given_by
from hlojit.ir.ops.random_distribution import expand_rng
from hlojit.ir.ops.random_expansion import (
    PHILOX_KEY_STEPS,
    PHILOX_MULTIPLIERS,
    THREEFRY_PARITY,
    THREEFRY_ROTATIONS,
    expand_rng_bit_generator,
    split_dimension,
)
from hlojit.ir.ops.rules import (
    OpCall,
    checked,
    compatible,
    compatible_shapes,
    constant_operand,
    operand_tensor,
    same_elements,
    show,
)
from hlojit.ir.scalar.arrays import from_bits
from hlojit.ir.types import DYNAMIC, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction


def threefry(key: tuple[Array, Array], counter: tuple[Array, Array]) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds on arrays of uint32."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(THREEFRY_PARITY))
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for rotation in THREEFRY_ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))
            y = y ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def philox(key: tuple[Array, Array], counter: tuple[Array, Array, Array, Array]) -> tuple[Array, ...]:
    """Philox-4x32 with 10 rounds on arrays of uint32."""
    (a, b), (x, y, z, w) = key, counter
    for _ in range(10):
        first = x.astype(np.uint64) * np.uint64(PHILOX_MULTIPLIERS[0])
        second = z.astype(np.uint64) * np.uint64(PHILOX_MULTIPLIERS[1])
        x, y, z, w = _high(second) ^ y ^ a, _low(second), _high(first) ^ w ^ b, _low(first)
        a, b = a + np.uint32(PHILOX_KEY_STEPS[0]), b + np.uint32(PHILOX_KEY_STEPS[1])
    return x, y, z, w


def _low(words: Array) -> Array:
    return words.astype(np.uint32)


def _high(words: Array) -> Array:
    return (words >> np.uint64(32)).astype(np.uint32)


def _join(low: Array, high: Array) -> Array:
    return low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))


def threefry_bits(state: Array, shape: Sequence[int], bits: int) -> tuple[Array, Array]:
    """The new state and an array of unsigned integers of ``shape``: 64 random bits each, or 32."""
    key = (_low(state[0:1]), _high(state[0:1]))
    if bits == 64:
        counters = state[1] + np.arange(math.prod(shape), dtype=np.uint64)
        words = _join(*threefry(key, (_low(counters), _high(counters)))).reshape(tuple(shape))
        return _next_state(state, counters.size), words
    full = tuple(shape) or (1,)
    split = split_dimension(full)
    half = (*full[:split], -(-full[split] // 2), *full[split + 1 :])
    counters = state[1] + np.arange(math.prod(half), dtype=np.uint64)
    pair = [word.reshape(half) for word in threefry(key, (_low(counters), _high(counters)))]
    # The words of one counter stand next to each other along the split dimension.
    words = np.stack(pair, axis=split + 1).reshape(*full[:split], 2 * half[split], *full[split + 1 :])
    words = np.take(words, range(full[split]), axis=split).reshape(tuple(shape))
    return _next_state(state, counters.size), words


def philox_bits(state: Array, shape: Sequence[int], bits: int) -> tuple[Array, Array]:
    """As ``threefry_bits``; in a state of two words the key serves as upper half of the counter, too."""
    size = math.prod(shape)
    blocks = -(-size * (2 if bits == 64 else 1) // 4)
    key = (_low(state[0:1]), _high(state[0:1]))
    low, high = state[1], state[2] if len(state) > 2 else state[0]
    lows = low + np.arange(blocks, dtype=np.uint64)
    highs = np.where(lows < low, high + np.uint64(1), high)
    words = philox(key, (_low(lows), _high(lows), _low(highs), _high(highs)))
    if bits == 64:
        words = (_join(words[0], words[1]), _join(words[2], words[3]))
    flat = np.stack(words, axis=-1).ravel()[:size]
    new_state = _next_state(state, blocks)
    if len(state) > 2 and new_state[1] < low:
        new_state[2:] += np.uint64(1)
    return new_state, flat.reshape(tuple(shape))


def _next_state(state: Array, used: int) -> Array:
    new_state = state.copy()
    new_state[1:2] += np.uint64(used)  # an array, which wraps silently
    return new_state


GENERATORS = {"THREE_FRY": threefry_bits, "PHILOX": philox_bits, "DEFAULT": philox_bits}
"""By algorithm; DEFAULT is what XLA's CPU back end takes."""


# rng_bit_generator


def _state_size(call: OpCall) -> str | None:
    state = operand_tensor(call, 0)
    algorithm = call.attributes["rng_algorithm"]
    sizes = (2,) if algorithm == "THREE_FRY" else (2, 3)
    words = state.size * state.element_type.bits / 64 if state.is_static else 2
    if state.rank == 1 and (words in sizes or state.shape[0] == DYNAMIC):
        return None
    return f"initial_state has type {state}, expected {' or '.join(map(str, sizes))} words of 64 bits for {algorithm}"


def _state_type(call: OpCall) -> str | None:
    state = operand_tensor(call, 0)
    if isinstance(state.element_type, IntegerType) and state.element_type.bits in (32, 64):
        return None
    return f"initial_state must hold integers of 32 or 64 bits, found {state}"


def _output_state(instruction: Instruction) -> str | None:
    found, expected = instruction.result_types[0], instruction.operand_types[0]
    return None if compatible(found, expected) else f"output_state has type {found}, expected {expected}"


def _output_element(instruction: Instruction) -> str | None:
    found = instruction.results[1].tensor_type
    if isinstance(found.element_type, IntegerType | FloatFormat) and found.element_type is not INDEX:
        return None
    return f"output must be a tensor of integer or floating-point type, found {found}"


def _bit_generator_reference(call: ReferenceCall, state: Array) -> tuple[Array, Array]:
    type = call.instruction.results[1].tensor_type
    element = type.element_type
    words = np.ascontiguousarray(state).view(np.uint64)
    generate = GENERATORS[call.attributes["rng_algorithm"]]
    new_state, bits = generate(words, type.shape, 64 if element.bits == 64 else 32)
    bits = bits & bits.dtype.type((1 << min(element.bits, 64)) - 1)
    return new_state.view(state.dtype), from_bits(bits, element)


RNG_RULES = (Constraint("I2", _state_type), Constraint("C2", _state_size))

RNG_BIT_GENERATOR = define(
    OpDefinition(
        "stablehlo.rng_bit_generator",
        operands=(Operand("initial_state"),),
        attributes=(AttributeSpec("rng_algorithm", EnumKind("rng_algorithm", ("DEFAULT", "THREE_FRY", "PHILOX"))),),
        constraints=(*RNG_RULES, Constraint("C1", _output_state), Constraint("O2", _output_element)),
        reference=_bit_generator_reference,
        syntax="rng_bit_generator",
        lowering=Expand(expand_rng_bit_generator),
        summary="random bits and the generator's next state",
    )
)


# rng


def _bounds_match(call: OpCall) -> str | None:
    return same_elements("a and b", [operand_tensor(call, 0), operand_tensor(call, 1)])


def _bound(position: int) -> Constraint:
    def check(call: OpCall) -> str | None:
        type = operand_tensor(call, position)
        if type.rank:
            return f"{'ab'[position]} must be a scalar, found {type}"
        if isinstance(type.element_type, BooleanType | IntegerType | FloatFormat):
            return None
        return f"{'ab'[position]} must be of integers, booleans or floats, found {type}"

    return Constraint(f"I{position + 1}", check)


def _normal_is_float(call: OpCall) -> str | None:
    a = operand_tensor(call, 0)
    if call.attributes["rng_distribution"] != "NORMAL" or isinstance(a.element_type, FloatFormat):
        return None
    return f"a normal distribution must be of floats, found {a}"


def _rng_shape(instruction: Instruction) -> str | None:
    shape, found = constant_operand(instruction, 2), instruction.results[0].tensor_type
    if shape is None or compatible_shapes(found.shape, shape.tolist()):
        return None
    return f"result has type {found}, expected shape {show(shape.tolist())}"


RNG_UNIFORM_RULES = (
    _bound(0),
    _bound(1),
    Constraint("C1", _bounds_match),
    Constraint("C2", _normal_is_float),
)


def _infer_rng(request: InferenceRequest) -> Sequence[Type]:
    rank = operand_tensor(request, 2).shape[0]
    return [tensor((DYNAMIC,) * max(rank, 0), operand_tensor(request, 0).element_type)]


RNG = define(
    OpDefinition(
        "stablehlo.rng",
        operands=(Operand("a"), Operand("b"), Operand("shape", sizes=True)),
        refine=given_by(2),
        attributes=(AttributeSpec("rng_distribution", EnumKind("rng_distribution", ("UNIFORM", "NORMAL"))),),
        infer=checked(RNG_UNIFORM_RULES, _infer_rng),
        constraints=(*RNG_UNIFORM_RULES, Constraint("C3", _rng_shape)),
        reference=unsupported_reference("the numbers of rng follow from no operand; use rng_bit_generator"),
        syntax="rng",
        traits=frozenset({Trait.EFFECT}),
        lowering=Expand(expand_rng),
        summary="random numbers from a generator whose state the program does not see",
    )
)
