"""Python's own control flow in traced functions: what rewritten source asks, answered by regions of the program.

``TracedRuntime`` runs both branches of an ``if`` on a traced condition, and the body of a loop once; ``rewriting`` says how a
function comes to ask.
"""

from hlojit.tracing.flow.runtime import TracedRuntime, Unroll

__all__ = ["TracedRuntime", "Unroll"]
