"""The viewer in JupyterLab's page: how long its pictures, its tiles and its frames take.

    timed_page.py URL FOLDER TILES SECONDS [plain] [webgl]

URL opens a notebook whose cell 1 shows a viewer of one square image, and whose cell 2 runs until
FOLDER has a file "go-on". The viewer has a canvas 512 pixels wide and high. With `plain`, the page
has no WebAssembly, and tiles travel as they are; with `webgl` the viewer draws by WebGL also where
that is done by the CPU. Prints a JSON object: the milliseconds from the keys that run cell 1 until
its first picture was drawn (first) and until all of its tiles were (whole); of each of TILES tiles
of 256 KiB from its request until it was there (tiles), and of as many while cell 2 ran (busy); of
panning over tiles that are there for SECONDS: milliseconds between frames (frames), of script in
each frame (script), and how many messages the page sent its kernel and tiles came meanwhile (sent,
came); bytes that the page received and sent for each use of it (moved); the canvas's pixels
(canvas), what draws (renderer), and what WebGL is done by (webgl); what the browser's console has
said of errors (console). FOLDER gets a screenshot.

Runs in the environment of requirements.txt, which knows nothing of gpufetch.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

from notebook_page import CELL, token_of
from page import Page
from traffic import HOOK, Traffic
from viewer_page import ANY_WEBGL, RENDERER, ViewerPage

SIZE = (1300, 1400)
SIDE = 512  # pixels of the canvas, on a screen with RATIO of them for each of CSS
RATIO = 2
QUIET_MS = 1000
# By half a view each: two tiles that were not seen before. Down and up in columns beside each
# other.
PATH = ["ArrowDown"] * 12 + ["ArrowRight"] * 2 + ["ArrowUp"] * 12 + ["ArrowRight"] * 2

# Every tile that arrives, when something was drawn first, and the script's time in each frame; and
# how wide viewers are, within their borders.
WATCH = """
document.addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent = ".gpufetch-viewer { width: WIDTHpx }";
  document.head.append(style);
});
globalThis.tileTimes = [];
document.addEventListener("gpufetch:tile", (event) => {
  const { ms, nbytes } = event.detail;
  tileTimes.push([ms, nbytes]);
  globalThis.firstTile ??= requestAnimationFrame(() => {
    setTimeout(() => (globalThis.firstDrawn = performance.now()));
  });
}, true);
const request = globalThis.requestAnimationFrame.bind(globalThis);
globalThis.frameScript = 0;
globalThis.requestAnimationFrame = (act) => request((now) => {
  const began = performance.now();
  act(now);
  frameScript += performance.now() - began;
});
"""

# Pan to and fro by the pointer, a few pixels a frame, for so many milliseconds. A frame's script is
# what handles the pointer and what draws; the next move comes when that frame is over.
PAN = """
const [selector, duration, done] = arguments;
const view = document.querySelector(selector);
const box = view.getBoundingClientRect();
const send = (name, x) => view.dispatchEvent(new PointerEvent(name, {
  clientX: box.left + box.width / 2 + x, clientY: box.top + box.height / 2, bubbles: true,
  pointerId: 1, button: 0,
}));
view.setPointerCapture = () => {};
const frames = [];
const script = [];
send("pointerdown", 0);
tileTimes.length = 0;
traffic.clear();
const began = performance.now();
let last = began;
const step = () => {
  const now = performance.now();
  frames.push(now - last);
  last = now;
  if (now - began > duration) {
    const { sent } = traffic;
    send("pointerup", 0);
    return done({ frames: frames.slice(1), script, sent, came: tileTimes.length });
  }
  frameScript = 0;
  send("pointermove", 40 * Math.sin((now - began) / 300));
  const handled = performance.now() - now;
  // The viewer has asked for the next frame, to draw in it, before this does.
  request(() => setTimeout(() => {
    script.push(handled + frameScript);
    step();
  }));
};
request(step);
"""

SIZES = "const { width, height } = document.querySelector(arguments[0]); return [width, height]"

KEY = """
const [selector, key] = arguments;
traffic.began_now();
const event = new KeyboardEvent("keydown", { key, bubbles: true });
document.querySelector(selector).dispatchEvent(event);
"""


class TimedPage(ViewerPage):
    """The notebook, whose viewer is in cell 1."""

    root = f"{CELL.format(1)} .gpufetch-viewer"

    def __init__(self, page: Page, folder: Path, token: str) -> None:
        super().__init__(page, folder, token)
        self.traffic = Traffic(page)
        self.path = itertools.cycle(PATH)
        self.nbytes = 0  # of the last tile, as it travelled

    def settle(self) -> None:
        """Wait until the view stays and all its tiles are there."""
        complete = f'{self.root}[data-missing="0"]'
        self.page.until("the tiles", lambda: self.page.has(complete))

    def press_in_page(self, key: str) -> None:
        self.page.driver.execute_script(KEY, f"{self.root} .gf-view", key)

    def moved(self, *keys: str) -> list[int]:
        """Bytes that the page receives and sends for keys, until a while after all is there."""
        self.traffic.clear()
        for key in keys:
            self.press_in_page(key)
        self.settle()
        time.sleep(QUIET_MS / 1e3)
        seen = self.traffic.seen()
        return [seen["received"], seen["out"]]

    def tiles(self, count: int) -> list[float]:
        """Pan until so many tiles, all of them whole, have come; the milliseconds of each."""
        self.page.driver.execute_script("tileTimes.length = 0")
        found: list[float] = []
        while len(found) < count:
            before = len(found)
            key = next(self.path)
            for _ in range(4):
                self.press_in_page(key)
            self.settle()
            found = self.page.driver.execute_script("return tileTimes")
            if len(found) == before and key != "ArrowRight":
                raise RuntimeError(f"no more tiles than {before} came by panning")
        self.nbytes = found[-1][1]
        return [ms for ms, _ in found[:count]]

    def first(self) -> dict[str, Any]:
        """Run cell 1: the milliseconds until there is a picture, and what moved."""
        self.traffic.clear()
        self.show(1)
        self.settle()
        seen = self.traffic.when_quiet(QUIET_MS)
        drawn = self.page.driver.execute_script("return firstDrawn - traffic.began")
        return {"first": drawn, "whole": seen["last"], "bytes": [seen["received"], seen["out"]]}


def use(page: TimedPage, count: int, seconds: float) -> dict[str, Any]:
    page.page.until("the notebook", lambda: page.page.has(CELL.format(2)))
    page.wait_for_kernel()
    page.run(0)
    view = f"{page.root} .gf-view"
    seen = page.first()
    moved = {"first picture": seen.pop("bytes"), "zoom to the elements": page.moved("1")}
    moved["pan by half a view"] = page.moved(*["ArrowDown"] * 4)
    moved["pan back"] = page.moved(*["ArrowUp"] * 4)
    for _ in range(4):
        page.press_in_page("ArrowDown")
    seen["tiles"] = page.tiles(count)
    seen |= page.page.driver.execute_async_script(PAN, view, seconds * 1e3)
    seen |= page.page.driver.execute_script(RENDERER)
    seen["canvas"] = page.page.driver.execute_script(SIZES, view)
    page.shoot("timed")
    tiles = page.page.find(page.root).get_attribute("data-tiles")
    seen |= {"travelled": tiles, "nbytes": page.nbytes}
    page.begin(2)
    seen |= {"busy": page.tiles(count), "moved": moved}
    (page.folder / "go-on").touch()
    return seen | {"console": page.messages()}


def main(url: str, folder: str, count: str, seconds: str, *options: str) -> None:
    page = Page("about:blank", f"--force-device-scale-factor={RATIO}")
    page.driver.set_window_size(*SIZE)
    page.driver.set_script_timeout(120)
    command = "Page.addScriptToEvaluateOnNewDocument"
    source = HOOK + WATCH.replace("WIDTH", str(SIDE // RATIO + 2))
    source += "delete globalThis.WebAssembly;" if "plain" in options else ""
    source += ANY_WEBGL if "webgl" in options else ""
    page.driver.execute_cdp_cmd(command, {"source": source})
    page.driver.get(url)
    try:
        timed = TimedPage(page, Path(folder), token_of(url))
        print(json.dumps(use(timed, int(count), float(seconds))))
    except Exception:
        page.driver.save_screenshot(str(Path(folder) / "timed-failed.png"))
        raise
    finally:
        page.driver.quit()


if __name__ == "__main__":
    main(*sys.argv[1:])
