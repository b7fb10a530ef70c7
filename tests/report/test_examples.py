"""The page of `divscore control show --html` in a real browser."""

import numpy as np
import pytest
from PIL import Image
from test_browser import CONTRAST, SCRIPT, Opened, options

from divscore import ControlSet, select_adaptive
from divscore.report.examples import write_page


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Representatives as pictures (one is missing) and as texts, with hostile names."""
    root = tmp_path_factory.mktemp("representatives")
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 8)) + np.repeat([1.0, -1.0], 20)[:, None]
    groups = ["y" * 300] * 20 + [SCRIPT] * 20
    files = [str(root / f"{at}.jpg") for at in range(40)]
    for file in files[1:]:
        Image.fromarray(rng.integers(0, 255, (90, 60, 3), dtype=np.uint8)).save(file)
    texts = [f"{SCRIPT} {'long ' * at}{'x' * 200}" for at in range(40)]
    for name, origins in (("pictures", files), ("texts", texts)):
        ids = [f"{SCRIPT}/{at}" for at in range(40)]
        pool = ControlSet(vectors, groups, attribute=SCRIPT, ids=ids, origins=origins)
        write_page(root / f"{name}.html", pool if name == "pictures" else select_adaptive(pool, 20))
    return root


@pytest.mark.browser
@pytest.mark.parametrize("name", ["pictures", "texts"])
@pytest.mark.parametrize("size", ["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_quiet_fits_and_can_be_read(browser, pages, name, size, scheme):
    with Opened(browser, pages / f"{name}.html", **options(size, scheme)) as opened:
        page = opened.page
        assert not opened.trouble
        assert not [address for address in opened.requests if not address.startswith(("file:", "data:"))]
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert min(ratio for ratio, *_ in page.evaluate(CONTRAST)) >= 4.5
        assert page.locator("img").count() == (39 if name == "pictures" else 0)
        squares = page.evaluate(
            "[...document.images].every(each => each.width === each.height && each.naturalWidth)"
        )
        assert squares
        assert page.locator(".absent").count() == (1 if name == "pictures" else 0)
