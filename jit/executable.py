"""Executables: compiled programs as Python calls them.

    executable = Executable(ExecutableSpec("add", entry=address, inputs=(t, t), outputs=(t,), keepalive=(code,)))
    result = executable(x, y)

A call with plain arrays of exactly the expected dtype and shape runs entirely in native code (``runtime/call.ll``): it
checks the arrays, takes outputs and temporaries from the memory pool, runs the host program and returns the arrays.
Anything else an argument can be is converted by ``hlojit.arrays.to_storage`` first, or refused (``ArgumentError``).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, final

import numpy as np
from hlojit.arrays import from_storage, is_outside_form_different, to_storage
from hlojit.compiled import CompiledProgram, write
from hlojit.device_call import DeviceCall, has_device_array, refuse_keywords
from hlojit.donation import CopyingCall, GivingCall
from hlojit.extensions import Backend, Device, DeviceProgram
from hlojit.extensions.calls.function_places import function_places, with_place
from hlojit.extensions.functions.raised import class_of
from hlojit.extensions.origins import backend_text
from hlojit.ir.errors import ArgumentError, ExecutionError, HlojitError
from hlojit.ir.plugin_names import with_sources
from hlojit.ir.types import TensorType
from hlojit.ir.vendor_places import told
from hlojit.lowering.abi import Status
from hlojit.runtime import layout, objects
from hlojit.runtime.ffi import explained
from hlojit.runtime.native import Native, native
from hlojit.runtime.python_calls import raise_outcome

SHORT_CALL_NANOSECONDS: Final = 5_000.0
"""Calls that take less keep the GIL: releasing and taking it costs some forty nanoseconds, more when contended."""

MAXIMUM_RANK: Final = 64
"""Of NumPy's arrays."""


@dataclass(frozen=True, slots=True)
class ExecutableSpec:
    """What an executable is made of.

    ``entry`` is the address of the host program, ``i32 entry(ptr context, ptr slots)``, where ``slots`` is an array of
    addresses: inputs, outputs, the arena (``arena_bytes`` of temporaries, aligned to 64 bytes; null if 0), constants.
    It returns a ``Status``.  ``donated`` holds pairs (input number, output number or -1): the program writes the input's
    memory, and the output is made in it, so that its slot holds the same address.  ``explain`` turns (status, detail0,
    detail1) of a failed run into an exception.  ``threads`` limits the threads of this executable (0: as many as the
    process uses).  ``keepalive`` holds whatever the addresses depend on; ``record`` is the back end's own record of what
    happens, for people and tools to look at.  ``compiled`` is the program as data, if the back end made such data.
    """

    name: str
    entry: int
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    arena_bytes: int = 0
    constants: tuple[int, ...] = ()
    keepalive: tuple[object, ...] = ()
    donated: tuple[tuple[int, int], ...] = ()
    estimated_nanoseconds: float = float("inf")
    threads: int = 0
    explain: Callable[[int, int, int], Exception] | None = None
    record: Any = None
    compiled: CompiledProgram | None = None

    @property
    def program(self) -> Any:
        """The back end's record of what happens, for people and tools to look at."""
        return self.record if self.compiled is None else self.compiled.program


