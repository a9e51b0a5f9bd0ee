"""Entry point of the NVIDIA back end; imports nothing of CUDA."""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.extensions import Backend, hookimpl


@hookimpl
def hlojit_backends() -> Sequence[Backend]:
    """The GPU."""
    from hlojit.cuda.backend import CudaBackend

    return [CudaBackend()]
