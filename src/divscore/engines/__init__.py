"""Where the passes run: this process, threads, processes or a Dask cluster, behind one `Executor`.

Partial results are reduced in a fixed order, so the answer does not depend on who computed what.
"""

from divscore.engines.blocks import Coded, tabulate_blocks
from divscore.engines.cluster import ClusterEngine
from divscore.engines.engine import Engine, KilledWorkersError
from divscore.engines.processes import Processes

__all__ = ["ClusterEngine", "Coded", "Engine", "KilledWorkersError", "Processes", "tabulate_blocks"]
