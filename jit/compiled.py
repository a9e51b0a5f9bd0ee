"""Compiled programs as plain data: what ``Backend.compile`` ends in, and what a file holds.

    compiled = CompiledProgram(...)          # objects, constants, signature, program record, provenance
    write(compiled, path); compiled = read(path)

``Backend.load`` makes an executable of one.  Reading checks everything and runs nothing, but the objects in it *are native
code*, and whoever loads it runs them: load files of people you trust, as you would import their modules.  The checksum is
against damage, not against malice.  ``docs/file-format.md`` describes the bytes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from hlojit import sized_program
from hlojit.ir import location, sizes
from hlojit.ir.binary import FormatError, Reader, Records, Writer, records_of
from hlojit.ir.errors import HlojitError
from hlojit.ir.files import open_regular, read_aligned, sealed, unsealed, write_file
from hlojit.ir.fingerprint import NotKeyable
from hlojit.ir.ops.block_arithmetic import block_format, part_types
from hlojit.ir.ops.block_parts import type_complaint
from hlojit.ir.process_grid import MOST_PROCESSES, ProcessGrid
from hlojit.ir.types import TensorType
from hlojit.lowering import kernel, program, storage
from hlojit.lowering.program import Program
from hlojit.lowering.program_check import check
from hlojit.nesting import is_structure
from hlojit.sized_program import SizedProgram

MAGIC: Final = b"hlojit\r\n"
FORMAT_VERSION: Final = 1
"""Of the file format; a reader takes files of its own version only."""

MAXIMUM_RECORD_BYTES: Final = 1 << 30
"""Of a program record; compressed data can announce any size."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a compiled program comes from, and what it takes to run it; all of it plain data."""

    source: str = ""
    """Hash of the text or module that was compiled."""
    options: dict[str, Any] = field(default_factory=dict)
    plugins: dict[str, str] = field(default_factory=dict)
    """Plugins in scope, if something of them could take part, with the identity of what could."""
    formats: dict[str, str] = field(default_factory=dict)
    """Element types of the signature that plugins bring, with the hashes of their records."""
    triple: str = ""
    cpu: str = ""
    features: tuple[str, ...] = ()
    """Processor features that the code may use."""
    runtime: str = ""
    """Identity of the records that code and runtime share."""
    versions: dict[str, str] = field(default_factory=dict)


@final
class ProgramRecord:
    """A ``Program``, or its bytes as long as nobody has asked for it: running takes the code alone."""

    __slots__ = ("_data", "_program")

    def __init__(self, program: Program | None = None, data: memoryview | None = None):
        self._program = program
        self._data = data

    def program(self, constants: Sequence[np.ndarray[Any, Any]]) -> Program:
        """The program, with its constants; raises ``FormatError`` if the bytes are of no program."""
        if self._program is None:
            assert self._data is not None
            found = Reader(_unpacked(self._data), _program_records()).value()
            if not isinstance(found, Program):
                raise FormatError("the program record is no program")
            found.constants[:] = constants
            self._program = found
        return self._program

    def encode(self) -> bytes:
        """The bytes, compressed: kernels' texts are long.  Constants are elsewhere in the file."""
        if self._data is not None:
            return bytes(self._data)
        assert self._program is not None
        writer = Writer(_program_records())
        writer.put(replace(self._program, constants=[]))
        return zlib.compress(writer.finish(), 1)


def _unpacked(data: memoryview) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(data, MAXIMUM_RECORD_BYTES)
    except zlib.error as error:
        raise FormatError(f"the program record is damaged: {error}") from None
    if not unpacking.eof:
        raise FormatError("the program record is cut off, or longer than any program's")
    return found


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A program for one kind of processor; see the module's docstring.

    ``objects`` are named relocatable objects, ``entry`` is the symbol of the host program among them.  ``unkeyable`` says
    why the program cannot leave this process, if it cannot.
    """

    name: str
    backend: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    objects: tuple[tuple[str, Any], ...]
    entry: str
    arena_bytes: Any
    constants: tuple[np.ndarray[Any, Any], ...]
    record: ProgramRecord
    donated: tuple[tuple[int, int], ...]
    """Pairs of input and output (or -1): the program writes the input's memory, and the output is made in it."""
    estimated_nanoseconds: float
    provenance: Provenance
    processes: tuple[int, int] = (1, 1)
    """How many replicas, and partitions of each, run it together."""
    imports: tuple[tuple[str, str], ...] = ()
    """Symbols that the objects leave open, with the names by which whoever loads them finds the functions."""
    bounded: tuple[tuple[TensorType, tuple[tuple[int, int], ...]], ...] = ()
    """Of a program with results whose size the run tells, the results that come out: the type with its bounds, and pairs of a
    dimension and the number of the output that is its size."""
    limits: tuple[tuple[str, str], ...] = ()
    """Of such a program what has to hold of sizes: the instruction that needs it, and what is wrong with a size ``{0}`` where
    it does not hold.  Where there are some, the last output but one is 0, or the number of the first of them that was broken,
    and the last one is the size."""
    nesting: tuple[str, ...] = ()
    """Of a program with tuples, how arguments and results are nested (``hlojit.nesting``)."""
    blocks: tuple[tuple[TensorType, ...], ...] = ()
    """Of a program with arguments or results in blocks the types of all arguments, and of all results, as callers see them."""
    sized: SizedProgram | None = None
    """Of a program that is compiled once for all sizes: its inputs and outputs leave them open, and it has no record."""
    unkeyable: tuple[str, ...] = ()
    provisional: str = ""
    """Why compiling again may come to something better, if it may: the program can be saved, and is not kept in the cache."""

    @property
    def grid(self) -> ProcessGrid:
        """The processes that run it together."""
        return ProcessGrid(*self.processes)

    @property
    def program(self) -> Program:
        """The record of what happens at run time, read when it is first asked for."""
        return self.record.program(self.constants)


