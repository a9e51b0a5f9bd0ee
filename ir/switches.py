"""Switches: the environment variables that hlojit reads, in one table.

    folder = CACHE.text()                 # "" where it is not set
    threads = NUM_THREADS.count(8, most=257)

``docs/environment.md`` shows the table; ``make docs`` writes it anew.  A variable ``HLOJIT_*`` that is not in it is an error
(``check_names``): a switch that is misspelt would be one that silently does nothing.  Plugins call theirs otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, final

from hlojit.ir.errors import HlojitError

PREFIX: Final = "HLOJIT_"
LARGEST: Final = (1 << 63) - 1
"""What an amount of bytes is cut down to: native code counts them in 64 bits."""
_MOST_DIGITS: Final = 30
_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@final
@dataclass(frozen=True, slots=True)
class Switch:
    """One environment variable; the texts are those of the documentation."""

    name: str
    default: str
    meaning: str
    read: str
    """When the variable is looked at."""

    def text(self) -> str:
        """What the variable is set to, without spaces around it; empty where it is not set."""
        return os.environ.get(self.name, "").strip()

    def conditions(self) -> list[tuple[dict[Any, Any], Any, object]] | None:
        """What ``text`` goes by: names in dictionaries, and what they mean; None if that is not known of this Python.

        The last one is the variable's own; ``None`` in the place of its value says that it is not set.
        """
        data, encode = getattr(os.environ, "_data", None), getattr(os.environ, "encodekey", None)
        if type(data) is not dict or encode is None or type(os.environ) is not os._Environ:
            return None
        return [(vars(os), "environ", os.environ), (data, encode(self.name), data.get(encode(self.name)))]

    def choice(self, names: Sequence[str]) -> str:
        """The variable as one of some words, the first where it is not set; raises ``HlojitError`` for anything else."""
        text = self.text() or names[0]
        if text not in names:
            raise HlojitError(f"{self.name}={_shown(text)} is none of {', '.join(names)}")
        return text

    def count(self, default: int, *, least: int = 1, most: int) -> int:
        """The variable as a number from ``least`` to ``most``; raises ``HlojitError`` for anything else."""
        text = self.text()
        if not text:
            return default
        if not _is_number(text) or not least <= int(text) <= most:
            raise HlojitError(f"{self.name}={_shown(text)} is not a number from {least} to {most}")
        return int(text)

    def nbytes(self, default: int) -> int:
        """The variable as a number of bytes, such as ``512m``; raises ``HlojitError`` for anything else."""
        return bytes_of(self.name, text) if (text := self.text()) else default


def bytes_of(name: str, text: str) -> int:
    """A number of bytes, such as ``512m``; raises ``HlojitError`` naming ``name`` for anything else."""
    factor = _UNITS.get(text[-1:].lower(), 1)
    digits = text if factor == 1 else text[:-1]
    if not _is_number(digits):
        raise HlojitError(f"{name}={_shown(text)} is not a number of bytes (a suffix k, m or g is allowed)")
    return min(int(digits) * factor, LARGEST)


def _is_number(text: str) -> bool:
    """Whether the text is some ASCII digits (``str.isdigit`` takes those that ``int`` refuses, such as ²)."""
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def _shown(text: str) -> str:
    return repr(text if len(text) <= 2 * _MOST_DIGITS else f"{text[:_MOST_DIGITS]}...")


BACKEND = Switch(
    "HLOJIT_BACKEND",
    "`cpu`",
    "the back end that `hlojit.compile` takes when the call names none, or several among which it is split, `nova,cpu` "
    "([placement.md](placement.md))",
    "at every compilation",
)
CPU_DEVICES = Switch(
    "HLOJIT_CPU_DEVICES",
    "1",
    "virtual devices `cpu:0`, `cpu:1`, ... of the CPU back end, and of `reference` ([devices.md](devices.md))",
    "when devices are first needed",
)
DISABLE_PLUGINS = Switch(
    "HLOJIT_DISABLE_PLUGINS",
    "none",
    "comma-separated entry points not to load; `all` means all that are not hlojit's own",
    "when plugins are first needed",
)
DISPATCH = Switch(
    "HLOJIT_DISPATCH",
    "`native`",
    "`python`: calls of jitted functions are answered by Python code each time, and never by native code "
    "([decision](decisions/native-dispatch.md))",
    "at the first calls of a kind",
)
NUM_THREADS = Switch(
    "HLOJIT_NUM_THREADS",
    "the processors that affinity mask and container quota allow",
    "threads of a call, 1 to 257; `hlojit.set_threads` changes it later",
    "when the runtime is first needed",
)
MEMORY_LIMIT = Switch(
    "HLOJIT_MEMORY_LIMIT",
    "what machine and container allow",
    "bytes that arrays and temporaries may take; more is an error, not a kill",
    "when the runtime is first needed",
)
MEMORY_CACHE = Switch(
    "HLOJIT_MEMORY_CACHE",
    "a share of the limit",
    "bytes of freed memory that may wait to be used again",
    "when the runtime is first needed",
)
CACHE = Switch(
    "HLOJIT_CACHE",
    "`hlojit` in `XDG_CACHE_HOME` (`~/.cache`)",
    "folder of kernels and programs that were compiled before; `off` for none",
    "at every compilation",
)
CACHE_SIZE = Switch(
    "HLOJIT_CACHE_SIZE",
    "`1g`",
    "bytes that the folder may hold (a suffix k, m or g); what was used longest ago goes",
    "at every compilation",
)
COMPILE_WORKERS = Switch(
    "HLOJIT_COMPILE_WORKERS",
    "one for every core besides the compiling thread's, at most 8",
    "processes that help to compile the kernels of a large program, 0 (none) to 64 ([decision](decisions/compile-workers.md))",
    "at every compilation",
)
MACHINE = Switch(
    "HLOJIT_MACHINE",
    "what the system, or the processor, tells",
    "caches, cores and speeds that plans are derived from, for example `L1=48K/12 L2=2M/16 cores=8 fma=2`; what it leaves "
    "out stays as found; `hlojit machine` prints the whole model, `hlojit machine --measure` one with the bandwidth that one "
    "core has to memory now ([decision](decisions/machine-model.md))",
    "when the CPU back end is first needed",
)
COLLECTIVE_TIMEOUT = Switch(
    "HLOJIT_COLLECTIVE_TIMEOUT",
    "300",
    "seconds that one process of a program for several devices waits for others ([devices.md](devices.md))",
    "at every call of such a program",
)
GPU_COLLECTIVES = Switch(
    "HLOJIT_GPU_COLLECTIVES",
    "`copies`",
    "what moves among GPUs: `copies` from each other's memory, or `nccl`, NVIDIA's library (not run yet; "
    "[devices.md](devices.md))",
    "at every call of a program for several GPUs",
)
CUDA = Switch(
    "HLOJIT_CUDA",
    "the machine's NVIDIA GPUs",
    "`simulator` has the back end `cuda` run on the host's processor, correct and slow; options behind it: `devices=2`, "
    "`memory=512m` (of each device) ([cuda.md](cuda.md))",
    "whenever the back end is used",
)
CUDA_ASSEMBLER = Switch(
    "HLOJIT_CUDA_ASSEMBLER",
    "`numba` where numba-cuda and libNVVM are installed, otherwise `llvm`",
    "what makes PTX for NVIDIA GPUs: `numba` (a `numba.cuda` kernel around our text) or `llvm` (LLVM's own NVPTX target)",
    "at every compilation for a GPU",
)
LIBRARIES = Switch(
    "HLOJIT_LIBRARIES",
    "`auto`",
    "products by a vendor's library on GPUs (cuBLASLt): `auto` has it compute large ones where it is installed, `off` leaves it "
    "out, `require` has it compute all that it can and refuses to compile where it is not; the compile option `libraries` "
    "of a program comes before it ([cuda.md](cuda.md))",
    "at every compilation",
)
GPU_LOOPS = Switch(
    "HLOJIT_GPU_LOOPS",
    "`device`",
    "who decides what loops and branches do next on GPUs: `device`, where the driver has graphs with conditions, or `host`, "
    "which reads conditions back ([cuda.md](cuda.md))",
    "when a program first runs on a device",
)
AUTOTUNE = Switch(
    "HLOJIT_AUTOTUNE",
    "`off`",
    "kernels for GPUs chosen by measuring their alternatives when a program is compiled: `same-bits` among those that give the "
    "same bits as the default, `any` among all, libraries' products included; the compile option `autotune` of a program "
    "comes before it ([cuda.md](cuda.md))",
    "at every compilation",
)
TRACEBACK = Switch(
    "HLOJIT_TRACEBACK",
    "`short`",
    "what a jitted function raises: `short` has the user's own frames, `full` those of hlojit and of libraries, too "
    "([jit.md](jit.md#errors))",
    "when such a function raises",
)

SWITCHES: Final = (
    BACKEND,
    DISPATCH,
    CPU_DEVICES,
    COLLECTIVE_TIMEOUT,
    GPU_COLLECTIVES,
    DISABLE_PLUGINS,
    NUM_THREADS,
    MEMORY_LIMIT,
    MEMORY_CACHE,
    CACHE,
    CACHE_SIZE,
    COMPILE_WORKERS,
    MACHINE,
    CUDA,
    CUDA_ASSEMBLER,
    LIBRARIES,
    GPU_LOOPS,
    AUTOTUNE,
    TRACEBACK,
)


def check_names() -> None:
    """Raise ``HlojitError`` if the environment has a variable ``HLOJIT_*`` that is no switch."""
    known = [switch.name.removeprefix(PREFIX) for switch in SWITCHES]
    for name in sorted(os.environ):
        word = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and word not in known:
            near = get_close_matches(word, known, 1)
            hint = f"did you mean {PREFIX}{near[0]}?" if near else f"known are {', '.join(s.name for s in SWITCHES)}"
            raise HlojitError(f"the environment variable {name} is no switch of hlojit's; {hint}")