@final
class Executable:
    """A compiled program, callable with arrays; returns one array, or a tuple unless it has exactly one output.

    Arrays on a device (``hlojit.put``) as arguments make results that stay there; ``execute`` makes them in any case and
    does not wait.  ``call`` is the same callable without the instance's indirection, for those who call it often.
    """

    __slots__ = ("__call__", "__weakref__", "call", "device_call", "spec")

    dynamic_shapes: Final = "static"
    """All sizes are known (see ``hlojit.dynamic_executable``)."""

    __call__: Callable[..., Any]
    call: Callable[..., Any]
    device_call: DeviceCall
    spec: ExecutableSpec

    def __init__(self, spec: ExecutableSpec, backend: Backend | None = None):
        _check(spec)
        inner: Callable[..., Any]
        plain: Callable[..., Any]
        if objects.measure() is None:
            inner = _PythonCall(spec, native())
            on_device = _device_call(spec, inner, backend)
            plain = _Converting(spec, inner, on_device, wraps=True)
        else:
            inner = _giving_call(spec) if spec.donated else _native_call(spec, _refuse)
            on_device = _device_call(spec, inner, backend)
            if any(map(is_outside_form_different, (*spec.inputs, *spec.outputs))):
                plain = _Converting(spec, inner, on_device, wraps=True)
            else:
                plain = _native_call(spec, _Converting(spec, inner, on_device, wraps=False))
        self._bind(spec, plain, on_device)

    @classmethod
    def from_function(
        cls,
        name: str,
        function: Callable[..., Sequence[Any]],
        inputs: Sequence[TensorType],
        outputs: Sequence[TensorType],
        backend: Backend | None = None,
    ) -> Executable:
        """An executable over a Python function, which takes and returns arrays of the storage dtypes (a sequence)."""
        spec = ExecutableSpec(name, entry=0, inputs=tuple(inputs), outputs=tuple(outputs))
        _check(spec)
        inner = _Checking(spec, function, backend_text(backend.name) if backend is not None else "")
        on_device = _device_call(spec, inner, backend)
        made = cls.__new__(cls)
        made._bind(spec, _Converting(spec, inner, on_device, wraps=True), on_device)
        return made

    @classmethod
    def from_program(
        cls, program: DeviceProgram, backend: Backend, compiled: CompiledProgram | None = None
    ) -> Executable:
        """An executable of a program for a back end's own devices, and the data that it was loaded from."""
        spec = ExecutableSpec(
            program.name,
            entry=0,
            inputs=program.inputs,
            outputs=program.outputs,
            record=program,
            compiled=compiled,
        )
        _check(spec)
        made = cls.__new__(cls)
        on_device = DeviceCall(program, backend)
        made._bind(spec, on_device, on_device)
        return made

    def _bind(self, spec: ExecutableSpec, call: Callable[..., Any], on_device: DeviceCall) -> None:
        self.spec = spec
        self.call = call
        self.__call__ = call
        self.device_call = on_device

    def execute(self, *arguments: Any, device: Device | str | None = None) -> Any:
        """Start the program and return at once: one ``Array`` on a device, or a tuple of them, whose contents are pending.

        Arguments are as for a call; those on the host have been read when this returns.  The program runs on the device
        that the arguments are on, or on ``device``, or on the back end's first.  What goes wrong while it runs is raised
        where a result is waited for or read, and by the results of programs that take it.
        """
        return self.device_call.execute(*arguments, device=device)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Where the program can run; the first one is taken where nothing else is said."""
        return self.device_call.devices()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to a file that ``hlojit.load`` makes an executable of, in any process on such a processor.

        Raises ``HlojitError`` naming what cannot be written down: C pointers, Python callables.
        """
        write(self.compiled_program(), path)

    def compiled_program(self) -> CompiledProgram:
        """The program as data; raises ``HlojitError`` if there is none."""
        if self.spec.compiled is None:
            raise HlojitError(
                f"{self.spec.name} cannot be saved: its back end returned a Python callable or addresses of this process, "
                "not a compiled program"
            )
        return self.spec.compiled

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        """Types of the arguments."""
        return self.spec.inputs

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """Types of the results."""
        return self.spec.outputs

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.spec.inputs))
        outputs = ", ".join(map(str, self.spec.outputs))
        return f"<Executable {self.spec.name}: ({inputs}) -> ({outputs})>"


def _device_call(spec: ExecutableSpec, function: Callable[..., Any], backend: Backend | None) -> DeviceCall:
    """The program on host devices: ``function`` takes and returns storage arrays."""
    donated = tuple(number for number, _ in spec.donated)
    return DeviceCall(DeviceProgram(spec.name, spec.inputs, spec.outputs, function, donated), backend)


def _check(spec: ExecutableSpec) -> None:
    for kind, types in (("input", spec.inputs), ("output", spec.outputs)):
        for number, type_ in enumerate(types):
            # What a Python function returns may have whatever size it has.
            if not type_.is_static and (spec.entry or kind == "input"):
                raise HlojitError(f"{spec.name}: {kind} {number} of type {type_} has no static shape")
            if type_.rank > MAXIMUM_RANK:
                raise HlojitError(
                    f"{spec.name}: {kind} {number} of type {type_}: NumPy's arrays have {MAXIMUM_RANK} dimensions"
                )


# ------------------------------------------------------------------------------------------------- the native call


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_FASTCALL_KEYWORDS = 0x82
_definitions: dict[int, _MethodDefinition] = {}
"""By the address of the native call path."""


def _definition() -> _MethodDefinition:
    # One for all executables, never freed: what belongs to one of them hangs on the function's `self`.
    address = native().addresses["hlojit_call"]
    found = _definitions.get(address)
    if found is None:
        made = _MethodDefinition(b"executable", address, _METH_FASTCALL_KEYWORDS, b"A program compiled by hlojit.")
        # Of several threads, or a thread and its signal handler, one has made it.
        found = _definitions.setdefault(address, made)
        if found is made:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return found


def _table(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(1, len(numbers)))(*numbers)


