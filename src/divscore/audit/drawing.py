"""draw_sample(): which items of a collection to label."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from divscore.errors import in_python, warn_in_python

if TYPE_CHECKING:
    from divscore.jobs.drawfile import Draw


def draw_sample(
    collection: Any,
    size: int,
    control: Any = None,
    *,
    by: str | None = None,
    seed: int = 0,
    add_to: str | PathLike[str] | Draw | None = None,
    workers: int = 1,
    **options: Any,
) -> Draw:
    """Draw items of a collection for a person to label.

    Without a control set the sample is random, and nothing is encoded. With one, all items are sorted by their score,
    and two random items are drawn from each of size / 2 parts of equal size, so that the labels cover all scores.
    Either way every item has the same chance. The result depends on the collection and the seed alone.

    Parameters
    ----------
    collection : path, table, or array
        What `audit` takes; not a sketch, which has no items.
    size : int
        Number of items to draw; even with a control set.
    control : ControlSet, path or table, optional
        Labelled examples, or whatever `ControlSet.read` takes.
    by : str, optional
        Draw so many items for every value of this column; "folder" for images.
    add_to : Draw or path, optional
        An earlier draw: other items are drawn in the same way, and returned with the earlier ones and their labels.
    workers : int
        Number of parallel workers; the result does not depend on it.
    **options :
        As for `audit`: `attribute`, `groups`, `rename`, `column`, `form`, `encoder`, `model`, `options`, `pca`,
        `cache`, `strict`, `verbose`. Without a control set, `attribute` and `groups` are noted for those who label.

    >>> import numpy as np
    >>> from divscore import audit
    >>> rows = np.random.default_rng(0).normal(size=(500, 8))
    >>> drawn = draw_sample(rows, 60)
    >>> groups = ["first" if rows[row, 0] > 0 else "second" for row in drawn.rows]
    >>> audit(rows, sample=drawn.labelled(groups)).estimator
    'crossfit'
    """
    from divscore.jobs.sampling import sample_source

    with in_python():
        return sample_source(
            collection,
            size,
            control,
            by=by,
            seed=seed,
            add_to=add_to,
            workers=workers,
            warn=warn_in_python,
            **options,
        )
