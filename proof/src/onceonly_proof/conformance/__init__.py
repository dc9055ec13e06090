"""Contract and crash tests for anybody's sink: derive a class from ``SinkConformance``, and pytest has them all.

::

    class TestMySink(SinkConformance):
        sink = MySink

        def options(self, folder): ...  # make an empty target, give the sink's options
        def visible(self, options): ...  # the rows that anybody can see, read without the sink

``docs/how-to/prove-a-sink.md`` says what each test proves. Needs pytest and pyarrow, which come with onceonly-proof.
"""

import importlib

from onceonly.errors import SetupError

try:
    importlib.import_module("pyarrow")
    importlib.import_module("pytest")
except ImportError as error:
    raise SetupError(
        f"onceonly_proof.conformance needs a package that is missing here: {error}",
        next_step="pip install onceonly-proof",
    ) from error

from onceonly_proof.conformance.suite import SinkConformance

__all__ = ["SinkConformance"]
