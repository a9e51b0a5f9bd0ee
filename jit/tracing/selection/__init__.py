"""Arrays whose length is known when the function runs: what masks, ``np.nonzero`` and ``np.unique`` give."""
