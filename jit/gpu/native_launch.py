"""Fixed programs put on a stream by native code: no Python object for a launch (``launch.ll`` beside this file).

A driver whose API is made of C functions like CUDA's gives their addresses; the steps of a program become a table of numbers that
one compiled function walks over.  It is compiled once per process, not per program.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, Protocol, final

from hlojit.gpu.driver import Function, Mark, Stream
from hlojit.gpu.operations import CopyBytes, LaunchKernel, Place
from hlojit.ir.once import Once
from hlojit.lowering.abi import Field, laid_out
from hlojit.runtime.layout import accessors

RECORD: Final[Mapping[str, Field]] = laid_out(
    (
        ("enter", "ptr"),  # i32 (ptr context): it is the thread's current one from now on
        ("leave", "ptr"),  # i32 (ptr *context): the one before is
        ("launch", "ptr"),  # i32 (ptr function, i32 blocks * 3, i32 threads * 3, i32 shared, ptr stream, ptr *, ptr *)
        ("copy", "ptr"),  # i32 (i64 target, i64 source, i64 bytes, ptr stream)
        ("record", "ptr"),  # i32 (ptr event, ptr stream)
        ("query", "ptr"),  # i32 (ptr event)
        ("launch_graph", "ptr"),  # i32 (ptr instantiated, ptr stream)
        ("add_kernel", "ptr"),  # i32 (ptr *node, ptr graph, ptr *nodes before, i64 how many, ptr parameters)
        ("add_copy", "ptr"),  # the same with ptr context
        ("set_kernel", "ptr"),  # i32 (ptr instantiated, ptr node, ptr parameters)
        ("set_copy", "ptr"),  # the same with ptr context
        ("pending", "i64"),  # what query returns of an event that has not happened
        ("context", "ptr"),
        ("stream", "ptr"),
        ("most_parameters", "i64"),
        ("steps", "i64"),
        ("step_words", "ptr"),
        ("graph", "ptr"),  # the instantiated one
        ("before", "ptr"),  # the addresses that its nodes know
    )
)
_LAUNCH: Final = 1
_COPY: Final = 2
_EVENT: Final = -2
_FASTCALL: Final = 0x80
_PYTHON_API: Final = (
    "PyLong_AsUnsignedLongLong",
    "PyLong_FromLongLong",
    "PyErr_Occurred",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)


@final
@dataclass(frozen=True, slots=True)
class NativeFunctions:
    """Addresses of a driver's C functions, the context that they need, and the status of an event that has not happened."""

    context: int
    enter: int
    leave: int
    launch: int
    copy: int
    record: int
    query: int
    launch_graph: int
    add_kernel: int
    add_copy: int
    set_kernel: int
    set_copy: int
    pending: int


class NativeGraph(Protocol):
    """A graph that native code fills; it is destroyed when the object is dropped."""

    @property
    def number(self) -> int:
        """The graph's."""

    def instantiate(self) -> int:
        """Make it ready to be launched, and return the number of what can be."""


class NativeDriver(Protocol):
    """What native code needs of a driver besides its functions: numbers of its objects."""

    @property
    def functions(self) -> NativeFunctions:
        """The driver's C functions."""

    def stream(self, stream: Stream) -> int:
        """Of a stream."""

    def function(self, function: Function) -> int | None:
        """Of a kernel function; None for what must be launched in Python."""

    @property
    def events(self) -> list[int]:
        """Events that nobody uses: whoever takes one gives it back."""

    def event(self) -> int:
        """A new event."""

    def number(self, mark: Mark) -> int:
        """The event of a mark."""

    def mark(self, event: int, launched: Sequence[str]) -> Mark:
        """The mark that an event is, which native code has recorded; ``launched`` is what messages name."""

    def graph(self) -> NativeGraph:
        """A new graph without nodes."""

    def error(self, status: int, what: str) -> Exception:
        """The exception for a status of ``what``."""


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@final
class _Code:
    """The compiled functions, and how Python calls them."""

    def __init__(self) -> None:
        # Imported here: LLVM is loaded with the first compilation, not with hlojit.
        from hlojit.machine_code import loading

        target = loading.process_target()
        text = accessors({"gpu": RECORD}) + (resources.files(__package__) / "launch.ll").read_text(encoding="utf-8")
        names = ("hlojit_gpu_run", "hlojit_gpu_build", "hlojit_gpu_replay", "hlojit_gpu_look")
        image = loading.kept_object(text, target, pipeline="inline")
        imports = {name: _address(getattr(ctypes.pythonapi, name)) for name in _PYTHON_API}
        self._code = loading.load_objects([image], names, imports)
        # Threads may be in it when the interpreter ends.
        self._code.keep_for_ever()
        self._definitions = {
            name: _MethodDefinition(name.encode(), self._code.address(name), _FASTCALL, b"Part of hlojit.")
            for name in names
        }
        self._new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            ("PyCFunction_NewEx", ctypes.pythonapi)
        )

    def function(self, name: str, record: int) -> Callable[..., int]:
        """The function over the record at an address."""
        made: Callable[..., int] = self._new(ctypes.addressof(self._definitions[name]), record, None)
        return made


