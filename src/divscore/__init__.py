"""How unevenly are groups represented in an unlabelled collection, and how sure are we?"""

from divscore.control import ControlSet
from divscore.selection import select_adaptive, select_random
from divscore.sketch import Sketch

__version__ = "0.1.0"

__all__ = ["ControlSet", "Sketch", "select_adaptive", "select_random"]
