"""The viewer in a page of JupyterLab or Notebook 7, used as a person does.

    viewer_page.py URL MODULE FOLDER KERNEL CONFIG

URL opens the notebook of test_viewer_page.py; MODULE is the viewer's module. Prints a JSON object
of what was seen in each step, by the step's name; `console` is what the browser's console has said
of errors that it does not say of a notebook which was not used yet. FOLDER gets a screenshot of
each step; KERNEL is the folder in which the kernel runs, and CONFIG that of Jupyter's settings.

Runs in the environment of requirements.txt, which knows nothing of gpufetch.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from notebook_page import CELL, Notebook, token_of
from page import Page
from PIL import Image
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.by import By

SIZE = (1300, 2400)
VIEWS = "{} .gf-view"

# RGBA of a panel's pixel at fractions of its width and height.
PIXEL = """
const [selector, number, x, y] = arguments;
const canvas = document.querySelectorAll(selector)[number];
const at = [Math.floor(canvas.width * x), Math.floor(canvas.height * y), 1, 1];
return Array.from(canvas.getContext("2d").getImageData(...at).data);
"""

# The highest pixel that is drawn in a column, as a fraction of the height; 1 without any.
COLUMN = """
const [canvas, x] = arguments;
const wide = 5;
const from = Math.floor(canvas.width * x) - 2;
const { data } = canvas.getContext("2d").getImageData(from, 0, wide, canvas.height);
for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 60) return i / 4 / wide / canvas.height;
return 1;
"""

# How many bytes of pixels differ by more than a level between WebGL2 and the CPU, and how many
# there are, for each scale. A pixel at the edge of two cells may show either.
COMPARE = """
const [source, done] = arguments;
(async () => {
  const module = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  let gl;
  try {
    gl = new module.WebGlRenderer();
  } catch (error) {
    return done({ renderer: String(error) });
  }
  const cpu = new module.Canvas2dRenderer();
  const value = (i) => Math.sin(i * 1.7) * 10 ** ((i % 7) - 3);
  const values = Float32Array.from({ length: 200 * 100 }, (_, i) => value(i));
  values.set([NaN, Infinity, -Infinity, 0, -0, 1e-40], 5000);
  const palette = Uint8Array.from({ length: 1024 }, (_, i) => (i % 4 === 3 ? 255 : (i >> 2)));
  const results = {};
  for (const scale of ["linear", "log", "symlog"]) {
    for (const [offset, unit] of [[0, 1], [1e9, 1], [0, 2 ** 200], [0, 2 ** -133]]) {
      const tile = { cells: [100, 200], values, offset, unit };
      const wide = Math.max(unit, 1); // limits may be far from a tile's numbers
      const limits = [(scale === "log" ? 1e-3 : -50) * wide + offset, 60 * wide + offset];
      const contexts = [gl, cpu].map((renderer) => {
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [333, 222];
        const context = canvas.getContext("2d");
        const placements = [module.placed(tile, [-31.3, 300.8, 7.7, 500.1], [0, 333, 0, 222])];
        renderer.draw(context, placements, { limits, scale, palette });
        return context.getImageData(0, 0, 333, 222).data;
      });
      const steps = contexts[0].map((level, i) => Math.abs(level - contexts[1][i]));
      const different = steps.filter((step) => step > 1).length;
      results[`${scale} ${offset} ${unit}`] = [different, steps.length];
    }
  }
  done({ renderer: gl.gl.getParameter(gl.gl.VERSION), results });
})().catch((error) => done({ renderer: String(error) }));
"""


# Let viewers draw by WebGL where the CPU does it, too, as on a machine without a GPU.
ANY_WEBGL = """
const extension = WebGL2RenderingContext.prototype.getExtension;
WebGL2RenderingContext.prototype.getExtension = function (name) {
  return name === "WEBGL_debug_renderer_info" ? null : extension.call(this, name);
};
"""

# Which renderer the viewers share, whether the page has WebGL2, and what does its work.
RENDERER = """
const shared = globalThis[Symbol.for("gpufetch.viewer.renderer")];
const gl = document.createElement("canvas").getContext("webgl2");
const kind = gl?.getExtension("WEBGL_debug_renderer_info");
const webgl = kind ? gl.getParameter(kind.UNMASKED_RENDERER_WEBGL) : "unknown";
return { renderer: shared.constructor.name, webgl2: Boolean(gl), webgl };
"""

# Pixels and bytes of an image that is loaded; null before.
IMAGE_SIZE = """
const image = document.querySelector(arguments[0]);
if (!image?.naturalWidth) return null;
const nbytes = atob(image.src.split(",")[1]).length;
return { width: image.naturalWidth, height: image.naturalHeight, nbytes };
"""

WIDGETS = "@jupyter-widgets/jupyterlab-manager"


class ViewerPage(Notebook):
    """The notebook, and the viewers in its cells."""

    def pixel(self, cell: int, panel: int, x: float, y: float) -> list[int]:
        views = VIEWS.format(CELL.format(cell))
        colour: list[int] = self.page.driver.execute_script(PIXEL, views, panel, x, y)
        return colour

    def wait_for_frame(self) -> None:
        """Until what keys and messages have changed is drawn."""
        drawn = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
        self.page.driver.execute_async_script(drawn)

    def pixels(self, cell: int, count: int) -> list[list[int]]:
        """Colours of each panel at five places, as they are in the next frame."""
        self.wait_for_frame()
        places = ((0.5, 0.5), (0.3, 0.3), (0.7, 0.3), (0.3, 0.7), (0.7, 0.7))
        return [self.pixel(cell, panel, *place) for panel in range(count) for place in places]

    def pictures(self, cell: int) -> list[str]:
        """The cell's images as addresses of PNGs."""
        script = "return [...document.querySelectorAll(arguments[0])].map((c) => c.toDataURL())"
        found: list[str] = self.page.driver.execute_script(script, VIEWS.format(CELL.format(cell)))
        return found

    def view(self, cell: int, panel: int = 0) -> Any:
        views = VIEWS.format(CELL.format(cell))
        return self.page.driver.find_elements(By.CSS_SELECTOR, views)[panel]

    def text(self, cell: int, part: str) -> str:
        return str(self.page.find(f"{CELL.format(cell)} .gf-{part}").get_attribute("textContent"))

    def says(self, cell: int, part: str, expected: str) -> str:
        """The text of a part of the viewer, once `expected` is in it."""
        return str(
            self.page.until(
                f"{expected!r} in the viewer's {part} of cell {cell}",
                lambda: expected in (text := self.text(cell, part)) and (text or True),
            )
        )

    def elements(self, selector: str) -> list[Any]:
        found: list[Any] = self.page.driver.find_elements(By.CSS_SELECTOR, selector)
        return found

    def is_drawn(self, cell: int, panel: int = 0) -> bool:
        return bool(self.pixel(cell, panel, 0.5, 0.5)[3])

    def show(self, cell: int, panels: Sequence[int] = (0,)) -> None:
        """Run a cell, and wait until these images of it are drawn."""
        self.run(cell)
        for panel in panels:
            self.see(cell, panel)

    def see(self, cell: int, panel: int) -> None:
        """Scroll to an image, which draws nothing out of sight, and wait until it is drawn."""
        self.page.until(f"panel {panel}", lambda: self.appears(cell, panel))

    def appears(self, cell: int, panel: int) -> bool:
        """Whether an image is drawn, once it is there and scrolled to."""
        views = self.elements(VIEWS.format(CELL.format(cell)))
        if len(views) <= panel:
            return False
        self.page.driver.execute_script(
            "arguments[0].scrollIntoView({block: 'center'})", views[panel]
        )
        return self.is_drawn(cell, panel)

    def see_all(self, cell: int) -> None:
        """Wait until the whole is shown, with all of its tiles."""
        complete = f'{CELL.format(cell)} .gpufetch-viewer[data-missing="0"]'
        self.wait_for_frame()
        self.says(cell, "note", "mean of")
        self.page.until("the whole", lambda: self.page.has(complete))

    def point(self, cell: int, x: float, y: float, panel: int = 0) -> str:
        """Move the pointer to a fraction of a panel, and return what is said of the value."""
        self.hover(cell, x, y, panel)
        return self.says(cell, "status", "=")

    def hover(self, cell: int, x: float, y: float, panel: int = 0) -> None:
        view = self.view(cell, panel)
        size = view.size
        offset = int((x - 0.5) * size["width"]), int((y - 0.5) * size["height"])
        self.page.actions().move_to_element_with_offset(view, *offset).perform()

    def press(self, cell: int, *keys: str) -> None:
        view = self.view(cell)
        self.page.driver.execute_script("arguments[0].focus()", view)
        view.send_keys(*keys)

    def shoot(self, name: str) -> None:
        self.page.driver.save_screenshot(str(self.folder / f"viewer-{name}.png"))

    def leave(self) -> None:
        """Take the pointer off the viewers, which mark its place."""
        corner = ActionBuilder(self.page.driver)
        corner.pointer_action.move_to_location(2, 2)
        corner.perform()
        self.page.until("no pointer", lambda: not any(self.statuses()))

    def statuses(self) -> list[str]:
        found = self.page.driver.find_elements(By.CSS_SELECTOR, ".gf-status")
        return [str(status.get_attribute("textContent")) for status in found]


