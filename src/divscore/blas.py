"""Linear algebra in one thread.

Our matrices have a few hundred rows: more threads make them slower, up to twelve times on a busy machine, and change
the last bits of a result. BLAS is limited where divscore computes, not for the user's own code around it.
"""

from __future__ import annotations

import sys
import threading
from contextlib import ContextDecorator
from typing import Any


class _OneThread(ContextDecorator):
    """Holds BLAS to one thread, as a context or a decorator; it may be entered again, and by several threads.

    The limit belongs to the whole process: the first who enters sets it, and the last who leaves takes it away.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._controller: Any = None
        self._known: frozenset[str] = frozenset()
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            # numpy and scipy bring a BLAS each, loaded with these modules; finding them takes three milliseconds.
            loaded = frozenset(sys.modules.keys() & {"numpy.linalg", "scipy.linalg", "scipy.special"})
            if loaded != self._known:
                self._release()
                from threadpoolctl import ThreadpoolController

                self._controller, self._known = ThreadpoolController(), loaded
            if self._limit is None:
                _any_thread()
                self._limit = self._controller.limit(limits=1, user_api="blas")

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._release()

    def _release(self) -> None:
        if self._limit is not None:
            _any_thread()
            self._limit.restore_original_limits()
            self._limit = None
            _any_thread()


def _any_thread() -> None:
    """Let this thread change the limit: threadpoolctl 3.7 ignores all but the first one that did, without a word."""
    from threadpoolctl import OpenBLASController

    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


one_thread = _OneThread()
