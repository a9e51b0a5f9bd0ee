"""Machine code (cubin) of PTX by nvJitLink, and what it uses: no GPU and no driver.

made = cubin_of(ptx, SM_90)
made.usages["kernel"].registers, made.usages["kernel"].spills
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, final

from hlojit.cuda.assemblers.libraries import PTX_TO_MACHINE_CODE, identity
from hlojit.ir.errors import HlojitError
from hlojit.lowering.target import Target

_FUNCTION: Final = re.compile(r"Function properties for '(?P<symbol>[\w$.]+)':\n(?P<text>[^\n]*)")
_SPILLS: Final = re.compile(
    r"Function properties for (?P<symbol>[\w$.]+)\n[^\n]*? (?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)


@final
@dataclass(frozen=True, slots=True)
class Usage:
    """What a kernel takes of a multiprocessor."""

    registers: int
    """Of one thread."""
    stack: int
    """Bytes of local memory of one thread, in which what is indexed and what is spilt lies."""
    spills: int
    """Bytes that are stored and loaded because there were too few registers."""
    shared: int
    """Bytes of a block's shared memory that the code declares; what a launch asks for comes on top."""


@final
@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of a module, and what its kernels use."""

    image: bytes
    usages: Mapping[str, Usage]


@cache
def unavailable() -> str:
    """Why no machine code can be made here, or an empty string: a driver makes it of PTX when a kernel is loaded."""
    if find_spec("cuda") is None or find_spec("cuda.pathfinder") is None:
        return "cuda-bindings is not installed (pip install 'hlojit[cuda]')"
    if not identity(PTX_TO_MACHINE_CODE):
        return "libnvJitLink is not found (pip install nvidia-nvjitlink)"
    return ""


def cuda_version() -> int:
    """The major version of CUDA that machine code is made for; 0 where none is made."""
    if unavailable():
        return 0
    from cuda.bindings import nvjitlink

    return int(nvjitlink.version()[0])


def cubin_of(ptx: str, target: Target) -> Cubin:
    """Assemble a module; raises ``HlojitError`` with what the assembler says."""
    from cuda.bindings import nvjitlink

    if reason := unavailable():
        raise HlojitError(f"no machine code for {target.cpu}: {reason}")
    options = [f"-arch={target.cpu}", "-verbose", "-O3"]
    handle = nvjitlink.create(len(options), options)
    try:
        text = ptx.encode()
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text, len(text), "kernel")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            said = _text(handle, nvjitlink.get_error_log_size, nvjitlink.get_error_log)
            raise HlojitError(f"internal error: NVIDIA's assembler refuses generated code: {said or error}") from error
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
        return Cubin(bytes(image), _usages(_text(handle, nvjitlink.get_info_log_size, nvjitlink.get_info_log)))
    finally:
        nvjitlink.destroy(handle)


def _text(handle: int, size: Callable[[int], int], read: Callable[[int, Any], None]) -> str:
    log = bytearray(size(handle))
    if log:
        read(handle, log)
    return log.rstrip(b"\0").decode(errors="replace").strip()


def _usages(log: str) -> dict[str, Usage]:
    spills = {found["symbol"]: found for found in _SPILLS.finditer(log)}
    usages = {}
    for found in _FUNCTION.finditer(log):
        symbol, text = found["symbol"], found["text"]

        def number(pattern: str, text: str = text) -> int:
            match = re.search(pattern, text)
            return int(match[1]) if match else 0

        spilt = spills[symbol]
        usages[symbol] = Usage(
            number(r"used (\d+) registers"),
            max(number(r"(\d+) stack"), int(spilt["stack"])),
            int(spilt["stores"]) + int(spilt["loads"]),
            number(r"(\d+) bytes smem"),
        )
    return usages
