"""The target dialect of CPUs: LLVM IR as text with explicit vectors, and from there to loaded code."""
