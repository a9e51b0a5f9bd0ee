"""From LLVM IR text to object code to callable addresses, through llvmlite.

Pipelines: *plain* for code to be compiled as it stands, *lean* for code whose vectors are explicit, *inline* the same after
inlining what is marked ``alwaysinline``, *vectorize* for scalar loops that LLVM is to widen.
Objects contain no absolute address; symbols are resolved by name when an object is loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
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


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


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
    _initialize()
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


@cache
def target_machine(target: Target, optimization: int = 2) -> Any:
    """LLVM's target machine for a target (position-independent code, small code model)."""
    _initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=optimization, reloc="pic", codemodel="small"
    )


_MAGIC = b"hlojito\n"
_lock = threading.RLock()


class _Pipeline:
    """The passes of one name for one processor.

    Made once: llvmlite's pass builders, and passes with tables of their own, do not give everything back when they are
    disposed of.  LLVM's default pipeline (``vectorize``) can be run only once, though.
    """

    def __init__(self, target: Target, name: str):
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.slp_vectorization = name == "vectorize"
        self._builder = llvm.create_pass_builder(target_machine(target), options)
        self._manager: Any = None
        if name == "vectorize":
            return
        manager = self._manager = llvm.create_new_module_pass_manager()
        if name == "inline":
            manager.add_always_inliner_pass()
            manager.add_global_dead_code_eliminate_pass()
        if name in ("inline", "lean"):
            manager.add_sroa_pass()
            manager.add_instruction_combine_pass()
            manager.add_simplify_cfg_pass()

    def run(self, module: Any) -> None:
        manager = self._builder.getModulePassManager() if self._manager is None else self._manager
        manager.run(module, self._builder)


_pipelines: dict[tuple[Target, str], _Pipeline] = {}


def _pipeline(target: Target, name: str) -> _Pipeline:
    key = (target, name)
    if key not in _pipelines:
        _pipelines[key] = _Pipeline(target, name)
    return _pipelines[key]


@contextmanager
def optimized_module(ir: str, target: Target, *, pipeline: str = "lean", linked: Iterable[str] = ()) -> Iterator[Any]:
    """Parse, verify, link and optimize; llvmlite's module, for a ``with`` block.

    Malformed IR is our bug and raises ``HlojitError``.  Types and constants live in a context of the module's own, and
    go with it.
    """
    header = f'target triple = "{target.triple}"\ntarget datalayout = "{target_machine(target).target_data}"\n'
    with fork_gate, _lock, llvm.create_context() as context:
        modules = []
        try:
            try:
                modules.append(module := llvm.parse_assembly(header + ir, context))
                own = {function.name for function in module.functions if not function.is_declaration}
                for text in linked:
                    module.link_in(llvm.parse_assembly(text, context))
                for function in module.functions:
                    # Several kernels of a program may bring the same function: it is nobody's but the kernel's.
                    if not function.is_declaration and function.name not in own:
                        function.linkage = "internal"
                module.verify()
            except RuntimeError as error:
                raise HlojitError(f"internal error: LLVM refuses generated code: {error}") from error
            _pipeline(target, pipeline).run(module)
            yield module
        finally:
            # Before the context that it lives in.
            for each in modules:
                each.close()


def compile_to_object(ir: str, target: Target, *, pipeline: str = "lean", linked: Iterable[str] = ()) -> bytes:
    """Compile LLVM IR text to a relocatable object."""
    with optimized_module(ir, target, pipeline=pipeline, linked=linked) as module:
        return bytes(target_machine(target).emit_object(module))


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


def compile_to_assembly(ir: str, target: Target, *, pipeline: str = "lean", linked: Iterable[str] = ()) -> str:
    """Compile LLVM IR text to assembly, for people and tests to read."""
    with optimized_module(ir, target, pipeline=pipeline, linked=linked) as module:
        return str(target_machine(target).emit_assembly(module))


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
    _initialize()
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
        # Before the session, which may go with this object.
        self.__dict__.pop("_tracker", None)


def load_objects(
    objects: Iterable[bytes | memoryview], exports: Iterable[str], imports: Mapping[str, int] | None = None
) -> LoadedCode:
    """Load object files together; ``imports`` gives addresses for symbols that the process does not export."""
    global _session
    builder = llvm.JITLibraryBuilder()
    for image in objects:
        builder.add_object_img(image)
    builder.add_current_process()
    for symbol, address in (imports or {}).items():
        builder.import_symbol(symbol, address)
    for symbol in exports:
        builder.export_symbol(symbol)
    with fork_gate, _lock:
        if _session is None or _session.libraries == LIBRARIES_PER_JIT:
            _session = _Session()
        session = _session
        session.libraries += 1
        return LoadedCode(builder.link(session.jit, f"hlojit.{session.libraries}"), session)
