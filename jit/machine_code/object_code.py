"""From LLVM IR text to object code and assembly, through llvmlite.

Pipelines: *plain* for code to be compiled as it stands, *host* for such code in which no time is spent, *lean* for code whose
vectors are explicit, *inline* the same after inlining what is marked ``alwaysinline``, *coroutines* the same after splitting
coroutines, *vectorize* for scalar loops that LLVM is to widen, *loops* for kernels within loops, *threads* for the code of one
thread of many.
Objects contain no absolute address; symbols are resolved by name when an object is loaded.

Imports llvmlite and next to nothing else: this is what a worker (``compile_worker.py``) has to load before it can begin.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import Any, Final, Protocol, TypeVar

import llvmlite.binding as llvm
from hlojit.ir.errors import HlojitError
from hlojit.ir.fork_gate import fork_gate
from hlojit.machine_code import llvmlite_lock
from hlojit.machine_code.undisturbed import lock, undisturbed

_Result = TypeVar("_Result")

_NO_OBJECTS: Final = ("nvptx",)
"""Architectures that LLVM makes assembly for, and no more."""
_UNROLLED_AS_WRITTEN: Final = ("amdgcn",)
"""Architectures for which LLVM unrolls nearly every loop, until sums that threads have many of are spilt."""


class Processor(Hashable, Protocol):
    """What LLVM needs to know of a processor, in its own words; hashable."""

    @property
    def triple(self) -> str:
        """Architecture, vendor, system."""

    @property
    def cpu(self) -> str:
        """What code is tuned for."""

    @property
    def features(self) -> str:
        """What code may use, comma-separated with signs."""


@cache
def initialize() -> None:
    """Make LLVM ready for all processors that it knows; once."""
    llvmlite_lock.mend()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@cache
def target_machine(processor: Processor, optimization: int = 2) -> Any:
    """LLVM's target machine for a processor (position-independent code, small code model)."""
    initialize()
    return llvm.Target.from_triple(processor.triple).create_target_machine(
        cpu=processor.cpu, features=processor.features, opt=optimization, reloc="pic", codemodel="small"
    )


_WITH_KERNELS: Final = ("loops", "versions")
"""Pipelines of loops with their kernels inside; the second, of those in two versions, which differ by what is assumed."""


class _Pipeline:
    """The passes of one name for one processor.

    The passes are made once: those with tables of their own do not give everything back when they are disposed of.  LLVM's
    default pipeline (``vectorize``) can be run only once, though.  llvmlite's pass builders serve one run each: a run leaves
    callbacks in its builder that point to the stack of the thread that made it.

    llvmlite offers no coroutine passes one by one; what LLVM does at level 0 is little else than these.
    """

    def __init__(self, processor: Processor, name: str):
        self._machine = target_machine(processor)
        self._options = llvm.create_pipeline_tuning_options(speed_level=2)
        # Loops over elements as people write them; sums in floating point keep their order.
        self._options.loop_vectorization = name in ("vectorize", *_WITH_KERNELS)
        self._options.slp_vectorization = name in ("vectorize", "threads")
        self._options.loop_unrolling = not processor.triple.startswith(_UNROLLED_AS_WRITTEN)
        self._manager: Any = None
        self._is_empty = name in ("plain", "host")
        self._least = llvm.create_pipeline_tuning_options(speed_level=0) if name == "coroutines" else None
        if name in ("inline", "lean", "coroutines"):
            self._manager = llvm.create_new_module_pass_manager()
            if name == "inline":
                self._manager.add_always_inliner_pass()
                self._manager.add_global_dead_code_eliminate_pass()
            self._manager.add_sroa_pass()
            self._manager.add_instruction_combine_pass()
            self._manager.add_simplify_cfg_pass()
        self._first: Any = None
        if name == "versions":
            # What is assumed in a loop is of what its kernels compute as they write it, not as LLVM simplifies each alone;
            # their short loops are unrolled as they would be there.
            self._first = llvm.create_new_module_pass_manager()
            self._first.add_sroa_pass()
            self._first.add_loop_rotate_pass()
            self._first.add_loop_unroll_pass()
            self._first.add_always_inliner_pass()
            self._first.add_global_dead_code_eliminate_pass()

    def run(self, module: Any) -> None:
        if self._is_empty:
            return
        if self._least is not None:
            self._run(module, None, self._least)
        if self._first is not None:
            self._run(module, self._first, self._options)
        self._run(module, self._manager, self._options)

    def _run(self, module: Any, manager: Any, options: Any) -> None:
        """Run passes, or LLVM's default ones of a level."""
        builder = llvm.create_pass_builder(self._machine, options)
        try:
            (builder.getModulePassManager() if manager is None else manager).run(module, builder)
        finally:
            builder.close()


_pipelines: dict[tuple[Processor, str], _Pipeline] = {}


def _pipeline(processor: Processor, name: str) -> _Pipeline:
    key = (processor, name)
    if key not in _pipelines:
        _pipelines[key] = _Pipeline(processor, name)
    return _pipelines[key]


def _optimized(
    use: Callable[[Any], _Result], ir: str, processor: Processor, pipeline: str, linked: Iterable[str]
) -> _Result:
    """Parse, verify, link and optimize; returns what ``use`` makes of llvmlite's module.

    Malformed IR is our bug and raises ``HlojitError``.  Types and constants live in a context of the module's own, and
    go with it.
    """
    # This thread is inside until it has what it wants, and the one that does the work until it is done.
    with fork_gate.inside:
        return undisturbed(_optimized_here, use, ir, processor, pipeline, tuple(linked))


def _optimized_here(
    use: Callable[[Any], _Result], ir: str, processor: Processor, pipeline: str, linked: Iterable[str]
) -> _Result:
    with fork_gate.inside_for_another, lock, llvm.create_context() as context:
        header = (
            f'target triple = "{processor.triple}"\ntarget datalayout = "{target_machine(processor).target_data}"\n'
        )
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
                        if pipeline in _WITH_KERNELS and not any(b"noinline" in each for each in function.attributes):
                            function.add_function_attribute("alwaysinline")
                module.verify()
            except RuntimeError as error:
                raise HlojitError(f"internal error: LLVM refuses generated code: {error}") from error
            _pipeline(processor, pipeline).run(module)
            return use(module)
        finally:
            # Before the context that it lives in.
            for each in modules:
                each.close()


def _generator(processor: Processor, pipeline: str) -> Any:
    """What makes machine code of a module.

    The checks in simulated kernels are much code that runs seldom; a host program is a line of calls, which level 2 makes no
    shorter, in four times the time.
    """
    return target_machine(processor, 0 if pipeline in ("coroutines", "host") else 2)


def compile_to_object(ir: str, processor: Processor, *, pipeline: str = "lean", linked: Iterable[str] = ()) -> bytes:
    """Compile LLVM IR text to a relocatable object, or to assembly (PTX) where LLVM makes no objects."""

    def emitted(module: Any) -> bytes:
        if processor.triple.startswith(_NO_OBJECTS):
            return str(_generator(processor, pipeline).emit_assembly(module)).encode()
        return bytes(_generator(processor, pipeline).emit_object(module))

    return _optimized(emitted, ir, processor, pipeline, linked)


def compile_to_assembly(ir: str, processor: Processor, *, pipeline: str = "lean", linked: Iterable[str] = ()) -> str:
    """Compile LLVM IR text to assembly, for people and tests to read."""

    def emitted(module: Any) -> str:
        return str(_generator(processor, pipeline).emit_assembly(module))

    return _optimized(emitted, ir, processor, pipeline, linked)
