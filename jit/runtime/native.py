"""The runtime's native parts: LLVM IR text in this folder, compiled and loaded once per process.

No C compiler is involved.  The texts are readable on their own; what depends on the machine is in the files
``arch_*.ll``, ``threads_*.ll`` and ``pages_*.ll``, of which one each is taken.

The *core* - thread pool, memory pool, polls, execution of host programs - needs the C library and nothing else: with it a
compiled program runs in a process without Python.  The *Python part* (``python.ll``, ``call.ll``) adds signals, the GIL and
the call path, and is what the core's hook for polls calls.  They are two objects that only know each other's symbols.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any, Final

from hlojit.ir import unwritten
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.once import Once
from hlojit.ir.switches import MEMORY_CACHE, MEMORY_LIMIT
from hlojit.runtime import layout, objects, quota

CORE_SYMBOLS: Final = (
    "hlojit_parallel_for",
    "hlojit_poll",
    "hlojit_fail",
    "hlojit_allocate",
    "hlojit_release",
    "hlojit_clear",
    "hlojit_enter_program",
    "hlojit_leave_program",
    "hlojit_library_enter",
    "hlojit_library_leave",
    "__truncsfhf2",
    "__truncdfhf2",
    "__extendhfsf2",
)
"""What kernels, host programs and the simulator's scheduler may call of the core."""

GENERATED_CODE_SYMBOLS: Final = (*CORE_SYMBOLS, "hlojit_enter_python", "hlojit_leave_python")
"""The same with what code may call that itself calls Python."""

_FUNCTIONS: Final[Mapping[str, tuple[Any, tuple[Any, ...]]]] = {
    "hlojit_python_setup": (None, (ctypes.c_int64, ctypes.c_uint64)),
    "hlojit_python_close": (None, ()),
    "hlojit_ticks": (ctypes.c_uint64, ()),
    "hlojit_pool_set_threads": (None, (ctypes.c_int32,)),
    "hlojit_pool_set_spin": (None, (ctypes.c_int64,)),
    "hlojit_pool_threads": (ctypes.c_int32, ()),
    "hlojit_pool_started": (ctypes.c_int32, ()),
    "hlojit_pool_reset": (None, ()),
    "hlojit_pool_shutdown": (None, ()),
    "hlojit_memory_trim": (None, ()),
    "hlojit_memory_setup": (None, (ctypes.c_int64, ctypes.c_int64)),
    "hlojit_memory_counters": (ctypes.c_void_p, ()),
    "hlojit_memory_fill": (None, (ctypes.c_int32,)),
    "hlojit_python_fork_child": (None, ()),
    "hlojit_library_close": (ctypes.c_int64, ()),
    "hlojit_library_open": (None, ()),
    "hlojit_call_counters": (ctypes.c_void_p, ()),
    "hlojit_dispatch_setup": (None, (ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)),
    "hlojit_dispatched": (ctypes.c_int64, ()),
}
"""What Python calls: result and parameter types."""

_PYTHON_API: Final = (
    "PyThread_get_thread_ident",
    "PyErr_CheckSignals",
    "PyErr_Clear",
    "PyErr_Occurred",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "Py_IncRef",
    "Py_DecRef",
    "PyCapsule_New",
    "PyCapsule_GetPointer",
    "PyCapsule_IsValid",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyObject_Vectorcall",
    "PyObject_CallFunction",
    "PyObject_CallFunctionObjArgs",
    "PyObject_GenericGetDict",
    "PyObject_GenericSetAttr",
    "PyObject_GetAttr",
    "PyObject_GetItem",
    "PyObject_RichCompareBool",
    "PyObject_SetItem",
    "PySequence_Tuple",
    "PyErr_ExceptionMatches",
    "PyErr_Fetch",
    "PyErr_NoMemory",
    "PyErr_NormalizeException",
    "PyErr_Restore",
    "PyException_GetTraceback",
    "PyException_SetTraceback",
    "PyBool_FromLong",
    "PyCell_Get",
    "PyComplex_ImagAsDouble",
    "PyComplex_RealAsDouble",
    "PyContextVar_Get",
    "PyDict_GetItemWithError",
    "PyDict_New",
    "PyDict_Next",
    "PyDict_SetItem",
    "PyDict_Size",
    "PyFloat_AsDouble",
    "PyFloat_FromDouble",
    "PyList_GetItem",
    "PyList_New",
    "PyList_SetItem",
    "PyList_Size",
    "PyLong_AsLongLongAndOverflow",
    "PyLong_FromLongLong",
    "PyExc_Exception",
    "PyFloat_Type",
    "PyTuple_Type",
)
_LINUX_API: Final = (
    "syscall",
    "pthread_create",
    "pthread_join",
    "pthread_sigmask",
    "prctl",
    "sched_yield",
    "mmap",
    "munmap",
    "madvise",
    "memcpy",
    "memset",
)
_OTHER_API: Final = ("malloc", "free", "memcpy", "memset")
_NUMPY_API: Final = {
    "PyArray_Type": 2,
    "PyArray_CopyInto": 50,
    "PyArray_Scalar": 60,
    "PyArray_FromScalar": 61,
    "PyArray_NewFromDescr": 94,
    "PyArray_Transpose": 123,
    "PyArray_SetBaseObject": 282,
}
"""Positions in NumPy's table of C functions, which are part of its binary interface."""

_FORK_HANDLERS: Final = ("hlojit_fork_prepare", "hlojit_fork_parent", "hlojit_python_fork_child")

