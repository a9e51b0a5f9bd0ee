"""Transformations of functions: derivatives and batches, as of JAX, on the graph that the function traces to."""

from hlojit.transforms.batches import vmap
from hlojit.transforms.custom import checkpoint, custom_jvp, custom_vjp
from hlojit.transforms.derivatives import grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp

__all__ = [
    "checkpoint",
    "custom_jvp",
    "custom_vjp",
    "grad",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "value_and_grad",
    "vjp",
    "vmap",
]