_WRITTEN: Final = [each.name for each in fields(CompiledProgram) if each.name not in ("unkeyable", "provisional")]


_OUTER: Final[Records] = {"Provenance": Provenance, **sized_program.RECORDS}


@cache
def _program_records() -> Records:
    return records_of(program, storage, sizes, kernel, location)


def encode(compiled: CompiledProgram, key: str = "") -> bytes:
    """The bytes of a file, or of a cache's entry for ``key``.

    Raises ``NotKeyable`` for what cannot be written down, by name.
    """
    if compiled.unkeyable:
        raise NotKeyable(compiled.unkeyable[0])
    outer = Writer(_OUTER)
    outer.put({name: _written(compiled, name) for name in _WRITTEN})
    return sealed(MAGIC, FORMAT_VERSION, outer.finish(), key)


def _written(compiled: CompiledProgram, name: str) -> Any:
    if name == "record":
        return compiled.record.encode()
    if name == "objects":
        return tuple((symbol, bytes(image)) for symbol, image in compiled.objects)
    return getattr(compiled, name)


def decode(data: bytes | memoryview, key: str = "") -> CompiledProgram:
    """The program in the bytes of a file; raises ``FormatError`` (a ``HlojitError``) for anything else."""
    body = unsealed(MAGIC, FORMAT_VERSION, memoryview(data), key)
    values = Reader(body, _OUTER).value()
    if not isinstance(values, dict) or list(values) != _WRITTEN:
        raise FormatError("the file does not hold a compiled program")
    _check(values)
    return CompiledProgram(**{**values, "record": ProgramRecord(data=values["record"])})


def _check(values: dict[str, Any]) -> None:
    def all_of(kind: type, value: Any) -> bool:
        return isinstance(value, tuple) and all(isinstance(each, kind) for each in value)

    sound = (
        all(isinstance(values[name], str) for name in ("name", "backend", "entry"))
        and all(all_of(TensorType, values[name]) for name in ("inputs", "outputs"))
        and all_of(tuple, values["objects"])
        and all([type(part) for part in each] == [str, memoryview] for each in values["objects"])
        and all_of(np.ndarray, values["constants"])
        and type(values["arena_bytes"]) is int
        and values["arena_bytes"] >= 0
        and isinstance(values["record"], memoryview)
        and all_of(tuple, values["donated"])
        and all([type(part) for part in pair] == [int, int] for pair in values["donated"])
        and all(0 <= given < len(values["inputs"]) for given, _ in values["donated"])
        and all(-1 <= made < len(values["outputs"]) for _, made in values["donated"])
        and type(values["estimated_nanoseconds"]) is float
        and isinstance(values["provenance"], Provenance)
        and isinstance(values["processes"], tuple)
        and [type(count) for count in values["processes"]] == [int, int]
        and all(1 <= count <= MOST_PROCESSES for count in values["processes"])
        and all_of(tuple, values["imports"])
        and all([type(part) for part in pair] == [str, str] for pair in values["imports"])
        and _is_bounded(values["bounded"], values["outputs"])
        and _are_blocks(values["blocks"], values["inputs"], values["outputs"], bool(values["bounded"]))
        and _is_nesting(values["nesting"], *_counts(values))
        and (values["sized"] is None or sized_program.is_sound(values["sized"], values["inputs"], values["outputs"]))
        and _are_limits(values["limits"], values["outputs"][len(values["bounded"]) :])
    )
    if not sound:
        raise FormatError("the file does not hold a compiled program")