POLL_SECONDS: Final = 0.01
SPIN_SECONDS: Final = 50e-6
CACHE_SHARE: Final = 0.25
"""Share of the memory limit that freed blocks may keep."""


def core_source(triple: str) -> str:
    """The LLVM IR of the runtime's core for a processor and an operating system."""
    architecture = triple.split("-", 1)[0]
    is_linux = "linux" in triple and architecture in ("x86_64", "aarch64")
    return "\n".join(
        [
            layout.accessors(),
            *_texts(
                f"arch_{architecture if architecture in ('x86_64', 'aarch64') else 'other'}.ll",
                "poll.ll",
                "parallel.ll",
                "threads_linux.ll" if is_linux else "threads_serial.ll",
                "pages_linux.ll" if is_linux else "pages_other.ll",
                "memory.ll",
                "execute.ll",
                "direct.ll",
                "half.ll",
                "fork.ll",
            ),
        ]
    )


def python_source() -> str:
    """The LLVM IR of the part that knows Python, for this interpreter and its NumPy."""
    offsets = objects.measure() or objects.expected()
    texts = _texts("python.ll", "donation.ll", "call.ll", "matching.ll", "giving.ll", "dispatch.ll")
    interpreters = [layout.interpreter("match", layout.MATCH), layout.interpreter("give", layout.GIVE)]
    return "\n".join([offsets.llvm_ir(), layout.accessors(), *texts, *interpreters])


def _texts(*names: str) -> list[str]:
    folder = resources.files(__package__)
    return [(folder / name).read_text(encoding="utf-8") for name in names]


def core_imports() -> dict[str, int]:
    """Addresses of what the core needs of the C library."""
    library = ctypes.CDLL(None if os.name == "posix" else "msvcrt")
    return {name: _address(getattr(library, name)) for name in (_LINUX_API if sys.platform == "linux" else _OTHER_API)}


def _python_imports() -> dict[str, int]:
    addresses = {name: _address(getattr(ctypes.pythonapi, name)) for name in _PYTHON_API}
    addresses |= {name: objects.numpy_function(position) for name, position in _NUMPY_API.items()}
    return addresses


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


class Native:
    """The loaded runtime.  There is one per process: ``native()``."""

    def __init__(self) -> None:
        # Imported here: LLVM is loaded with the first compilation, not with hlojit.
        from hlojit.machine_code import loading

        target = loading.process_target()
        core = loading.kept_object(core_source(target.triple), target, pipeline="inline")
        python = loading.kept_object(python_source(), target, pipeline="inline")
        entries = (
            "hlojit_call", "hlojit_run", "hlojit_execute_beside", "hlojit_dispatch", "hlojit_direct_find", "hlojit_direct_run"
        )  # fmt: skip
        exports = (*GENERATED_CODE_SYMBOLS, *_FUNCTIONS, *entries, *_FORK_HANDLERS)
        code = loading.load_objects([core, python], exports, core_imports() | _python_imports())
        # Destructors of arrays and sleeping workers outlive every Python object.
        code.keep_for_ever()
        self.addresses: dict[str, int] = {name: code.address(name) for name in exports}
        for name, (result, parameters) in _FUNCTIONS.items():
            setattr(self, name, ctypes.PYFUNCTYPE(result, *parameters)(self.addresses[name]))
        self.run = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(self.addresses["hlojit_run"])
        self._set_up()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(name)

    def symbols(self) -> dict[str, int]:
        """Addresses of what generated code may call, for ``loading.load_objects(imports=...)``."""
        return {name: self.addresses[name] for name in GENERATED_CODE_SYMBOLS}

    def _set_up(self) -> None:
        rate = self._ticks_per_second()
        self._poll_interval = int(rate * POLL_SECONDS)
        self.hlojit_python_setup(self._poll_interval, threading.main_thread().ident or 0)
        self.hlojit_pool_set_spin(int(rate * SPIN_SECONDS))
        self.hlojit_pool_set_threads(quota.default_threads())
        limit = MEMORY_LIMIT.nbytes(quota.memory_limit())
        self.hlojit_memory_setup(MEMORY_CACHE.nbytes(int(limit * CACHE_SHARE)), limit)

    def _ticks_per_second(self) -> float:
        start, start_ticks = time.perf_counter_ns(), self.hlojit_ticks()
        while (elapsed := time.perf_counter_ns() - start) < 200_000:
            pass
        ticks: int = self.hlojit_ticks() - start_ticks
        return max(1.0, ticks * 1e9 / elapsed)

    def register_fork_handlers(self) -> None:
        """Make the runtime work in children made by fork."""
        library = ctypes.CDLL(None)
        handlers = [ctypes.c_void_p(self.addresses[name]) for name in _FORK_HANDLERS]
        if hasattr(library, "pthread_atfork"):
            library.pthread_atfork(*handlers)
        elif hasattr(library, "__register_atfork"):  # the GNU C library's, behind its static pthread_atfork
            getattr(library, "__register_atfork")(*handlers, None)
        else:
            os.register_at_fork(after_in_child=self.hlojit_python_fork_child)


def _begin(created: Native) -> None:
    atexit.register(created.hlojit_pool_shutdown)
    unwritten.watch(created.hlojit_memory_fill)
    if hasattr(os, "fork"):
        created.register_fork_handlers()
        fork_gate.libraries.append((created.hlojit_library_close, created.hlojit_library_open))


native: Final = Once(Native, _begin)
"""The runtime, compiled and loaded by the first call (some 50 ms)."""


def stop_other_threads() -> None:
    """Stop the programs that run on other threads than the main one, for good: the interpreter ends."""
    if native.made is not None:
        native.made.hlojit_python_close()
