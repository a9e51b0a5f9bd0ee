"""hlojit-mx: an example vendor's package; ``hlojit_mx.plugin`` is what hlojit loads, ``hlojit_mx.layer`` what uses it."""