def look(page: ViewerPage, cell: int) -> dict[str, Any]:
    """The whole, and the value under the pointer."""
    page.show(cell, (0, 1))
    page.says(cell, "note", "mean of")
    statuses = [page.point(cell, 0.4, 0.6), page.point(cell, 0.4, 0.6, 1)]
    page.leave()
    page.shoot("whole")
    return {"pixels": page.pixels(cell, 2), "statuses": statuses}


def zoom(page: ViewerPage, cell: int) -> dict[str, Any]:
    """By the wheel about the middle, down to the elements; the second panel follows."""
    view = page.view(cell)
    page.page.driver.execute_script("arguments[0].focus()", view)
    for _ in range(16):
        wheel = page.page.actions()
        wheel.scroll_from_origin(ScrollOrigin.from_element(view), 0, -120).perform()
    page.page.until("the elements", lambda: not page.text(cell, "note"))
    statuses = [page.point(cell, 0.5, 0.5), page.point(cell, 0.5, 0.5, 1)]
    page.leave()
    page.shoot("zoomed")
    page.page.driver.execute_script("document.activeElement.blur()")
    return {"pixels": page.pixels(cell, 2), "statuses": statuses}


def use_tools(page: ViewerPage, cell: int, state: int) -> dict[str, Any]:
    """The histogram, the profile, other colours and scales, by their keys.

    Until the kernel has heard of each change, as the cell `state` says.
    """
    page.press(cell, "h", "p", "c")
    page.page.until("the profile in the kernel", lambda: "(False" in page.run(state))
    chart = f"{CELL.format(cell)} .gf-panels ~ canvas[role=img]"
    page.page.until("charts", lambda: all(c.is_displayed() for c in page.elements(chart)))
    page.page.until("a histogram", lambda: page.elements(chart)[0].get_attribute("aria-label"))
    page.shoot("tools")
    label = page.elements(chart)[0].get_attribute("aria-label")
    page.press(cell, "h", "p", *"cccc")
    page.page.until("no profile in the kernel", lambda: "(True" in page.run(state))
    return {"histogram": label}


