"""Kernels by content: one kernel serves every program in which its structure appears, in every process.

The symbol of a kernel is a hash of everything that its code depends on: the instruction's structure (with the content of
what plugins bring), the target, and the versions of hlojit and the packages below it.

    cache = KernelCache(target, emit)
    code = cache.code(instruction)              # emitted once per structure
    objects = cache.objects([code], assemble)   # assembled once each
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import final

from hlojit.disk_cache import disk_cache
from hlojit.ir.binary import FormatError, Reader, Writer, records_of
from hlojit.ir.files import sealed, unsealed
from hlojit.ir.fingerprint import NotKeyable
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.graph import Instruction
from hlojit.ir.versions import versions_text
from hlojit.lowering import kernel
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.structure import Identities, isolated, structure_text
from hlojit.lowering.target import Target

Emitter = Callable[[Instruction, Target, str], KernelCode]
"""``emit(instruction, target, symbol)``: the instruction stands alone, its operands are arguments."""
Assembler = Callable[[Sequence[KernelCode]], Mapping[str, bytes]]
"""From kernels to their images, by symbol."""

MAXIMUM_BYTES = 16 << 20
"""Code that the cache keeps in memory; what programs use lives as long as they do."""
ENTRY_BYTES = 1 << 10
"""What an entry takes besides its texts, about."""

_MAGIC = b"hlojitk\n"
_VERSION = 1
_RECORDS = records_of(kernel)

_private = itertools.count()


@final
class KernelCache:
    """Kernels of one target, the last used ones up to ``maximum_bytes``."""

    def __init__(self, target: Target, emit: Emitter, maximum_bytes: int = MAXIMUM_BYTES, *, software: str = ""):
        """``software`` tells what else images depend on: the versions of assemblers that are not hlojit's."""
        self.target = target
        self.maximum_bytes = maximum_bytes
        self._emit = emit
        self._stamp = f"{target.identity}\0{versions_text()}\0{software}"
        self._codes: OrderedDict[str, KernelCode] = OrderedDict()
        self._objects: dict[str, bytes | memoryview] = {}
        self._bytes = 0
        self._lock = threading.RLock()

    def code(self, instruction: Instruction, identities: Identities | None = None) -> KernelCode:
        """The kernel of an instruction; emitted once per structure."""
        try:
            text = structure_text(instruction, identities)
        except NotKeyable as error:
            return self._private_code(instruction, str(error))
        code = self._kept(_symbol(self._stamp + text), partial(self._emitted, instruction))
        return self._private_code(instruction, code.unkeyable) if code.unkeyable else code

    def named(self, name: str, make: Callable[[str], KernelCode]) -> KernelCode:
        """A kernel that is no instruction's, by a name of its own: ``make(symbol)``, made once."""
        return self._kept(_symbol(f"{self._stamp}\0{name}"), make)

    def variant(self, code: KernelCode, name: str, make: Callable[[str], KernelCode]) -> KernelCode:
        """Another way to compute what a kernel of this cache does, under a name: ``make(symbol)``, made once."""
        return self._kept(_symbol(f"{code.symbol}\0{name}"), make)

    def _kept(self, symbol: str, make: Callable[[str], KernelCode]) -> KernelCode:
        """The kernel of a symbol, made if there is none; one that has no identity is made, and not kept."""
        with fork_gate.inside:
            found = self._find(symbol)
            if found is not None:
                return found
            # Not under the lock: rules of plugins run, which may compile something themselves, or wait for who does.
            code = make(symbol)
            if code.unkeyable:
                return code
            if code.symbol != symbol:
                # The first phase of some is a copy, which has a symbol of its own: it would be looked for in vain.
                code = replace(code, name=symbol)
            with self._lock:
                return self._codes.get(symbol) or self._keep(code)

    def _private_code(self, instruction: Instruction, reason: str) -> KernelCode:
        """A kernel for one program alone: nobody else can know that he wants this one."""
        with fork_gate.inside:
            code = self._emitted(instruction, f"hlojit_private_{next(_private)}")
        return replace(code, unkeyable=reason)

    def _emitted(self, instruction: Instruction, symbol: str) -> KernelCode:
        return self._emit(isolated(instruction), self.target, symbol)

    def has_object(self, code: KernelCode) -> bool:
        """Whether the kernel has been assembled already."""
        self._find(code.symbol)
        with self._lock:
            return code.symbol in self._objects

    def objects(self, codes: Iterable[KernelCode], assemble: Assembler) -> list[tuple[str, bytes | memoryview]]:
        """Symbol and image of kernels and their parts, assembled once each."""
        wanted = list(codes)
        # A part may be here, or on disk, since another kernel has it as well.
        parts = {part.symbol: part for code in wanted for part in code.parts}
        wanted += [self._kept(symbol, partial(_itself, part)) for symbol, part in parts.items()]
        with self._lock:
            found: dict[str, bytes | memoryview] = {
                code.symbol: self._objects[code.symbol] for code in wanted if code.symbol in self._objects
            }
        missing = [code for code in wanted if code.symbol not in found]
        images = assemble(missing)
        for code in missing:
            found[code.symbol] = images[code.symbol]
            self._keep_object(code, images[code.symbol])
        return [(code.symbol, found[code.symbol]) for code in wanted]

    def _keep_object(self, code: KernelCode, image: bytes) -> None:
        if not code.unkeyable:
            _write(code, image)
            with self._lock:
                if self._codes.get(code.symbol) is code:
                    self._add_object(code, image)

    def _add_object(self, code: KernelCode, image: bytes | memoryview) -> None:
        if code.symbol not in self._objects:
            self._objects[code.symbol] = image
            self._grow(len(image))

    def _find(self, symbol: str) -> KernelCode | None:
        with self._lock:
            code = self._codes.get(symbol)
            if code is not None:
                self._codes.move_to_end(symbol)
                return code
        # Not under the lock: disks may be slow, and other threads want other kernels.
        found = _read(symbol)
        if found is None:
            return None
        with self._lock:
            code = self._codes.get(symbol)
            if code is None:
                code = self._keep(found[0])
                self._add_object(*found)
            return code

    def _keep(self, code: KernelCode) -> KernelCode:
        self._codes[code.symbol] = code
        self._grow(code.nbytes + ENTRY_BYTES)
        return code

    def _grow(self, nbytes: int) -> None:
        self._bytes += nbytes
        while self._bytes > self.maximum_bytes and len(self._codes) > 1:
            symbol, oldest = self._codes.popitem(last=False)
            nbytes = oldest.nbytes + ENTRY_BYTES + len(self._objects.pop(symbol, b""))
            self._bytes -= nbytes


def _itself(code: KernelCode, symbol: str) -> KernelCode:
    return code


def _symbol(content: str) -> str:
    return f"hlojit_{hashlib.sha256(content.encode()).hexdigest()[:32]}"


def _read(symbol: str) -> tuple[KernelCode, memoryview] | None:
    """A kernel and its object from the cache on disk."""
    cache = disk_cache()
    data = cache.get("kernels", symbol) if cache is not None else None
    if cache is None or data is None:
        return None
    try:
        found = Reader(unsealed(_MAGIC, _VERSION, data, symbol), _RECORDS).value()
        if isinstance(found, tuple) and [type(part) for part in found] == [KernelCode, memoryview]:
            return found[0], found[1]
    except FormatError:
        pass
    cache.discard("kernels", symbol)
    return None


def _write(code: KernelCode, image: bytes) -> None:
    cache = disk_cache()
    if cache is not None:
        writer = Writer(_RECORDS)
        writer.put((code, image))
        cache.put("kernels", code.symbol, sealed(_MAGIC, _VERSION, writer.finish(), code.symbol))
