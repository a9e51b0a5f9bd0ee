"""Entry point of the CPU back end: registered like any vendor's."""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.extensions import Backend, CustomCall, hookimpl
from hlojit.extensions.kernels.kernel import Kernel

hlojit_api = (1, 1)


@hookimpl
def hlojit_backends() -> Sequence[Backend]:
    """The CPU."""
    from hlojit.cpu.backend import CpuBackend

    return [CpuBackend()]


@hookimpl
def hlojit_custom_calls() -> Sequence[CustomCall]:
    """What ops on channels become, JAX's calls of LAPACK and beside it, and what programs print: here and on the reference."""
    from hlojit.cpu.host_transfers import host_transfer
    from hlojit.cpu.lapack_calls import lapack_calls
    from hlojit.cpu.tridiagonal_calls import tridiagonal_call
    from hlojit.extensions.calls.host_texts import text_calls

    return [host_transfer(), lapack_calls(), tridiagonal_call(), *text_calls()]


@hookimpl
def hlojit_kernels() -> Sequence[Kernel]:
    """The CPU's own kernels."""
    from hlojit.cpu.kernels import own_kernels

    return own_kernels()
