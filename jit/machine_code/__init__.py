"""From text of LLVM IR to code in memory: objects (``object_code``), kept and loaded (``loading``), here or in workers.

Emitters (``hlojit.llvm``) do not need it, and it knows none of them: the runtime's own texts go the same way.
"""