def _call_record(spec: ExecutableSpec, otherwise: object) -> tuple[bytes, tuple[object, ...]]:
    """The record (``layout.CALL``) and the objects that its addresses depend on."""
    explain = _Explaining(spec)
    dtypes = [type_.element_type.storage for type_ in (*spec.inputs, *spec.outputs)]
    constants = _table(spec.constants)
    first_output = len(spec.inputs)
    inputs = [(id(dtype), type_.rank, *type_.shape) for dtype, type_ in zip(dtypes, spec.inputs)]
    givers = {output: number for number, output in spec.donated}
    outputs = [
        (id(dtype), type_.rank, -1 - givers[number] if number in givers else type_.nbytes, *type_.shape)
        for number, (dtype, type_) in enumerate(zip(dtypes[first_output:], spec.outputs))
    ]
    donations = _table([number for number, _ in spec.donated])
    input_bytes = _table([type_.nbytes for type_ in spec.inputs])
    fields = {
        "entry": spec.entry,
        "inputs": len(spec.inputs),
        "outputs": len(spec.outputs),
        "constants": len(spec.constants),
        "arena_bytes": spec.arena_bytes,
        "release_gil": int(spec.estimated_nanoseconds > SHORT_CALL_NANOSECONDS),
        "threads": spec.threads,
        "otherwise": id(otherwise),
        "explain": id(explain),
        "constant_table": ctypes.addressof(constants),
        "output_words": 0,
        "donated": len(spec.donated),
        "donation_table": ctypes.addressof(donations),
        "input_bytes": ctypes.addressof(input_bytes),
    }
    words = [fields[name] for name in layout.CALL]
    words += itertools.chain.from_iterable(inputs + outputs)
    needed = (otherwise, explain, dtypes, constants, donations, input_bytes, spec.keepalive)
    return struct.pack(f"={len(words)}q", *words), needed


