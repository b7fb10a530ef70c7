"""Settings of an experiment: the paper's numbers, all of which can be set."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from divscore.errors import InputError

__all__ = ["SHARES", "SIZES", "Settings"]

SHARES = tuple(f / 10 for f in range(11))
SIZES = tuple(range(10, 101, 10))


@dataclass(frozen=True)
class Settings:
    """How often, with how many labels, and on which collections an experiment runs.

    `labels` is |U|, the examples labelled once; `size` is |T|, of the control set; `k` the items that SS-ST labels
    a round; `collection` is |S|, or as near to it as the groups allow; `shares` are the values of f and `sizes`
    those of |T| in the size sweep.
    """

    repetitions: int = 100
    seed: int = 0
    labels: int = 200
    size: int = 50
    alpha: float = 1.0
    k: int = 5
    collection: int = 500
    shares: tuple[float, ...] = SHARES
    sizes: tuple[int, ...] = SIZES

    def check(self, available: int) -> None:
        """Refuse what cannot be run on so many labelled items."""
        wrong = [
            (self.repetitions < 1, f"{self.repetitions} repetitions: at least one is needed"),
            (self.size < 4, f"a control set of {self.size}: at least 4, two of each group, are needed"),
            (
                self.labels < self.size,
                f"a control set of {self.size} from {self.labels} labels; give --labels {self.size} or more",
            ),
            (
                2 * self.labels > available,
                f"{self.labels} labels of {available} items leave too few for collections; "
                f"give --labels {available // 2} or less",
            ),
            (self.collection < 20, f"collections of {self.collection}: at least 20 items are needed"),
            (self.k < 1, f"k = {self.k}: SS-ST labels at least one item a round"),
            (self.alpha < 0, f"α = {self.alpha}: the weight of redundancy is a number ≥ 0"),
        ]
        for bad, message in wrong:
            if bad:
                raise InputError(message)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    def command(self, experiment: str, usual: Settings) -> str:
        """The command that runs an experiment with these settings."""
        names = {"collection": "collection-size"} | {
            n: n for n in ("repetitions", "seed", "labels", "size", "alpha", "k")
        }
        changed = [
            f"--{option} {getattr(self, name):g}"
            for name, option in names.items()
            if getattr(self, name) != getattr(usual, name)
        ]
        return " ".join([f"divscore reproduce {experiment} --data PATH", *sorted(changed)])
