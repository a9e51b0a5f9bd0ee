"""NVIDIA's libraries that make code, and what tells one version of them from another.

identity("nvJitLink")           # "libnvJitLink.so.13 97134344 1763800000000000000", or "" where there is none
software("numba")               # all that images depend on besides hlojit
"""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec

PTX_TO_MACHINE_CODE = "nvJitLink"
LLVM_TO_PTX = "nvvm"


@cache
def identity(name: str) -> str:
    """The file that a library was loaded from, its size and its time: not every file's name tells the version, nor does every
    library come as a package of Python's.  Empty where it is not installed.
    """
    if find_spec("cuda") is None or find_spec("cuda.pathfinder") is None:
        return ""
    from cuda import pathfinder

    try:
        found = pathfinder.load_nvidia_dynamic_lib(name).abs_path
    except pathfinder.DynamicLibNotFoundError:
        return ""
    if found is None:
        return f"lib{name}, loaded by somebody else"
    file = os.path.realpath(found)
    status = os.stat(file)
    return f"{os.path.basename(file)} {status.st_size} {status.st_mtime_ns}"


def numba_version() -> str:
    """The version of numba.cuda; empty without it."""
    return version("numba-cuda") if find_spec("numba_cuda") is not None else ""


def software(assembler: str) -> str:
    """What images depend on besides hlojit: who makes PTX, who makes machine code of it, and numba.cuda's kernels of plugins.

    Where nvJitLink is missing, images are PTX.
    """
    made = [identity(PTX_TO_MACHINE_CODE) or "ptx"]
    if numba := numba_version():
        made += [f"numba-cuda {numba}", identity(LLVM_TO_PTX)]
    return "; ".join((assembler, *made))
