"""SciPy's functions on traced arrays: the ufuncs of ``scipy.special``, and what is called in place of functions in Python."""