def _native_call(spec: ExecutableSpec, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    record, needed = _call_record(spec, otherwise)
    new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    function: Callable[..., Any] = new_function(ctypes.addressof(_definition()), (record, needed), None)
    return function


def _giving_call(spec: ExecutableSpec) -> GivingCall:
    """Calls with donated arguments, which are copied where their memory cannot be taken."""
    numbers = [number for number, _ in spec.donated]
    return GivingCall(numbers, _native_call(spec, CopyingCall(numbers, _native_call(spec, _refuse))))


@final
class _Explaining:
    """Raises the exception for a failed run; called by native code."""

    __slots__ = ("places", "spec")

    def __init__(self, spec: ExecutableSpec):
        self.spec = spec
        self.places = function_places()
        """Those of the process that loads the program: its kernels may come from another one."""

    def __call__(self, status: int, detail0: int, detail1: int) -> NoReturn:
        if status == Status.OUT_OF_MEMORY:
            raise ExecutionError(
                f"{self.spec.name}: no memory for {detail0:,} bytes "
                "(the limit is what machine and container allow, or HLOJIT_MEMORY_LIMIT)"
            )
        if status == Status.FUNCTION_FAILED:
            # The message is part of the kernel's code, which is alive as long as the call is.
            text = ctypes.string_at(detail0, detail1).decode()
            raise class_of(text)(f"{self.spec.name}: {with_sources(with_place(text, self.places))}")
        if status == Status.FOREIGN_CALL_FAILED:
            raise ExecutionError(f"{self.spec.name}: {with_sources(explained(detail0, detail1))}")
        if status == Status.PYTHON_CALL_FAILED:
            raise_outcome(self.spec.name, detail0)
        if status == Status.NATIVE_CALL_FAILED:
            what, _, where = ctypes.string_at(detail0).decode().partition("\n")
            raise ExecutionError(
                f"{self.spec.name}: {with_sources(what)}: its function returned {detail1}{where and f'{chr(10)}  at {where}'}"
            )
        if self.spec.explain is not None:
            raise self.spec.explain(status, detail0, detail1)
        raise ExecutionError(f"{self.spec.name} failed with status {status} ({detail0}, {detail1})")


# ------------------------------------------------------------------------------------ calls that go through Python


def _convert(spec: ExecutableSpec, arguments: Sequence[object]) -> list[np.ndarray[Any, Any]]:
    if len(arguments) != len(spec.inputs):
        expected = len(spec.inputs)
        raise ArgumentError(
            f"{spec.name} takes {expected} argument{'s' if expected != 1 else ''}, not {len(arguments)}: "
            f"({', '.join(map(str, spec.inputs))})"
        )
    return [
        to_storage(argument, type_, f"{spec.name}, argument {number}")
        for number, (argument, type_) in enumerate(zip(arguments, spec.inputs))
    ]


def _refuse(*arguments: object) -> NoReturn:
    raise AssertionError(f"converted arguments are not what the call path takes: {arguments!r}")


@final
class _Converting:
    """Converts arguments to plain arrays of the storage dtype and calls the native function.

    ``wraps``: results look different outside - formats without a dtype, integers of less than a byte.
    """

    __slots__ = ("function", "on_device", "spec", "wraps")

    def __init__(self, spec: ExecutableSpec, function: Callable[..., Any], on_device: DeviceCall, *, wraps: bool):
        self.spec = spec
        self.function = function
        self.on_device = on_device
        self.wraps = wraps

    def __call__(self, *arguments: object, **keywords: object) -> Any:
        refuse_keywords(self.spec.name, self.spec.inputs, keywords)
        if has_device_array(arguments):
            return self.on_device(*arguments)
        results = self.function(*_convert(self.spec, arguments))
        if not self.wraps:
            return results
        if len(self.spec.outputs) == 1:
            return from_storage(results, self.spec.outputs[0])
        return tuple(from_storage(result, type_) for result, type_ in zip(results, self.spec.outputs))


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A view through which a back end's function cannot change the caller's array, or one on a device."""
    view = array.view()
    view.flags.writeable = False
    return view


def _references(values: list[Any], number: int) -> int:
    return sys.getrefcount(values[number])


_OWN_REFERENCES: Final = _references([np.empty(0)], 0) if hasattr(sys, "getrefcount") else 0


def _is_alone(values: list[Any], number: int) -> bool:
    """Whether an element of the list is an array with memory of its own that nobody else has."""
    if type(values[number]) is not np.ndarray or not values[number].flags.owndata or not _OWN_REFERENCES:
        return False
    return _references(values, number) <= _OWN_REFERENCES


@final
class _Checking:
    """Calls a back end's Python function and holds it to the types that it promised."""

    __slots__ = ("backend", "function", "spec")

    def __init__(self, spec: ExecutableSpec, function: Callable[..., Sequence[Any]], backend: str):
        self.spec = spec
        self.function = function
        self.backend = backend

    def __call__(self, *arguments: np.ndarray[Any, Any]) -> Any:
        try:
            returned = self.function(*map(_read_only, arguments))
        except HlojitError:
            raise
        except (Exception, SystemExit) as error:
            who = self.backend or "its function"
            raise ExecutionError(f"{self.spec.name}: {who} raised {told(error)}") from error
        if not isinstance(returned, Iterable):
            raise ExecutionError(f"{self._who} returned {type(returned).__name__}, not a sequence of results")
        results = list(returned)
        del returned
        if len(results) != len(self.spec.outputs):
            raise ExecutionError(f"{self._who} returned {len(results)} results, not {len(self.spec.outputs)}")
        arrays = []
        for number, type_ in enumerate(self.spec.outputs):
            is_alone = _is_alone(results, number)
            array = np.asarray(results[number])
            storage = type_.element_type.storage
            if array.dtype == type_.element_type.dtype != storage:
                # The form that the reference interpreter returns, of integers of less than a byte.
                array, is_alone = array.astype(storage), True
            fits = array.ndim == type_.rank and type_.refined(array.shape).shape == array.shape
            if not fits or array.dtype != storage:
                raise ExecutionError(
                    f"{self._who} returned for result {number}, which is {type_}, "
                    f"an array of dtype {array.dtype} and shape {array.shape}"
                )
            # A result that somebody else can reach might be changed later.
            arrays.append(array if is_alone else array.copy())
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

    @property
    def _who(self) -> str:
        return f"{self.spec.name}: {self.backend}" if self.backend else self.spec.name


@final
class _PythonCall:
    """The call path in Python, for interpreters whose objects look different from what the native one expects."""

    __slots__ = ("needed", "record", "runtime", "spec")

    def __init__(self, spec: ExecutableSpec, runtime: Native):
        self.spec = spec
        self.runtime = runtime
        self.record, self.needed = _call_record(spec, _refuse)

    def __call__(self, *arguments: object, **keywords: object) -> Any:
        refuse_keywords(self.spec.name, self.spec.inputs, keywords)
        inputs = _convert(self.spec, arguments)
        try:
            outputs = [np.empty(type_.shape, type_.element_type.storage) for type_ in self.spec.outputs]
            for number, output in self.spec.donated:
                inputs[number] = inputs[number].copy()
                if output >= 0:
                    type_ = self.spec.outputs[output]
                    outputs[output] = inputs[number].reshape(-1).view(type_.element_type.storage).reshape(type_.shape)
        except (MemoryError, ValueError) as error:
            raise ExecutionError(f"{self.spec.name}: no memory for the outputs: {error}") from error
        addresses = [array.ctypes.data for array in (*inputs, *outputs)]
        slots = _table([*addresses, *itertools.repeat(0, 1 + len(self.spec.constants))])
        self.runtime.run(self.record, slots)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
