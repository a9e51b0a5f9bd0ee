"""Custom calls: what a plugin binds to the target names of ``stablehlo.custom_call``, in all forms."""