def load_again(page: ViewerPage, cell: int) -> dict[str, Any]:
    """The page is loaded again, in the dark theme, and shows what it did."""
    page.save()
    page.choose_theme("JupyterLab Dark")
    page.page.driver.refresh()
    page.see(cell, 1)
    page.page.until("the elements", lambda: not page.text(cell, "note"))
    page.choose_theme("JupyterLab Light")
    seen = {"pixels": page.pixels(cell, 2)}
    page.press(cell, "h", "p")
    page.shoot("reloaded")
    page.press(cell, "h", "p")
    return seen


def show_contrasts(page: ViewerPage, cell: int) -> dict[str, Any]:
    """In forced colours, and where more contrast is wanted, the image has the same pixels."""
    pixels = {}
    for name, value in (("forced-colors", "active"), ("prefers-contrast", "more")):
        features = {"features": [{"name": name, "value": value}]}
        page.page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
        pixels[name] = page.pixels(cell, 2)
        page.press(cell, "h", "p")
        page.shoot(name)
        page.press(cell, "h", "p")
    page.page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    return pixels


def go_on_while_busy(page: ViewerPage, kernel: Path, viewer: int, cell: int) -> dict[str, Any]:
    """Tiles come while a cell runs, and the viewer says so where the kernel cannot answer."""
    page.begin(cell)
    page.press(viewer, "0", "+")  # where a level is shown that is not here yet
    page.says(viewer, "note", "mean of 4 × 4")
    is_running = page.prompt(cell) == "[*]:"
    (kernel / "go-on").touch()
    page.page.until(f"cell {cell} ends", lambda: page.prompt(cell).strip("[]:").isdigit())
    page.begin(cell + 1)
    page.hover(viewer, 0.6, 0.6)
    page.says(viewer, "alert", "Waiting for the kernel")
    page.shoot("busy")
    (kernel / "waits").open("wb").close()
    page.page.until("the answer", lambda: not page.text(viewer, "alert"))
    page.leave()
    return {"was_running": is_running}


