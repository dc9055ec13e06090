"""The textbook's eight pictures, each drawn from a run that was recorded.

``job`` the Spark jobs, to be killed · ``world`` a job's lives, and what is seen around them · ``crashes``, ``counts``
and ``growth`` the runs · ``record`` makes the recordings anew (``python -m onceonly_proof.textbook.record``) ·
``values`` what is recorded, ``recordings`` where · ``fits`` what of the code it stands on · ``pictures`` draws them,
pure · ``page`` puts them into one file.
"""
