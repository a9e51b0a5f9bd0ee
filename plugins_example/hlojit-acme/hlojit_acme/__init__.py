"""hlojit-acme: an example vendor's package; ``hlojit_acme.plugin`` is what hlojit loads."""
