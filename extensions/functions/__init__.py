"""Functions of plugins inside our kernels: numba's, over scalars and arrays, and native ones."""
