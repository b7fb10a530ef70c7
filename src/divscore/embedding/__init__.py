"""From items to vectors as a job: read, decode and encode side by side, remember, and go on after an interruption."""

from divscore.embedding.encoding import Encoding
from divscore.embedding.job import EmbedResult, embed
from divscore.embedding.open import open_any
from divscore.embedding.pool import open_pool
from divscore.embedding.projection import Projection

__all__ = ["EmbedResult", "Encoding", "Projection", "embed", "open_any", "open_pool"]