def follow(page: ViewerPage, cell: int) -> dict[str, Any]:
    """A server's tensor, which changes with its steps."""
    page.show(cell)
    before = page.pixel(cell, 0, 0.5, 0.5)
    page.press(cell, " ")
    page.says(cell, "note", "step 1")
    page.run(cell + 1)
    page.says(cell, "note", "step 2")
    page.page.until("the change", lambda: page.pixel(cell, 0, 0.5, 0.5) != before)
    after = page.pixel(cell, 0, 0.5, 0.5)
    page.shoot("followed")
    page.press(cell, " ")
    return {"before": before, "after": after}


def show_kinds(page: ViewerPage, cell: int) -> dict[str, Any]:
    """A volume with a slider, a line with one spike, and a picture: one viewer below the other."""
    page.show(cell, (0, 2))
    page.see(cell, 0)
    page.press(cell, "]")
    page.page.until("another plane", lambda: page.pixel(cell, 0, 0.5, 0.5)[0] != 0)
    volume = page.pixel(cell, 0, 0.5, 0.5)
    page.leave()
    page.shoot("kinds")
    line = page.view(cell, 1)
    spike = page.page.until(
        "a spike", lambda: 1 - page.page.driver.execute_script(COLUMN, line, 0.75) or None
    )
    return {"volume": volume, "spike": spike, "picture": page.pixel(cell, 2, 0.5, 0.5)}


def show_many(page: ViewerPage, cell: int) -> dict[str, Any]:
    """Twenty viewers, of which each draws."""
    page.run(cell)
    colours = []
    for number in range(20):
        page.see(cell, number)
        colours.append(page.pixel(cell, number, 0.5, 0.5))
    page.shoot("many")
    return {"colours": colours}


def show_plain(page: ViewerPage, cell: int, config: Path) -> dict[str, Any]:
    """The notebook in a browser without WebGL2, and then in a page without widgets."""
    page.see(cell, 0)
    page.press(cell, "0")
    page.see_all(cell)
    page.save()
    with_webgl = page.pictures(cell)
    other = Page(page.page.url, "--disable-3d-apis")
    other.driver.set_window_size(*SIZE)
    other.driver.set_script_timeout(60)
    plain = ViewerPage(other, page.folder, page.token)
    try:
        plain.see(cell, 1)
        plain.see_all(cell)
        seen = {"different": different(with_webgl, plain.pictures(cell))}
        seen |= other.driver.execute_script(RENDERER)
        plain.shoot("plain")
        seen |= {"messages": other.messages()} | use_plain(plain, cell)
        return seen | without_widgets(plain, cell, config)
    except Exception:
        plain.shoot("failed-plain")
        raise
    finally:
        other.driver.quit()


