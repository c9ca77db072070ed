"""Several ways to look at one array in JupyterLab's page, used alike.

    compared_page.py URL FOLDER ROUNDS

URL opens a notebook; FOLDER/ways.json has a list of the ways to look: `name`, the number `show` of
the cell that shows all of the array, `zoom` of the one that shows an eighth of it along each axis
(or null, where the wheel does it), `cover`, a selector of what has the picture, SIDE pixels of CSS
wide and high, in its middle, and `levels`, the brightness that the picture's middle must have after
each of the three uses, or null for a wave, and `quiet_ms`, after how many milliseconds without a
change it counts as complete. Each way is used ROUNDS times and once before, in turns: its cell
`show` is run, then `zoom`, and then the picture is dragged by half of its width to the left. Prints
a JSON object: for each name and use, a list of what traffic.py's `when_quiet` says; `failed` has
the reason by name. FOLDER gets a screenshot of each way after each use.

Runs in the environment of requirements.txt, which knows nothing of gpufetch.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from notebook_page import CELL, Notebook, token_of
from page import Page
from PIL import Image
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from traffic import HOOK, Traffic

WINDOW = (1300, 2400)
SIDE = 256  # of CSS, on a screen with RATIO pixels for each
RATIO = 2
WHEEL = -525  # by which Bokeh zooms to an eighth
PAUSE_S = 0.05  # before and after a move that drags
DARK = 0.55  # a brightness that a line's pixels are below
TOLERANCE = 0.06  # of the brightness, from 0 to 1
USES = ("show", "zoom", "pan")

STYLE = """
document.addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent = ".gpufetch-viewer { width: SIDEpx }";
  document.head.append(style);
});
"""

SCROLL = "arguments[0].scrollIntoView({ block: 'center' })"


class Compared:
    """One way to look at the array, in its notebook."""

    def __init__(self, notebook: Notebook, way: dict[str, Any]) -> None:
        self.notebook = notebook
        self.page = notebook.page
        self.way = way
        self.traffic = Traffic(notebook.page)
        self.cover = f"{CELL.format(way['show'])} {way['cover']}"

    def use(self) -> dict[str, Any]:
        """The three uses one after the other: what was seen of each."""
        seen = {}
        before = None
        for number, name in enumerate(USES):
            self.traffic.clear()
            act: Callable[[], None] = getattr(self, name)
            act()
            self.page.until("what has the picture", lambda: self.page.has(self.cover))
            seen[name] = self.traffic.when_quiet(self.way["quiet_ms"])
            picture = self.picture(name)
            self.check(name, picture, before, number)
            before = picture
        return seen

    def run(self, cell: int) -> None:
        self.notebook.begin(cell)
        ends = lambda: self.notebook.prompt(cell).strip("[]:").isdigit()  # noqa: E731
        self.page.until(f"cell {cell} ends", ends)

    def show(self) -> None:
        self.run(self.way["show"])

    def zoom(self) -> None:
        if self.way["zoom"] is not None:
            return self.run(self.way["zoom"])
        origin = ScrollOrigin.from_element(self.page.find(self.cover))
        ActionChains(self.page.driver, 0).scroll_from_origin(origin, 0, WHEEL).perform()
        return None

    def pan(self) -> None:
        """Drag the picture by half of its width, in one move."""
        cover = self.page.find(self.cover)
        drag = ActionChains(self.page.driver, 0)
        drag.move_to_element_with_offset(cover, SIDE // 4, 0).click_and_hold()
        drag.pause(PAUSE_S).move_by_offset(-SIDE // 2, 0).pause(PAUSE_S).release().perform()

    def picture(self, use: str) -> Any:
        """The brightness of its pixels."""
        self.page.driver.execute_script(SCROLL, self.page.find(self.cover))
        shown = self.page.until("a picture", lambda: self.page.find(self.cover).screenshot_as_png)
        (self.notebook.folder / f"{self.way['name']}-{use}.png").write_bytes(shown)
        return np.asarray(Image.open(io.BytesIO(shown)).convert("L"), np.float64) / 255

    def check(self, use: str, picture: Any, before: Any, number: int) -> None:
        """A wrong picture, or the one before, is no answer."""
        if before is not None and np.array_equal(picture, before):
            raise ValueError(f"{use} has changed nothing")
        if self.way["levels"] is None:
            return check_line(use, picture)
        row, column = (length // 2 for length in picture.shape)
        found = float(picture[row - 4 : row + 4, column - 4 : column + 4].mean())
        expected = self.way["levels"][number]
        if abs(found - expected) > TOLERANCE:
            raise ValueError(f"{use}: the middle is {found:.2f}, not {expected:.2f} bright")
        return None


def check_line(use: str, picture: Any) -> None:
    """A wave goes up and down from column to column; axes without one do not."""
    dark = picture < DARK
    highest = dark.argmax(axis=0)[dark.any(axis=0)]
    low, high = np.percentile(highest, (10, 90)) if len(highest) else (0, 0)
    if len(highest) < picture.shape[1] / 2 or high - low < picture.shape[0] / 5:
        raise ValueError(f"{use}: there is no wave")


def use(notebook: Notebook, ways: list[dict[str, Any]], rounds: int) -> dict[str, Any]:
    page = notebook.page
    page.until("the notebook", lambda: page.has(CELL.format(ways[0]["show"])))
    notebook.wait_for_kernel()
    notebook.run(0)
    failed: dict[str, str] = {}
    seen: dict[str, dict[str, list[Any]]] = {way["name"]: {use: [] for use in USES} for way in ways}
    for number in range(-1, rounds):
        turn = number % len(ways)
        for way in ways[turn:] + ways[:turn]:
            if way["name"] in failed:
                continue
            try:
                found = Compared(notebook, way).use()
            except (OSError, ValueError, WebDriverException) as error:  # the others go on
                failed[way["name"]] = f"{type(error).__name__}: {error}".splitlines()[0]
                page.driver.save_screenshot(str(notebook.folder / f"{way['name']}-failed.png"))
                continue
            for name in USES:
                seen[way["name"]][name] += [found[name]] if number >= 0 else []
    return {"seen": seen, "failed": failed, "console": notebook.messages()}


def main(url: str, folder: str, rounds: str) -> None:
    page = Page("about:blank", f"--force-device-scale-factor={RATIO}")
    page.driver.set_window_size(*WINDOW)
    page.driver.set_script_timeout(120)
    source = HOOK + STYLE.replace("SIDE", str(SIDE + 2))  # within borders
    page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
    page.driver.get(url)
    try:
        ways = json.loads(Path(folder, "ways.json").read_text())
        print(json.dumps(use(Notebook(page, Path(folder), token_of(url)), ways, int(rounds))))
    except Exception:
        page.driver.save_screenshot(str(Path(folder) / "compared-failed.png"))
        raise
    finally:
        page.driver.quit()


if __name__ == "__main__":
    main(*sys.argv[1:])
