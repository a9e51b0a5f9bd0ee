"""NVIDIA's GPUs as a platform: whether there are any, and what is compiled for them."""

from __future__ import annotations

from importlib.util import find_spec

from hlojit.gpu.platforms import Platform
from hlojit.ir.errors import HlojitError


def reason_against() -> str:
    """Why no NVIDIA GPU can be used here, or an empty string."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return "cuda-bindings is not installed (pip install 'hlojit[cuda]')"
    return "programs are not run on GPUs yet"


def nvidia_platform() -> Platform:
    """The GPUs of this machine."""
    raise HlojitError(reason_against())
