"""NumPy's ufuncs and functions on traced arrays: one rule for each, in tables that ``hlojit.tracing.dispatch`` reads."""
