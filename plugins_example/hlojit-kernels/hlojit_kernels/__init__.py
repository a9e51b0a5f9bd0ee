"""hlojit-kernels: an example vendor's package; ``hlojit_kernels.plugin`` is what hlojit loads."""
