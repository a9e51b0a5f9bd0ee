"""Custom calls that are kernels: functions which a plugin has written for a machine with threads, such as ``@numba.cuda.jit``.

    @cuda.jit
    def reverse(x, result):
        i = cuda.grid(1)
        if i < x.size:
            result[i] = x[x.size - 1 - i]

    KernelCall("acme.reverse", kernel=reverse, launch=lambda call: Launch(-(-call.results[0].size // 256), 256),
               substitute=lambda x: x[::-1])
    %1 = stablehlo.custom_call @acme.reverse(%0) : (tensor<1000xf32>) -> tensor<1000xf32>

becomes one step of a program on the back end ``cuda``: a launch with the addresses of operands and results, which pays nothing
for numba.  Such a kernel is *trusted native*: what it writes beside its arrays, nobody sees.  Where there is no GPU
- in the simulator, on the back end ``reference`` - the *substitute* runs, a function of NumPy arrays that returns the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
from hlojit.extensions.calls.custom_calls import CustomCall, config_attribute, plain_value
from hlojit.ir.errors import HlojitError, PluginError
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.named_fields import named_fields
from hlojit.ir.ops.attribute_kinds import BOOL
from hlojit.ir.ops.custom_calls import has_side_effect
from hlojit.ir.ops.definition import AttributeSpec, DeviceFunction, OpDefinition, Operand, ReferenceCall, op
from hlojit.ir.scalar.arrays import to_compute, to_storage
from hlojit.ir.types import TensorType
from hlojit.ir.vendor_places import told

MAXIMUM_BLOCKS: Final = (1 << 31) - 1
_NUMBA_CUDA: Final = ("numba.cuda", "numba_cuda")


@named_fields
@dataclass(frozen=True, slots=True)
class Launch:
    """Blocks, threads of a block, and the bytes that a block's threads share besides what the kernel declares.

    No blocks are for results without elements only.
    """

    blocks: int
    threads: int
    shared_bytes: int = 0

    def __post_init__(self) -> None:
        for name, least in (("blocks", 0), ("threads", 1), ("shared_bytes", 0)):
            given = getattr(self, name)
            if type(given) is not int or not least <= given <= MAXIMUM_BLOCKS:
                raise PluginError(
                    f"Launch: {name} are a whole number from {least} to {MAXIMUM_BLOCKS:,}, not {given!r}"
                )


@dataclass(frozen=True, slots=True)
class KernelSite:
    """What ``launch`` knows of one call: all is known when the call is compiled."""

    target: str
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]


@named_fields
@dataclass(frozen=True, slots=True)
class KernelCall(CustomCall):
    """A kernel ``kernel(*operands, *results)`` of arrays, in row-major order, that writes all elements of the results.

    ``launch`` says how it is launched, as a function of the ``KernelSite``; geometry has one dimension.  ``backend`` names the
    back end that it is written for; for ``cuda`` it is a function decorated with ``@numba.cuda.jit``.
    """

    kernel: Callable[..., Any] = field(kw_only=True, default=cast(Any, None))
    launch: Callable[[KernelSite], Launch] = field(kw_only=True, default=cast(Any, None))
    substitute: Callable[..., Any] | None = field(kw_only=True, default=None)
    backend: str = field(kw_only=True, default="cuda")

    def __post_init__(self) -> None:
        for name, given in (("kernel", self.kernel), ("launch", self.launch), ("substitute", self.substitute)):
            if not callable(given) and not (name == "substitute" and given is None):
                raise PluginError(f"{self.user}: {name} is {given!r}, which is not a function")
        if self.backend == "cuda" and not is_kernel_of_numba_cuda(self.kernel):
            raise PluginError(
                f"{self.user}: kernel is {self.kernel!r}, no kernel of numba.cuda's: decorate the function with "
                "@numba.cuda.jit, or name the back end that it is for (backend=)"
            )

    @property
    def trust(self) -> str:
        return "trusted native"

    def complaint(self) -> str | None:
        """As for the other forms; kernels write memory of their own."""
        return CustomCall.complaint(self) or ("is a KernelCall, which has no aliases" if self.aliases else None)

    def records(self) -> Sequence[OpDefinition]:
        """The op that calls of the target become."""
        return (kernel_record(self),)

    def replace(self, builder: Any, instruction: Instruction) -> Sequence[Value]:
        """One instruction of that op."""
        types = (*instruction.operand_types, *instruction.result_types)
        if not all(isinstance(kind, TensorType) and kind.is_static for kind in types):
            listed = ", ".join(map(str, types))
            raise PluginError(
                f"{self.user} is a kernel, of arrays of known shapes, not of {listed}\n  at {instruction.location}"
            )
        config = config_attribute(instruction.attributes, instruction.discardable)
        if config is not None or instruction.attributes.get("called_computations"):
            what = "called_computations" if config is None else f"a backend_config, {plain_value(config)!r}"
            raise PluginError(
                f"{self.user}: the call has {what}, which a kernel does not get\n  at {instruction.location}"
            )
        name = kernel_record_name(self.target)
        effects = {"has_side_effect": True} if has_side_effect(instruction) else {}
        bound = Instruction(
            op(name), instruction.operands, instruction.result_types, effects, location=instruction.location
        )
        return list(builder.insert(bound).results)


def is_kernel_of_numba_cuda(kernel: object) -> bool:
    """Whether numba.cuda has made it, which need not be imported to know."""
    return any(each.__module__.startswith(_NUMBA_CUDA) for each in type(kernel).__mro__)


def kernel_record_name(target: str) -> str:
    """The name of the op that calls of a kernel become."""
    return f"hlojit.kernel.{target}"


def kernel_record(call: KernelCall) -> OpDefinition:
    """The op record of a kernel."""

    def reference(record: ReferenceCall, *arrays: Any) -> Any:
        if call.substitute is None:
            raise HlojitError(
                f"{call.user} is a kernel for the back end {call.backend!r}, and has no substitute= for others"
            )
        types = [result.tensor_type for result in record.instruction.results]
        operands = [value.tensor_type for value in record.instruction.operands]
        given = [to_storage(array, kind.element_type) for array, kind in zip(arrays, operands)]
        found = substituted(call.user, call.substitute, given, types)
        return tuple(to_compute(each, kind.element_type) for each, kind in zip(found, types))

    def geometry(operands: Sequence[TensorType], results: Sequence[TensorType]) -> tuple[int, int, int]:
        return launch_geometry(call.user, call.launch, KernelSite(call.target, tuple(operands), tuple(results)))

    return OpDefinition(
        kernel_record_name(call.target),
        operands=(Operand("operands", variadic=True),),
        attributes=(AttributeSpec("has_side_effect", BOOL, optional=True, default=False),),
        reference=reference,
        effect=lambda instruction: bool(instruction.attributes.get("has_side_effect")),
        lowering=DeviceFunction(call.backend, call.user, call.kernel, geometry, call.substitute),
        summary="a plugin's kernel",
    )


def substituted(
    user: str,
    substitute: Callable[..., Any],
    arrays: Sequence[np.ndarray[Any, Any]],
    types: Sequence[TensorType],
    what: str = "substitute",
) -> tuple[np.ndarray[Any, Any], ...]:
    """What a substitute returns, checked, as arrays of storage dtypes; it may give those that types have outside, too.

    ``what`` is what messages call it.
    """
    try:
        returned = substitute(*arrays)
    except (KeyboardInterrupt, MemoryError):
        raise
    except (
        BaseException
    ) as error:  # of Python's exceptions, SystemExit and GeneratorExit too: it is a plugin's function
        raise HlojitError(f"{user}: its {what} raised {told(error, substitute)}") from error
    found = tuple(map(np.asarray, returned if isinstance(returned, tuple) else (returned,)))
    wanted = [(kind.shape, kind.element_type.storage) for kind in types]
    if len(found) == len(types):
        pairs = zip(found, (kind.element_type for kind in types))
        found = tuple(each.astype(kind.storage) if each.dtype == kind.dtype else each for each, kind in pairs)
    if [(each.shape, each.dtype) for each in found] != wanted:
        got = "None" if returned is None else ", ".join(f"{each.dtype}{list(each.shape)}" for each in found)
        raise HlojitError(f"{user}: its {what} returned {got}, not {', '.join(f'{d}{list(s)}' for s, d in wanted)}")
    return found


def launch_geometry(user: str, launch: Callable[[KernelSite], Launch], site: KernelSite) -> tuple[int, int, int]:
    """Blocks, threads and shared bytes of a call, as ``launch`` says; ``user`` is what messages call the kernel."""
    try:
        made = launch(site)
    except PluginError as error:
        raise PluginError(f"{user}: {error}") from error
    except Exception as error:
        raise PluginError(f"{user}: launch failed: {told(error, launch)}") from error
    if not isinstance(made, Launch):
        raise PluginError(f"{user}: launch returned {made!r}, not a Launch(blocks, threads)")
    written = [kind for kind in site.results if kind.size]
    if written and not made.blocks:
        raise PluginError(f"{user}: launch returned no blocks, and nobody would write {', '.join(map(str, written))}")
    return made.blocks, made.threads, made.shared_bytes
