"""A viewer of a kernel without subshells, beside a cell that runs.

    busy_page.py URL FOLDER KERNEL

URL opens a notebook whose cell 1 shows a viewer of one image, and whose cell 2 runs until KERNEL,
the folder in which the kernel runs, has a file "go-on". Prints a JSON object: the milliseconds from
a key that shows what is not here yet until the viewer said that it waits (said), for how
many of them the page itself was held up, at the longest (lag), the prompt of the cell then
(prompt), what the viewer said of the element in the middle after the cell had ended (status), and
the pixel there (pixel). FOLDER gets a screenshot.

Runs in the environment of requirements.txt, which knows nothing of gpufetch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from notebook_page import CELL, token_of
from page import Page
from viewer_page import SIZE, ViewerPage

# Show an element a pixel, and wait until the viewer says that it does not come.
SAY = """
const [selector, done] = arguments;
const root = document.querySelector(selector);
const alert = root.querySelector(".gf-alert");
const began = performance.now();
let lag = 0;
let last = began;
const clock = setInterval(() => {
  lag = Math.max(lag, performance.now() - last - 20);
  last = performance.now();
}, 20);
const watch = new MutationObserver(() => {
  if (!alert.textContent.includes("Waiting for the kernel")) return;
  watch.disconnect();
  clearInterval(clock);
  done({ said: performance.now() - began, lag });
});
watch.observe(alert, { childList: true, characterData: true, subtree: true });
const key = { key: "1", bubbles: true };
root.querySelector(".gf-view").dispatchEvent(new KeyboardEvent("keydown", key));
"""


def use(page: ViewerPage, kernel: Path) -> dict[str, Any]:
    page.page.until("the notebook", lambda: page.page.has(CELL.format(2)))
    page.wait_for_kernel()
    page.run(0)
    page.show(1)
    root = f"{CELL.format(1)} .gpufetch-viewer"
    complete = f'{root}[data-missing="0"]'
    page.page.until("the whole", lambda: page.page.has(complete))
    page.begin(2)
    seen: dict[str, Any] = page.page.driver.execute_async_script(SAY, root)
    page.shoot("busy-without-subshells")
    seen["prompt"] = page.prompt(2)
    (kernel / "go-on").touch()
    page.page.until("the elements", lambda: page.page.has(complete) and not page.text(1, "alert"))
    seen["status"] = page.point(1, 0.5, 0.5)
    page.leave()
    return seen | {"pixel": page.pixel(1, 0, 0.5, 0.5)}


def main(url: str, folder: str, kernel: str) -> None:
    page = Page(url)
    page.driver.set_window_size(*SIZE)
    page.driver.set_script_timeout(60)
    try:
        print(json.dumps(use(ViewerPage(page, Path(folder), token_of(url)), Path(kernel))))
    except Exception:
        page.driver.save_screenshot(str(Path(folder) / "busy-failed.png"))
        raise
    finally:
        page.driver.quit()


if __name__ == "__main__":
    main(*sys.argv[1:])
