"""The forms in which a kernel answers: what ``build`` returns for a group that it takes.

``ArrayFunction``     a function of whole arrays: numba, Python, or native (``hlojit.extensions.functions.array_functions``)
``TaskFunction``      a numba function of arrays or addresses that does a range of tasks, on several threads
``LlvmKernel``        LLVM IR with the signature of every kernel on the CPU
``CudaKernel``        a ``@numba.cuda.jit`` function with its launch

A back end takes those that it lists in ``Backend.kernel_forms``, where a vendor's lists classes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, Final

import numpy as np
from hlojit.extensions.backends.backend import Backend
from hlojit.extensions.calls.kernel_calls import KernelSite, Launch, is_kernel_of_numba_cuda, launch_geometry
from hlojit.extensions.functions.array_functions import ArrayFunction
from hlojit.extensions.kernels.kernel import Declined, Kernel, KernelGroup, is_cost
from hlojit.ir.errors import PluginError
from hlojit.ir.graph import Module
from hlojit.ir.interpreter import evaluate
from hlojit.ir.named_fields import named_fields
from hlojit.ir.ops.definition import DeviceFunction
from hlojit.ir.types import TensorType

UNKNOWN_NANOSECONDS: Final = 100_000.0
"""What a task is taken to last where nobody says: long enough to use several threads, and to let other Python threads run."""
MOST_TASKS: Final = 1 << 62


@named_fields
@dataclass(frozen=True, slots=True)
class KernelPhase:
    """One launch: a function of the module, the number of its tasks, and the nanoseconds that one takes on one core."""

    symbol: str
    tasks: int = 1
    cost: float = UNKNOWN_NANOSECONDS

    def __post_init__(self) -> None:
        if not isinstance(self.symbol, str) or not self.symbol:
            raise PluginError(f"KernelPhase: symbol is {self.symbol!r}; give the name of a function of the module")
        object.__setattr__(self, "tasks", _checked_tasks("KernelPhase", self.tasks, self.cost))


@named_fields
@dataclass(frozen=True)
class LlvmKernel:
    """LLVM IR of functions ``void symbol(ptr context, ptr buffers, i64 begin, i64 end)``; *trusted native*.

    ``buffers`` points to the addresses of the operands, then of the results, then, with ``workspace_bytes``, of so much
    scratch memory, aligned to 64 bytes.  The function does the tasks ``begin <= task < end``: different tasks write different
    memory, and threads are given ranges of them.  ``phases`` are launches one after the other; with one, ``symbol``, ``tasks``
    and ``cost`` say it.

    ``ir`` is a text or an ``llvmlite.ir.Module``.  All that it defines is the kernel's own, whatever its name is.  It may call
    what the C library has, and ``hlojit_poll(ptr context) -> i32`` (not 0: stop).  ``in_place`` pairs numbers of an operand and
    of a result that may be one memory.
    """

    ir: Any
    symbol: str = "kernel"
    tasks: int = 1
    cost: float = UNKNOWN_NANOSECONDS
    phases: tuple[KernelPhase, ...] = ()
    workspace_bytes: int = field(kw_only=True, default=0)
    in_place: tuple[tuple[int, int], ...] = field(kw_only=True, default=())

    def __post_init__(self) -> None:
        if not isinstance(self.ir, str):
            # An llvmlite module; a text can be kept and compared.
            object.__setattr__(self, "ir", str(self.ir))
        if "define" not in self.ir:
            raise PluginError("LlvmKernel: ir defines no function; give the text of a module, or an llvmlite.ir.Module")
        phases = tuple(self.phases) or (KernelPhase(self.symbol, self.tasks, self.cost),)
        if not all(isinstance(each, KernelPhase) for each in phases):
            raise PluginError(f"LlvmKernel: phases are KernelPhase(symbol, tasks, cost), not {self.phases!r}")
        object.__setattr__(self, "phases", phases)
        workspace = _whole(self.workspace_bytes)
        if workspace is None or workspace < 0:
            raise PluginError(f"LlvmKernel: workspace_bytes is {self.workspace_bytes!r}, no number of bytes")
        object.__setattr__(self, "workspace_bytes", workspace)
        pairs = [tuple(pair) for pair in self.in_place]
        if not all(len(pair) == 2 and all(type(number) is int for number in pair) for pair in pairs):
            given = self.in_place
            raise PluginError(f"LlvmKernel: in_place are pairs of an operand's and a result's number, not {given!r}")
        object.__setattr__(self, "in_place", tuple(pairs))

    def fits(self, group: KernelGroup) -> str:
        """What is wrong with it for a group, or an empty string."""
        operands, results = group.operand_types, group.result_types
        for operand, result in self.in_place:
            if not (0 <= operand < len(operands) and 0 <= result < len(results)):
                there = f"{len(operands)} operands and {len(results)} results"
                return f"in_place has the pair {operand, result}, and there are {there}"
            if operands[operand].nbytes != results[result].nbytes:
                return f"in_place: operand {operand} is {operands[operand]} and result {result} is {results[result]}"
        return ""


@named_fields
@dataclass(frozen=True)
class TaskFunction:
    """A numba function ``function(*operands, *results, begin, end)`` that does the tasks of a range, on several threads.

    Different tasks write different elements; threads are given ranges of the ``tasks``, each of which takes ``cost`` nanoseconds
    on one core.  What no task writes is 0.  Operands and results are arrays, as those of an ``ArrayFunction``, with its
    ``bounds``, ``codes`` and ``fastmath``.  With ``pointers`` they are addresses of first elements: ``x[i]`` is element number
    i, ``numba.carray(x, shape)`` an array; such a function, or one with ``bounds=False``, is *trusted native*, and what it
    leaves unwritten is anything.
    """

    function: Callable[..., Any]
    tasks: int = 1
    cost: float = UNKNOWN_NANOSECONDS
    pointers: bool = field(default=False, kw_only=True)
    bounds: bool = field(default=True, kw_only=True)
    codes: bool = field(default=False, kw_only=True)
    fastmath: bool | Collection[str] = field(default=False, kw_only=True)
    array_function: ArrayFunction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise PluginError(f"TaskFunction: function is {self.function!r}, which is not a function")
        object.__setattr__(self, "tasks", _checked_tasks("TaskFunction", self.tasks, self.cost))
        checked = self.bounds and not self.pointers
        made = ArrayFunction(self.function, codes=self.codes, bounds=checked, fastmath=self.fastmath)
        object.__setattr__(self, "fastmath", made.fastmath)
        object.__setattr__(self, "array_function", made)


@named_fields
@dataclass(frozen=True)
class CudaKernel:
    """A ``@numba.cuda.jit`` function ``kernel(*operands, *results)`` of arrays, and its ``launch``, as those of ``KernelCall``.

    The simulator runs ``substitute``, a function of NumPy arrays that returns the results; without one, the group's graph.
    """

    kernel: Callable[..., Any]
    launch: Callable[[KernelSite], Launch] | Launch
    substitute: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if not is_kernel_of_numba_cuda(self.kernel):
            raise PluginError(f"CudaKernel: kernel is {self.kernel!r}; decorate the function with @numba.cuda.jit")
        if not callable(self.launch) and not isinstance(self.launch, Launch):
            raise PluginError(f"CudaKernel: launch is {self.launch!r}; give a Launch, or a function of the site")
        if self.substitute is not None and not callable(self.substitute):
            raise PluginError(f"CudaKernel: substitute is {self.substitute!r}, which is not a function")

    def device_function(self, kernel: Kernel, user: str, graph: Module) -> DeviceFunction:
        """What the launch is, for back ends of machines with threads."""
        launch = self.launch
        asked = launch if callable(launch) else _Always(launch)
        geometry = _Geometry(kernel.name, user, asked)
        return DeviceFunction(kernel.backend, user, self.kernel, geometry, self.substitute or _Graph(graph))


@dataclass(frozen=True)
class _Always:
    launch: Launch

    def __call__(self, site: KernelSite) -> Launch:
        return self.launch


@dataclass(frozen=True)
class _Geometry:
    name: str
    user: str
    launch: Callable[[KernelSite], Launch]

    def __call__(self, operands: Sequence[TensorType], results: Sequence[TensorType]) -> tuple[int, int, int]:
        return launch_geometry(self.user, self.launch, KernelSite(self.name, tuple(operands), tuple(results)))


@dataclass(frozen=True)
class _Graph:
    """The meaning of a group, as a function of arrays; whoever has the group has it, too."""

    hlojit_runtime = ("graph",)
    graph: Module

    def __call__(self, *arrays: Any) -> Any:
        return evaluate(self.graph, *arrays)


def checked_answer(answer: Any, user: str, backend: Backend, group: KernelGroup, where: str) -> Any:
    """What ``build`` has returned, if the back end takes it; ``PluginError`` otherwise."""
    forms = backend.kernel_forms
    if not isinstance(answer, forms):
        listed = ", ".join(kind.__name__ for kind in forms)
        hint = ""
        if isinstance(answer, type):
            hint = f"; this is a class: return {answer.__name__}(...)" if answer in (*forms, Declined) else ""
        elif callable(answer):
            hint = f"; wrap the function: {forms[0].__name__}(function)"
        raise PluginError(
            f"{user}: build returned {answer!r}; on {backend.name!r} a kernel is one of {listed}, or "
            f"Declined(reason){hint}{where}"
        )
    if isinstance(answer, LlvmKernel) and (complaint := answer.fits(group)):
        raise PluginError(f"{user}: LlvmKernel: {complaint}{where}")
    if isinstance(answer, TaskFunction) and not answer.tasks and any(kind.size for kind in group.result_types):
        results = ", ".join(map(str, group.result_types))
        raise PluginError(
            f"{user}: TaskFunction: tasks is 0, and {results} has elements: nothing would write them; give at least one task"
            f"{where}"
        )
    return answer


def cost_of(answer: Any) -> float | None:
    """The nanoseconds that an answer says of itself, on one core; None if nobody says."""
    if isinstance(answer, LlvmKernel):
        stated = [each.tasks * each.cost for each in answer.phases if each.cost != UNKNOWN_NANOSECONDS]
        return float(sum(stated)) if len(stated) == len(answer.phases) else None
    if isinstance(answer, TaskFunction):
        return None if answer.cost == UNKNOWN_NANOSECONDS else float(answer.tasks * answer.cost)
    cost: Any = getattr(answer, "cost", None)
    return float(cost) if is_cost(cost) else None


def device_function_of(answer: Any, kernel: Kernel, user: str, graph: Module) -> DeviceFunction | None:
    """The launch that an answer is, on machines with threads."""
    return answer.device_function(kernel, user, graph) if isinstance(answer, CudaKernel) else None


def _checked_tasks(what: str, tasks: object, cost: object) -> int:
    number = _whole(tasks)
    if number is None or not 0 <= number <= MOST_TASKS:
        raise PluginError(f"{what}: tasks is {tasks!r}, no number of tasks: a whole one, at most {MOST_TASKS:,}")
    if not is_cost(cost):
        raise PluginError(f"{what}: cost is {cost!r}, no number of nanoseconds")
    return number


def _whole(given: Any) -> int | None:
    """A whole number of Python's or NumPy's, or None."""
    try:
        return None if isinstance(given, (bool, np.bool_)) else index(given)
    except TypeError:
        return None
