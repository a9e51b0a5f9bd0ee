"""``hlojit new-plugin NAME``: a package for a vendor to begin with, which is complete and passes its tests as it is written."""

from hlojit.new_plugin.writer import write_plugin

__all__ = ["write_plugin"]
