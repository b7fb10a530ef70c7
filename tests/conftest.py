from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clifiles import audited, files, people, pictures, posts, whole  # noqa: F401  fixtures of tests/cli
from hypothesis import HealthCheck, settings

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray

pytest_plugins = ["pictures", "reported"]

# The same examples in every run: a failure is a change, not luck, and not a machine that is busy.
settings.register_profile(
    "full",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("full"), max_examples=20)

PPB = Path(__file__).parents[2] / "shared" / "data" / "ppb2017.parquet"
NAMES = ("a", "b", "c", "d")
# Features of Chromium that no test needs. Every new profile loads the two pages of its address bar, which takes
# half a second, more than most tests; the others are those that Playwright turns off, whose list this one replaces.
UNUSED = (
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,"
    "AimEnabled,AvoidCorsURLLoaderRestartOnRedirect,AvoidUnnecessaryBeforeUnloadCheckSync,"
    "DestroyProfileOnBrowserClose,HttpsFirstBalancedModeAutoEnable,HttpsUpgrades,LensOverlay,MediaRouter,"
    "NetworkTimeServiceQuerying,OptimizationHints,PaintHolding,PreconnectToSearch,ThirdPartyStoragePartitioning"
)

Draw = Callable[..., tuple[FloatArray, np.ndarray]]
MakeControl = Callable[..., ControlSet]


def pytest_configure(config: pytest.Config) -> None:
    """A run without slow tests draws fewer examples of each property."""
    settings.load_profile("quick" if "not slow" in config.option.markexpr else "full")
    # Tests start the command line hundreds of times, and without compiled modules each start compiles them again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A shell ignores Ctrl-C for what it runs in the background, and so would every command that a test starts.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def draw_groups(
    seed: int, counts: Sequence[int], d: int = 8, gap: float = 2.0
) -> tuple[FloatArray, np.ndarray]:
    """Gaussian groups "a", "b", … in mixed order, group g centred on `gap` along axis g."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    return rng.normal(size=(len(labels), d)) + gap * np.eye(d)[labels], np.array(NAMES)[labels]


@pytest.fixture(scope="session")
def draw() -> Draw:
    """Return the seeded generator of synthetic groups."""
    return draw_groups


@pytest.fixture(scope="session")
def make_control() -> MakeControl:
    """Return a maker of control sets over such groups; `dtype` and ControlSet's own options are passed on."""

    def make(
        seed: int, counts: Sequence[int], *, d: int = 8, gap: float = 2.0, dtype: Any = float, **options: Any
    ) -> ControlSet:
        vectors, names = draw_groups(seed, counts, d, gap)
        return ControlSet(vectors.astype(dtype), names, attribute="letter", **options)

    return make


def labelled_part(counts: tuple[int, int] = (45, 15)) -> tuple[FloatArray, list[str]]:
    """Labelled items of the same source as `collection`."""
    vectors, names = draw_groups(2, counts, gap=2.5)
    return vectors, list(names)


@pytest.fixture(scope="session")
def control() -> ControlSet:
    """Two groups of 40 that hardly overlap."""
    vectors, names = draw_groups(0, [40, 40], gap=2.5)
    return ControlSet(vectors, names, attribute="letter")


@pytest.fixture(scope="session")
def collection() -> FloatArray:
    """300 "a" and 100 "b": d = 0.5."""
    return draw_groups(1, [300, 100], gap=2.5)[0]


@dataclass(frozen=True)
class Portraits:
    """PPB-2017 as the paper's authors extracted it."""

    vectors: np.ndarray
    gender: np.ndarray
    skin_tone: np.ndarray
    country: np.ndarray


@pytest.fixture(scope="session")
def ppb() -> Portraits:
    """Return the authors' features, or skip."""
    if not PPB.exists():
        pytest.skip(f"the authors' PPB-2017 features are not at {PPB}")
    import pyarrow.parquet as parquet

    table = parquet.read_table(PPB, columns=["embedding", "gender", "skin_tone", "country"])
    vectors = table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
    columns = (np.array(table[name].to_pylist()) for name in ("gender", "skin_tone", "country"))
    return Portraits(vectors, *columns)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return where Chromium is; skip without one, but not in CI, where everything has to run."""
    if not (path := shutil.which("chromium")):
        _absent("Chromium is not installed; apt-get install chromium")
    return str(path)


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """Return the one Playwright of this process."""
    try:
        from playwright import sync_api as playwright
    except ImportError:
        _absent("Playwright is not installed; pip install -e '.[dev]'")
    with playwright.sync_playwright() as started:
        yield started


def _absent(reason: str) -> None:
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


@pytest.fixture(scope="session")
def browser(driver: Any, chromium: str) -> Iterator[Any]:
    """Return one Chromium for all tests."""
    # Pages on disk may read their own files, as the search of the documentation does.
    flags = ["--no-sandbox", "--allow-file-access-from-files", f"--disable-features={UNUSED}"]
    opened = driver.chromium.launch(executable_path=chromium, args=flags)
    yield opened
    opened.close()


@pytest.fixture
def quick_browser(driver: Any, chromium: str) -> Iterator[Any]:
    """Return a Chromium that paints as often as it can, not sixty times a second.

    For a test that goes through a thousand items. It is no good for one that waits for a job: Playwright looks at
    every frame, and that would take all the time of a processor.
    """
    flags = [
        "--no-sandbox",
        f"--disable-features={UNUSED}",
        "--disable-frame-rate-limit",
        "--disable-gpu-vsync",
    ]
    opened = driver.chromium.launch(executable_path=chromium, args=flags)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Any]:
    """Start an S3 server on loopback; `buckets.pointed_to` lets a test use it."""
    from buckets import started_server

    with started_server() as server:
        yield server


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a Dask cluster of two nodes on loopback; a test that kills a node must add another."""
    pytest.importorskip("distributed", reason="the extra 'dask' is not installed")
    from loopback import LoopbackCluster

    with LoopbackCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="session")
def processes() -> Iterator[Any]:
    """Return an engine of two worker processes that all tests share."""
    from divscore.jobs.engine import Engine

    with Engine(2, processes=True) as engine:
        yield engine
