"""What a back end is: a device that says what it can do, and compiles programs for it.

    class MyDevice(Backend):
        name = "mydevice"

        def capability(self, instruction):
            if instruction.op.name == "stablehlo.sort":
                return no("the device has no sorter")
            return YES

        def compile(self, module, options):
            return lambda *arrays: run_on_device(module, arrays)

The built-in back ends are made in the same way and registered through the same hook.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

from hlojit.extensions.backends.layouts import Layouts
from hlojit.extensions.devices.device import Device
from hlojit.extensions.devices.host_device import HostDevice
from hlojit.ir.environment import CUSTOM_CALLS, tables
from hlojit.ir.errors import HlojitError, PluginError, UnsupportedError
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.named_fields import named_fields
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.ops.definition import Cost, Expand
from hlojit.ir.passes.fusion_limits import FusionLimits

TRANSFER_NANOSECONDS: Final = 10_000.0
"""That any transfer to or from a device's own memory takes, if its back end does not say (``Backend.transfer_cost``)."""
BYTES_PER_NANOSECOND: Final = 10.0
"""Of transfers to and from it, and of copies within the host's memory."""


class Support(enum.Enum):
    """How a back end stands to an instruction."""

    YES = "compiles it as it is"
    NO = "cannot do it; it is decomposed where that is possible"
    DECOMPOSE = "wants it decomposed into other ops; a no where that is not possible"


@named_fields
@dataclass(frozen=True, slots=True)
class Capability:
    """A back end's answer for one instruction: support, and the reason for a no.

    ``cost`` is about how many nanoseconds the instruction takes there by itself, on operands that are there; None: not known.
    Programs that are compiled for several back ends are split by it (docs/placement.md).  Answers are equal whatever they cost.
    """

    support: Support
    reason: str = ""
    cost: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.support, Support):
            raise PluginError(f"Capability: support is {self.support!r}; return YES, DECOMPOSE or no(reason)")
        if not isinstance(self.reason, str):
            raise PluginError(f"Capability: the reason of a no is a text, not {self.reason!r}")


YES = Capability(Support.YES)
DECOMPOSE = Capability(Support.DECOMPOSE)


def no(reason: str) -> Capability:
    """The answer "cannot do it", with the reason that the user's error message will show."""
    return Capability(Support.NO, reason)