def _are_limits(limits: Any, outputs: Sequence[TensorType]) -> bool:
    """Whether these are places with dimensions and bounds, and scalars among the other outputs say which was broken."""
    if not isinstance(limits, tuple):
        return False
    if not all(isinstance(each, tuple) and [type(part) for part in each] == [str, str] for each in limits):
        return False
    return not limits or (len(outputs) >= 2 and not any(each.rank for each in outputs[-2:]))


def _are_blocks(blocks: Any, inputs: Sequence[TensorType], outputs: Sequence[TensorType], is_bounded: bool) -> bool:
    """Whether these are the types of arguments and of results whose parts are the inputs and outputs, or nothing."""
    if blocks == ():
        return True
    if not isinstance(blocks, tuple) or [type(each) for each in blocks] != [tuple, tuple]:
        return False
    if not all(isinstance(each, TensorType) and type_complaint(each) is None for types in blocks for each in types):
        return False
    flat = [
        [part for each in types for part in (part_types(each) if block_format(each) is not None else [each])]
        for types in blocks
    ]
    return flat[0] == list(inputs) and (is_bounded or flat[1] == list(outputs))


def _counts(values: dict[str, Any]) -> tuple[int, int]:
    """How many arguments and results callers see, tuples aside."""
    if values["blocks"]:
        return len(values["blocks"][0]), len(values["blocks"][1])
    return len(values["inputs"]), len(values["bounded"] or values["outputs"])


def _is_nesting(nesting: Any, *leaves: int) -> bool:
    """Whether this is the structure of so many arguments and results, or nothing."""
    if not isinstance(nesting, tuple) or not all(isinstance(each, str) for each in nesting):
        return False
    return not nesting or (len(nesting) == len(leaves) and all(map(is_structure, nesting, leaves)))


def _is_bounded(bounded: Any, outputs: Sequence[TensorType]) -> bool:
    """Whether these are types of results, each with dimensions of its own that scalars among the outputs are the sizes of."""

    def fits(each: Any, output: TensorType) -> bool:
        if not isinstance(each, tuple) or [type(part) for part in each] != [TensorType, tuple]:
            return False
        pairs = [pair for pair in each[1] if isinstance(pair, tuple) and [type(part) for part in pair] == [int, int]]
        return (
            len(pairs) == len(each[1])
            and each[0].rank == output.rank
            and all(0 <= dimension < output.rank for dimension, _ in pairs)
            and all(0 <= number < len(outputs) and not outputs[number].rank for _, number in pairs)
        )

    return isinstance(bounded, tuple) and len(bounded) <= len(outputs) and all(map(fits, bounded, outputs))


def _check_record(compiled: CompiledProgram) -> None:
    """Refuse a record that contradicts itself or what stands beside it."""
    record = compiled.program
    try:
        check(record)
        sound = (
            _lies_as(record.inputs, compiled.inputs)
            and _lies_as(record.outputs, compiled.outputs)
            and record.donated == compiled.donated
            and record.arena_bytes == compiled.arena_bytes
        )
    except Exception as error:  # of what type it is, nobody knows: neither is what the record holds
        raise FormatError(f"the program record is damaged: {error}") from error
    if not sound:
        raise FormatError("the program record is of another program than the signature and sizes beside it")


def _lies_as(buffers: Sequence[program.Buffer], types: Sequence[TensorType]) -> bool:
    """Whether buffers hold tensors of these types."""
    plain = [storage.Storage.of(each) for each in types]
    return [(each.storage.element, each.storage.itemsize, each.storage.shape) for each in buffers] == [
        (each.element, each.itemsize, each.shape) for each in plain
    ]


def write(compiled: CompiledProgram, path: str | os.PathLike[str]) -> None:
    """Write a file, all of it or nothing."""
    try:
        data = encode(compiled)
    except NotKeyable as error:
        raise HlojitError(f"{compiled.name} cannot be saved: {error}") from error
    try:
        write_file(Path(path), data)
    except OSError as error:
        # Of the path that was given: the name under which the file is written first says nothing to the caller.
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None


def _whole(file: Any) -> memoryview:
    size = os.fstat(file.fileno()).st_size
    try:
        return read_aligned(file, size)
    except MemoryError as error:
        raise FormatError(f"no memory for its {size:,} bytes") from error


def read(path: str | os.PathLike[str]) -> CompiledProgram:
    """Read a file; raises ``HlojitError`` with the path if it is not what ``write`` writes."""
    try:
        with open_regular(path) as file:
            data = _whole(file)
        compiled = decode(data)
        if compiled.sized is None:
            _check_record(compiled)  # all of a file that somebody gives us is checked at once
        return compiled
    except FormatError as error:
        raise FormatError(f"{os.fspath(path)}: {error}") from error
