"""How plugins come in: hooks, discovery, the checks of what hooks return, and the registry."""