def can_decompose(instruction: Instruction) -> bool:
    """Whether there is a way to build the instruction out of other ops: an expansion, or a custom call's binding
    (of a target that somebody registered).

    What a back end returns ``DECOMPOSE`` for; an expansion may still decline (a shape that is not known).
    """
    if is_custom_call(instruction):
        return instruction.attributes["call_target_name"] in tables().table(CUSTOM_CALLS)
    return isinstance(instruction.op.lowering, Expand)


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What a caller may choose about one compilation.

    ``verify`` says when modules are verified between passes (``third-party``, ``always``, ``never``); ``disable_passes``
    names passes to leave out; ``fold_limit`` bounds the elements that constant folding may make; ``progress`` shows a
    progress line on a terminal (None: when it takes long).  ``libraries`` says which products on GPUs a vendor's library
    computes: ``auto``, ``off`` or ``require``; empty means what the switch ``HLOJIT_LIBRARIES`` says.  ``autotune`` has
    kernels for GPUs chosen by measuring them: ``off``, ``same-bits`` (or True) among those that give the same bits, ``any``
    among all; empty means what the switch ``HLOJIT_AUTOTUNE`` says.  ``num_replicas`` and
    ``num_partitions`` are as the module says, if they are None; back ends are given the numbers.

    Of a program that leaves sizes open ``dynamic_shapes`` says whether it is compiled for each combination of shapes that
    it is called with (``specialize``), of which at most ``specializations`` are kept, or once for all of them (``symbolic``).

    ``pass_options`` sets options of passes, by the pass's name and the option's (``{"acme-tile": {"size": 32}}``);
    ``pass_time_limit`` is how many seconds a plugin's pass may take (None: as many as it takes).
    """

    verify: str = "third-party"
    disable_passes: tuple[str, ...] = ()
    fold_limit: int = 4096
    progress: bool | None = None
    num_replicas: int | None = None
    num_partitions: int | None = None
    libraries: str = ""
    autotune: str | bool = ""
    dynamic_shapes: str = "specialize"
    specializations: int = 64
    pass_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    pass_time_limit: float | None = None


class SizedCode(Protocol):
    """A program compiled once for all sizes; what ``Backend.compile_symbolic`` returns."""

    @property
    def compiled(self) -> Any:
        """The program as data, a ``CompiledProgram`` with ``sized``."""

    def of(self, stated: Any, source: str) -> SizedCode:
        """The same with what the program needs of sizes as it was written (``SizeFacts``), and its text."""

    def unfit(self, types: Sequence[Any], values: Mapping[int, Any]) -> str | None:
        """Why the code does not compute what the program does for arguments of these types, some with known elements.

        None where it does, or where they do not fit each other.  The program is compiled for such arguments alone.
        """

    def bind(self, types: Sequence[Any], values: Mapping[int, Any]) -> Any:
        """The ``ExecutableSpec`` for arguments of these types; raises ``ArgumentError`` where they do not fit each other."""


class Backend(ABC):
    """A device; see the module's docstring."""

    name: str
    fuses: bool = False
    """Whether ``compile`` wants the graph after fusion (``hlojit.fusion`` instructions) rather than before."""
    fusion_limits: FusionLimits = FusionLimits(rows=True)
    """Sizes beyond which a fusion no longer grows, and whether there are kernels for fusions of kind ``row``."""
    takes_unknown_sizes: ClassVar[bool] = False
    """Whether ``compile`` takes programs with values whose size only the run tells, as they are written."""
    computes_with: ClassVar[tuple[type[Any], ...]] = ()
    """Classes of element types that are never taken apart into numbers of other types (``ComplexType``): the back end computes
    with them, or says no."""
    kernel_forms: ClassVar[tuple[type[Any], ...]] = ()
    """Classes of what kernels of plugins may answer (``hlojit_kernels``): ``compile`` gets them with the instructions that they
    compute (``kernel_answer``).  None: the back end takes no such kernels."""
    joint_members: Sequence[Backend] = ()
    """Of what stands for a list of back ends (``hlojit.partition``): these."""
    hlojit_runtime: ClassVar[tuple[str, ...]] = ("_host_devices",)
    """Attributes that hold what runs have made: they are no part of the back end's identity.  Subclasses add theirs."""

    def unavailable(self) -> str | None:
        """Why the back end cannot be used on this machine, or None if it can."""
        return None

    def devices(self) -> Sequence[Device]:
        """The back end's devices, the same objects every time; by default one whose memory is the host's."""
        # In one step, since several threads may ask first.
        found: Sequence[Device] = self.__dict__.setdefault("_host_devices", (HostDevice(self.name),))
        return found

    def notes(self) -> Sequence[str]:
        """Lines for ``hlojit devices`` about what programs use here besides devices; may take its time."""
        return ()

    def transfer_cost(self, nbytes: int) -> float:
        """About how many nanoseconds it takes to move so many bytes from the host's memory to a device, or back.

        Programs that are compiled for several back ends are split by it.
        """
        copied = nbytes / BYTES_PER_NANOSECOND
        return copied if self.devices()[0].memory_spaces[0].is_host else TRANSFER_NANOSECONDS + copied

    @abstractmethod
    def capability(self, instruction: Instruction) -> Capability:
        """Whether the back end compiles this instruction (by op, element types, shapes); called before fusion.

        With ``hlojit_api = (1, 1)`` it is also asked before anything is expanded: what it answers YES to stays as it is
        (``chlo.top_k``, a composite, a custom call, registered or not); what not, is expanded where it can be.
        """

    def instruction_cost(self, instruction: Instruction) -> float | None:
        """About how many nanoseconds an instruction takes that the back end takes, where ``capability`` said nothing of it.

        Asked only where programs are split.  None, the default: that is reckoned from what the others of the list say.
        """
        return None

    def symbolic_capability(self, instruction: Instruction) -> Capability:
        """As ``capability``, of code that is given sizes at run time: asked before and behind what expands ops.

        A program one of whose instructions is left without a yes is compiled for each combination of shapes.
        """
        return no("the back end compiles for sizes that are known")

    def fuses_into(self, producer: Instruction, group: Sequence[Instruction]) -> bool | None:
        """Of a back end that ``fuses``: whether a kernel of ``group`` is to compute ``producer``, which it reads, itself.

        None, the default, leaves that to hlojit's costs and to ``fusion_limits``.  Asked only where it is possible: a yes makes a
        fusion larger than the limits.  When two groups could become one kernel, a no for a root of the first keeps them apart.
        """
        return None

    def element_cost(self, instruction: Instruction) -> Cost | None:
        """Of a back end that ``fuses``: what computing an element costs there; what is expensive is never computed twice.

        None, the default: as the op's record says.
        """
        return None

    def preferred_layouts(self, instruction: Instruction) -> Layouts | None:
        """How operands and results of an instruction are to lie in the device's memory; None: it does not matter, or as usual.

        Asked by ``hlojit.extensions.backends.layouts.assign_layouts``, which ``InterpretedBackend`` uses and any ``compile`` may.
        """
        return None

    @abstractmethod
    def compile(self, module: Module, options: CompileOptions) -> Callable[..., Sequence[Any]] | Any:
        """Compile a verified module with every call inlined.

        Returns a callable that takes one array per argument (storage dtype, C-contiguous) and returns one per result,
        or an ``hlojit.executable.ExecutableSpec`` of native code; with devices of its own a ``DeviceProgram``.  A back end
        with ``load`` returns an ``hlojit.compiled.CompiledProgram``, plain data, which can be kept and saved.
        """

    def compile_symbolic(self, module: Module, size_arguments: Sequence[int]) -> SizedCode:
        """Compile a program that leaves sizes of its arguments open once for all of them.

        It answered yes to every instruction of it (``symbolic_capability``), and passes have run as for every program.
        ``size_arguments`` are numbers of integer arguments whose elements are sizes.  Raises ``UnsupportedError`` for the
        first op that has no code for that: the program is then compiled for each combination of shapes.
        """
        raise UnsupportedError("the program", self.name, "the back end compiles for sizes that are known")

    def load_symbolic(self, compiled: Any) -> SizedCode:
        """Make the code of a program that was compiled once for all sizes (``SizedCode.compiled``), here or elsewhere."""
        raise HlojitError(f"the back end {self.name!r} does not load programs that are compiled once for all sizes")

    def cache_identity(self) -> str | None:
        """Everything that compiled programs depend on besides module, options and plugins: the device, and its software.

        The driver adds hlojit's version, the back end's class and what it wants of the passes.  None, the default, says
        that what ``compile`` returns is not to be kept on disk.
        """
        return None

    def kernel_target(self) -> Any:
        """Facts about the machine for those who write kernels, or None."""
        return None

    def options_identity(self, options: CompileOptions) -> str:
        """What programs with these options depend on beyond that."""
        return ""

    def load(self, compiled: Any) -> Any:
        """Make what runs of a ``CompiledProgram`` that ``compile`` returned, in this process or another.

        An ``ExecutableSpec`` of native code, or, of a back end with devices of its own, a ``DeviceProgram``.
        """
        raise HlojitError(f"the back end {self.name!r} does not load compiled programs")