_code: Final = Once(_Code)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@final
class NativeProgram:
    """The steps of a fixed program on one device.

    ``arguments`` are the slots of the frame that differ from call to call, in the order in which ``run`` takes their addresses
    behind the number of an event; ``addresses`` are those of the other slots.
    """

    def __init__(
        self,
        driver: NativeDriver,
        stream: Stream,
        steps: Sequence[LaunchKernel | CopyBytes],
        functions: Mapping[str, int],
        arguments: Sequence[int],
        addresses: Mapping[int, int],
    ):
        slots = {slot: number for number, slot in enumerate(arguments, 1)}

        def place(place: Place) -> tuple[int, int]:
            number = slots.get(place.slot)
            return (0, addresses[place.slot] + place.offset) if number is None else (number, place.offset)

        words: list[int] = []
        for step in steps:
            if isinstance(step, LaunchKernel):
                places = [word for each in step.places for word in place(each)]
                shape = (step.grid.blocks, step.grid.threads, step.grid.shared_bytes)
                words += (_LAUNCH, 8 + len(places), 0, functions[step.symbol], *shape, len(step.places), *places)
            else:
                words += (_COPY, 12, 0, step.nbytes, 0, 0, 0, 2, *place(step.target), *place(step.source))
        most = max((len(each.places) for each in steps if isinstance(each, LaunchKernel)), default=0)
        self._driver = driver
        self._words = (ctypes.c_uint64 * max(1, len(words)))(*words)
        self._before = (ctypes.c_uint64 * (1 + len(arguments)))()
        fields = {"most_parameters": most, "steps": len(steps), "step_words": ctypes.addressof(self._words)}
        self._record = _record(driver, stream, **fields, before=ctypes.addressof(self._before))
        self._graph: NativeGraph | None = None
        address = ctypes.addressof(self._record)
        self._build = _code().function("hlojit_gpu_build", address)
        self.run: Final = _code().function("hlojit_gpu_run", address)
        """Puts the program on its stream; returns 0, or a status and the number of the step that failed, shifted by 32."""
        self.replay: Final = _code().function("hlojit_gpu_replay", address)
        """The same as one graph, whose nodes are told which addresses are others than before; see ``is_put``."""

    def build(self, *addresses: int) -> int:
        """Make the graph that ``replay`` launches; returns as ``run`` does."""
        self._graph = None
        graph = self._driver.graph()
        status = self._build(graph.number, *addresses)
        if not status:
            instantiated = graph.instantiate()
            ctypes.c_uint64.from_buffer(self._record, RECORD["graph"].offset).value = instantiated
            self._graph = graph
        return status

    @staticmethod
    def is_put(status: int) -> bool:
        """Whether what ``replay`` returned is about the event: the graph is on the stream."""
        return status >> 32 == _EVENT

    def drop_graph(self) -> None:
        """It is not launched again."""
        self._graph = None


@final
class Watch:
    """Looks at events of a driver."""

    def __init__(self, driver: NativeDriver, stream: Stream):
        self._record = _record(driver, stream)
        self.look: Final = _code().function("hlojit_gpu_look", ctypes.addressof(self._record))
        """``look(event, times)`` is the event's status, looked at up to so often while it has not happened."""


def _record(driver: NativeDriver, stream: Stream, **numbers: int) -> ctypes.Array[ctypes.c_char]:
    functions = driver.functions
    known = {"stream": driver.stream(stream), "graph": 0} | numbers
    fields = [known[name] if name in known else getattr(functions, name, 0) for name in RECORD]
    packed = struct.pack(f"={len(fields)}Q", *fields)
    return ctypes.create_string_buffer(packed, len(packed))
