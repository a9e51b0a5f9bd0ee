"""The host that placements are reckoned beside: the same on every machine that runs the tests."""

import os

os.environ.setdefault("HLOJIT_MACHINE", "cores=2 ghz=2.5 fma=2")