def different(some: list[str], others: list[str]) -> list[list[int]]:
    """How many bytes of pictures differ by more than a level, and how many there are."""
    counts = []
    for pair in zip(some, others, strict=True):
        one, other = (
            np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))), np.int16)
            for url in pair
        )
        counts.append([int(np.count_nonzero(np.abs(one - other) > 1)), one.size])
    return counts


def use_plain(page: ViewerPage, cell: int) -> dict[str, Any]:
    """Zooming, and the exact value, where the CPU draws."""
    page.press(cell, "1")
    page.page.until("the elements", lambda: not page.text(cell, "note"))
    page.press(cell, "0")
    page.see_all(cell)
    seen = {"status": page.point(cell, 0.4, 0.6), "pixels": page.pixels(cell, 2)}
    page.leave()
    return seen


def without_widgets(page: ViewerPage, cell: int, config: Path) -> dict[str, Any]:
    """Pages that have no widgets show the picture."""
    settings = config / "labconfig" / "page_config.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"disabledExtensions": {WIDGETS: True}}))
    try:
        page.page.driver.refresh()
        image = f"{CELL.format(cell)} .jp-OutputArea img"
        size = page.page.until(
            "the picture", lambda: page.page.driver.execute_script(IMAGE_SIZE, image)
        )
        page.shoot("without-widgets")
        return {"picture": size}
    finally:
        settings.unlink()


def restart(page: ViewerPage, cell: int) -> dict[str, Any]:
    page.page.click('button[data-command="notebook:restart-kernel"], [title*="Restart the kernel"]')
    page.page.click(".jp-Dialog-button.jp-mod-accept")
    says = page.says(cell, "alert", "restarted")
    page.shoot("restarted")
    return {"alert": says}


def use(page: ViewerPage, module: str, kernel: Path, config: Path, is_lab: bool) -> dict[str, Any]:
    page.page.until("the notebook", lambda: page.page.has(CELL.format(9)))
    page.wait_for_kernel()
    page.run(0)
    seen: dict[str, Any] = {"whole": look(page, 1), "zoomed": zoom(page, 1)}
    seen["state"] = page.run(2)
    seen["contrasts"] = show_contrasts(page, 1)
    seen["tools"] = use_tools(page, 1, 2)
    seen["reloaded"] = load_again(page, 1)
    seen["busy"] = go_on_while_busy(page, kernel, 1, 3)
    seen["followed"] = follow(page, 5)
    seen["kinds"] = show_kinds(page, 7)
    seen["many"] = show_many(page, 8)
    seen["renderer"] = page.page.driver.execute_script(RENDERER)["renderer"]
    seen["renderers"] = page.page.driver.execute_async_script(COMPARE, module)
    if (
        is_lab
    ):  # in Notebook 7 a scroll bar may take some of one page's width and not of the other's
        seen["plain"] = show_plain(page, 1, config)
    seen["console"] = page.messages()
    seen["restarted"] = restart(page, 1)
    return seen


def main(url: str, module: str, folder: str, kernel: str, config: str) -> None:
    page = Page("about:blank")
    page.url = url
    page.driver.set_window_size(*SIZE)
    page.driver.set_script_timeout(60)
    command = "Page.addScriptToEvaluateOnNewDocument"
    page.driver.execute_cdp_cmd(command, {"source": ANY_WEBGL})
    page.driver.get(url)
    try:
        viewer = ViewerPage(page, Path(folder), token_of(url))
        text = Path(module).read_text()
        print(json.dumps(use(viewer, text, Path(kernel), Path(config), "/lab/" in url)))
    except Exception:
        page.driver.save_screenshot(str(Path(folder) / "viewer-failed.png"))
        raise
    finally:
        page.driver.quit()


if __name__ == "__main__":
    main(*sys.argv[1:])
