"""Posits for hlojit; ``hlojit_posit.plugin`` is the plugin, ``hlojit_posit.codec`` what its codes mean."""
