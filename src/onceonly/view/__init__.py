"""One renderer: the model of a checkpoint, and its event log where there is one, as pictures, tables and pages.

Pure: no clock, no disk, no network, no Spark. ``values`` are what is drawn and ``story`` makes them out of a
``CheckpointModel``; ``verdict`` says in one sentence how it stands. ``timeline``, ``epoch`` and ``multiples`` draw SVG
with ``shapes``, placed in time by ``axis``; ``tables`` are fragments of HTML, ``style`` is their one style sheet and
``page`` a whole file. All text goes through ``markup``, which escapes whatever is not markup already. ``exports`` are
files for other people's viewers, ``trace`` takes the event log in.
"""
