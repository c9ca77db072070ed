"""The viewer in JupyterLab's page over a slow line: how tiles travel, and how long a view takes.

    slow_page.py URL FOLDER VIEWS [plain]

URL opens a notebook whose cell 1 shows a viewer of one image. The viewer is panned by VIEWS views,
each of tiles that were not seen yet. With `plain`, the page has no WebAssembly. Prints a JSON
object: how the last tile travelled (tiles), what the viewer said below the image (note), the
milliseconds until each view was complete (views), the pixel in the middle of the last one (pixel),
and the element there (status). Then it is panned back by half a view, by another half when the
kernel was told but has not answered, and by a third one when it has: the element in the middle
after that (back), the rows of a view (rows), and what draws (renderer, webgl). FOLDER gets a
screenshot.

Runs in the environment of requirements.txt, which knows nothing of gpufetch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from notebook_page import CELL
from page import Page
from traffic import HOOK
from viewer_page import RENDERER, SIZE, ViewerPage

# Pan by a view, and wait until all its tiles are here.
PAN = """
const [selector, done] = arguments;
const root = document.querySelector(selector);
const began = performance.now();
for (let i = 0; i < 8; i++) {
  const key = { key: "ArrowDown", bubbles: true };
  root.querySelector(".gf-view").dispatchEvent(new KeyboardEvent("keydown", key));
}
const look = () => {
  if (root.dataset.missing === "0") done(performance.now() - began);
  else setTimeout(look, 2);
};
look();
"""


# Pan back by half a view, over tiles that are here; once more as soon as the page has told its
# kernel, and a third time when the kernel has repeated that.
PAN_BACK = """
const [selector, done] = arguments;
const view = document.querySelector(`${selector} .gf-view`);
const half = () => {
  for (let i = 0; i < 4; i++) {
    view.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowUp", bubbles: true }));
  }
};
traffic.clear();
half();
const look = () => {
  if (!traffic.updates) return setTimeout(look, 2);
  half();
  const wait = () => {
    if (!traffic.repeated) return setTimeout(wait, 2);
    setTimeout(() => {
      half();
      done();
    }, 100);
  };
  wait();
};
look();
"""


def use(page: ViewerPage, count: int) -> dict[str, Any]:
    page.page.until("the notebook", lambda: page.page.has(CELL.format(1)))
    page.wait_for_kernel()
    page.run(0)
    page.show(1)
    root = f"{CELL.format(1)} .gpufetch-viewer"
    complete = f'{root}[data-missing="0"]'
    page.page.until("the whole", lambda: page.page.has(complete))
    page.press(1, "1")  # an element a pixel
    page.page.until("the middle", lambda: page.page.has(complete))

    def is_judged() -> bool:
        """Whether the line is: it takes some tiles of other views."""
        page.page.driver.execute_async_script(PAN, root)
        tiles = page.page.find(root).get_attribute("data-tiles")
        return tiles == "encoded" or "not encoded" in page.text(1, "note")

    page.page.until("the line is judged", is_judged)
    views = [page.page.driver.execute_async_script(PAN, root) for _ in range(count)]
    tiles = page.page.find(root).get_attribute("data-tiles")
    seen = {"tiles": tiles, "note": page.text(1, "note"), "views": views}
    seen |= page.page.driver.execute_script(RENDERER)
    seen |= {"status": page.point(1, 0.5, 0.5)}
    page.leave()
    page.shoot(f"slow-{tiles}")
    height = page.page.find(f"{root} .gf-view").get_property("height")
    seen |= {"pixel": page.pixel(1, 0, 0.5, 0.5), "rows": height}
    page.page.driver.execute_async_script(PAN_BACK, root)
    page.page.until("the view before", lambda: page.page.has(complete))
    return seen | {"back": page.point(1, 0.5, 0.5)}


def main(url: str, folder: str, views: str, *plain: str) -> None:
    page = Page("about:blank")
    page.driver.set_window_size(*SIZE)
    page.driver.set_script_timeout(60)
    source = HOOK + ("delete globalThis.WebAssembly;" if plain else "")
    page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
    page.driver.get(url)
    try:
        print(json.dumps(use(ViewerPage(page, Path(folder), ""), int(views))))
    except Exception:
        page.driver.save_screenshot(str(Path(folder) / "slow-failed.png"))
        raise
    finally:
        page.driver.quit()


if __name__ == "__main__":
    main(*sys.argv[1:])
