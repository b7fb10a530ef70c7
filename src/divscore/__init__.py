"""How unevenly are groups represented in an unlabelled collection, and how sure are we?"""

from divscore.audit.audit import audit, draw_sample
from divscore.audit.audits import Audits
from divscore.audit.result import Audit
from divscore.control.controlset import ControlSet
from divscore.control.selection import select_adaptive, select_random
from divscore.errors import DivscoreError
from divscore.estimators.interval import Interval
from divscore.sketch.sketch import Sketch

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "Audits",
    "ControlSet",
    "DivscoreError",
    "Interval",
    "Sketch",
    "audit",
    "draw_sample",
    "select_adaptive",
    "select_random",
]
