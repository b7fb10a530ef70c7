"""How unevenly are groups represented in an unlabelled collection, and how sure are we?"""

from divscore.audit import audit
from divscore.control import ControlSet
from divscore.errors import DivscoreError
from divscore.interval import Interval
from divscore.result import Audit
from divscore.selection import select_adaptive, select_random
from divscore.sketch import Sketch

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "ControlSet",
    "DivscoreError",
    "Interval",
    "Sketch",
    "audit",
    "select_adaptive",
    "select_random",
]
