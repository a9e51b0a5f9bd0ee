"""One program on several devices: which instruction runs where, the pieces as programs of their own, and who runs them.

candidates (who takes what, at which cost) -> assignment (a back end for each instruction, by minimum cuts) ->
instances (which of a back end's devices) -> segments (programs, in an order) -> executable.
"""
