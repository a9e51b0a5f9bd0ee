"""The processor at hand as LLVM sees it, objects that are kept, and from objects to callable addresses."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from hlojit.disk_cache import disk_cache
from hlojit.ir.binary import FormatError
from hlojit.ir.errors import HlojitError
from hlojit.ir.files import sealed, unsealed
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.versions import versions_text
from hlojit.lowering.target import Target
from hlojit.machine_code.object_code import compile_to_object, initialize
from hlojit.machine_code.undisturbed import aside, lock, undisturbed

_LEVELS = {
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
    "x86-64-v3": "avx2 bmi bmi2 f16c fma lzcnt movbe",
    "x86-64-v2": "cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3",
}
"""The levels of the x86-64 architecture (System V ABI, section 3.1.1), highest first, each with those below it."""


def architecture_level(features: Collection[str]) -> str:
    """The highest level of x86-64 whose features are all there: LLVM then tunes for what is common to such processors."""
    missing = [not set(needed.split()) <= set(features) for needed in _LEVELS.values()]
    for number, name in enumerate(_LEVELS):
        if not any(missing[number:]):
            return name
    return "x86-64"


@cache
def process_target() -> Target:
    """The processor that this process runs on, by its features: names are what virtual machines make up."""
    return undisturbed(_process_target)


def _process_target() -> Target:
    initialize()
    triple = llvm.get_process_triple()
    available = llvm.get_host_cpu_features()
    cpu = "generic"
    if triple.startswith("x86_64"):
        cpu = architecture_level([name for name, there in available.items() if there])
        # LLVM prefers 256-bit vectors on some processors; our vectors are explicit and mean what they say.
        available["prefer-256-bit"] = False
        if available.get("avx512f") and available.get("avx512bw") and available.get("avx512vl"):
            bits, registers, unroll = 512, 32, 4
        elif available.get("avx2"):
            bits, registers, unroll = 256, 16, 2
        else:
            bits, registers, unroll = 128, 16, 2
    else:
        bits, registers, unroll = 128, 32, 4
    return Target(triple, cpu, available.flatten(), bits, registers, unroll)


_MAGIC = b"hlojito\n"


def kept_object(ir: str, target: Target, *, pipeline: str = "lean") -> bytes | memoryview:
    """``compile_to_object``, or what it returned before: in this process or another one, from the cache on disk."""
    cache_ = disk_cache()
    if cache_ is None:
        return compile_to_object(ir, target, pipeline=pipeline)
    text = f"{target.identity}\0{versions_text()}\0{pipeline}\0{ir}"
    key = hashlib.sha256(text.encode()).hexdigest()
    data = cache_.get("objects", key)
    if data is not None:
        try:
            return unsealed(_MAGIC, 1, data, key)
        except FormatError:
            cache_.discard("objects", key)
    image = compile_to_object(ir, target, pipeline=pipeline)
    cache_.put("objects", key, sealed(_MAGIC, 1, image, key))
    return image


LIBRARIES_PER_JIT = 16
"""Programs that share one of ORC's sessions, whose own tables grow with every program and shrink with none."""


class _Session:
    """One LLJIT.  It is disposed of with the last program in it, and gives back what ORC had noted of all of them."""

    def __init__(self) -> None:
        # JITLink lays an object's sections out side by side and returns errors.  The older linker ended the process in
        # long runs, for a reason that is only suspected: docs/decisions/linking-with-jitlink.md.
        self.jit = llvm.create_lljit_compiler(_session_machine(), use_jit_link=True, suppress_errors=True)
        self.libraries = 0


@cache
def _session_machine() -> Any:
    initialize()
    # Only objects are given to it; what it would compile for does not matter.
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(reloc="pic", codemodel="small")


_session: _Session | None = None


class LoadedCode:
    """Objects loaded into the process; keep it alive as long as any of its addresses may be called."""

    def __init__(self, tracker: Any, session: _Session):
        self._tracker = tracker
        self._session = session

    def address(self, symbol: str) -> int:
        """Address of an exported symbol."""
        return int(self._tracker[symbol])

    def keep_for_ever(self) -> None:
        """Never unload this code, not even when the interpreter ends."""
        for immortal in (self, self._tracker, self._session.jit):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(immortal))

    def __del__(self) -> None:
        # Where the interpreter ends, what this names may have gone before: code that a plugin's function holds goes last.
        if self.__dict__ and aside is not None:
            aside(_drop, self.__dict__)


def _drop(attributes: dict[str, Any]) -> None:
    # Before the session, which may go with it.
    for name in ("_tracker", "_session"):
        attributes.pop(name, None)


def load_objects(
    objects: Iterable[bytes | memoryview], exports: Iterable[str], imports: Mapping[str, int] | None = None
) -> LoadedCode:
    """Load object files together; ``imports`` gives addresses for symbols that the process does not export."""
    with fork_gate.inside:
        return undisturbed(_loaded, tuple(objects), tuple(exports), dict(imports or {}))


def _loaded(objects: Iterable[bytes | memoryview], exports: Iterable[str], imports: Mapping[str, int]) -> LoadedCode:
    global _session
    builder = llvm.JITLibraryBuilder()
    for image in objects:
        builder.add_object_img(image)
    builder.add_current_process()
    for symbol, address in imports.items():
        builder.import_symbol(symbol, address)
    for symbol in exports:
        builder.export_symbol(symbol)
    with fork_gate.inside_for_another, lock:
        if _session is None or _session.libraries == LIBRARIES_PER_JIT:
            _session = _Session()
        session = _session
        session.libraries = number = session.libraries + 1
        try:
            library = builder.link(session.jit, f"hlojit.{number}")
        except RuntimeError as error:
            raise HlojitError(f"internal error: compiled code cannot be loaded: {error}") from error
        return LoadedCode(library, session)
