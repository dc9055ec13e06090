"""Python runs this when it starts, if its folder is on the path: see ``onceonly.spark.processes.start``.

Then the next module of this name, which would have run without it.
"""  # noqa: INP001  it is found by its folder, and is no package

import importlib
import os
import sys

from onceonly.spark.processes.start import without_zips

_folder = os.path.dirname(__file__)  # noqa: PTH120  no more imports than it must have
sys.path[:] = [entry for entry in without_zips(sys.path) if entry != _folder]
_this = sys.modules.pop("sitecustomize")
try:
    importlib.import_module("sitecustomize")
except ModuleNotFoundError as error:
    sys.modules["sitecustomize"] = _this
    if error.name != "sitecustomize":
        raise
