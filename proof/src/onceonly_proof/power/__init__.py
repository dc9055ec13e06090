"""A file system that forgets at a power cut what was not synced, and the campaign that runs queries on it.

::

    with PowerDisk("/mnt/disk") as disk:            # Linux, /dev/fuse, and the right to mount
        work("/mnt/disk")                           # any processes, in any language
        disk.save("/tmp/recording")                 # every operation, in order
        disk.restore("/tmp/recording", at=17, keep=Keep("nothing"))
        work_again("/mnt/disk")                     # on what a cut after 17 operations has left

:mod:`~onceonly_proof.power.tree` says what a cut may forget, :mod:`~onceonly_proof.power.disk` serves it to the
kernel. What it cannot see stands in ``docs/explanation/power-loss.md``.
"""

from onceonly_proof.power.disk import PowerDisk, may_mount
from onceonly_proof.power.tree import STYLES, Keep, Op, Tree, cut

__all__ = ["STYLES", "Keep", "Op", "PowerDisk", "Tree", "cut", "may_mount"]
