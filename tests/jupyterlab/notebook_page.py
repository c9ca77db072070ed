"""A notebook in a page of JupyterLab or Notebook 7, used as a person does.

    notebook_page.py URL COUNT FOLDER

URL opens a notebook. Its first COUNT cells are run one after the other, the last of which makes a
figure of ipympl's. The cell behind them gets text to complete. Then the figure is zoomed, and the
last cell run until its output has "zoomed". Prints a JSON object: the text of each cell's output
(outputs), the names that Tab gave (completed), the output of the last cell (zoomed), the colour in
the middle of the zoomed figure (colour), and what the browser's console has said of errors
(console). FOLDER gets a screenshot of each cell, and of the notebook when it was loaded again in
the dark theme.

Runs in the environment of requirements.txt, which knows nothing of gpufetch.
"""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from page import Page
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

SIZE = (1300, 5200)  # all cells at once: JupyterLab detaches those that are not in view
CELL = '.jp-Notebook .jp-Cell[data-windowed-list-index="{}"]'
CANVAS = ".jupyter-matplotlib-canvas-container canvas"
DIALOG = ".jp-Dialog"
RUN_S = 10  # in which a cell shows that it was asked to run
COMPLETER = ".jp-Completer:not(.lm-mod-hidden) .jp-Completer-match"
THEMES = "lab/api/settings/@jupyterlab/apputils-extension:themes"
KERNELS = """
const done = arguments[0];
fetch("/api/kernels").then((reply) => reply.json()).then(done, () => done([]));
"""
# A pixel that is a few beside the middle, where no line of the axes' grid may be.
COLOUR = """
const canvas = document.querySelector(arguments[0]);
const at = [Math.floor(canvas.width / 2) + 3, Math.floor(canvas.height / 2) + 3, 1, 1];
return Array.from(canvas.getContext("2d").getImageData(...at).data);
"""


class Notebook:
    """The page's notebook."""

    def __init__(self, page: Page, folder: Path, token: str) -> None:
        self.page = page
        self.token = token
        self.folder = folder
        self.own: list[str] = []  # messages of the application itself

    def wait_for_kernel(self) -> None:
        """Wait until the page is connected to its kernel, before which a cell is run in vain."""
        self.page.until("the kernel", lambda: self.page.has('.jp-Toolbar [data-status="idle"]'))

        def is_connected() -> bool:
            kernels = self.page.driver.execute_async_script(KERNELS)
            return any(k["connections"] and k["execution_state"] == "idle" for k in kernels)

        self.page.until("its connection", is_connected)
        self.own += self.page.messages()

    def messages(self) -> list[str]:
        """What the console has said since, but for what it says without us."""
        said = [message for message in self.page.messages() if message not in self.own]
        # Notebook 7 asks for its own fonts, and its server may refuse them.
        return [message for message in said if "/static/notebook/" not in message]

    def cell(self, number: int) -> Any:
        return self.page.find(CELL.format(number))

    def edit(self, number: int) -> None:
        self.page.click(f"{CELL.format(number)} .cm-content")

    def keys(self, *keys: str) -> None:
        self.page.actions().send_keys(*keys).perform()

    def prompt(self, number: int) -> str:
        return str(self.page.find(f"{CELL.format(number)} .jp-InputPrompt").text)

    def begin(self, number: int) -> None:
        """Run a cell, and return when it runs."""
        before = self.prompt(number)

        def has_begun() -> bool:
            """Ask for it, again if the page was not ready for the keys before."""
            if self.page.has(DIALOG):  # which asks for a kernel, before the notebook's has started
                self.keys(Keys.ESCAPE)
            self.edit(number)
            shift = self.page.actions().key_down(Keys.SHIFT)
            shift.send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()
            with contextlib.suppress(TimeoutException):
                self.page.until("", lambda: self.prompt(number) != before, RUN_S)
            return self.prompt(number) != before

        self.page.until(f"cell {number} begins", has_begun)

    def run(self, number: int) -> str:
        """Run a cell, and return the text of its output when it has ended."""
        self.begin(number)
        self.page.until(f"cell {number} ends", lambda: self.prompt(number).strip("[]:").isdigit())
        self.cell(number).screenshot(str(self.folder / f"cell-{number}.png"))
        area = f"{CELL.format(number)} .jp-OutputArea"
        return str(self.page.find(area).text) if self.page.has(area) else ""

    def completed(self, number: int, text: str) -> list[str]:
        """What Tab offers behind `text`."""
        self.edit(number)
        self.keys(text)
        self.keys(Keys.TAB)
        self.page.until("completion", lambda: self.page.has(COMPLETER))
        found = self.page.driver.find_elements(By.CSS_SELECTOR, COMPLETER)
        names = [item.text for item in found]
        self.page.driver.save_screenshot(str(self.folder / "completion.png"))
        self.keys(Keys.ESCAPE)
        return names

    def save(self) -> None:
        control = self.page.actions().key_down(Keys.CONTROL)
        control.send_keys("s").key_up(Keys.CONTROL).perform()
        self.page.until("it is saved", lambda: not self.page.has(".jp-mod-dirty"))

    def choose_theme(self, name: str) -> None:
        """Choose what pages look like when they are loaded next."""
        url = urllib.parse.urlsplit(self.page.driver.current_url)
        request = urllib.request.Request(
            f"{url.scheme}://{url.netloc}/{THEMES}",
            method="PUT",
            data=json.dumps({"raw": json.dumps({"theme": name})}).encode(),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60):
            pass

    def zoom(self, number: int) -> None:
        """Drag a rectangle over the middle of a cell's figure."""
        at = CELL.format(number)
        self.page.until("a figure", lambda: self.page.find(f"{at} {CANVAS}").size["width"] > 100)
        self.page.click(f"{at} .jupyter-widgets button:has(.fa-square-o)")
        canvas = self.page.find(f"{at} {CANVAS}")
        drag = self.page.actions().move_to_element_with_offset(canvas, -40, -30)
        drag.click_and_hold().move_by_offset(30, 20).move_by_offset(30, 20).release().perform()


def use(notebook: Notebook, count: int) -> dict[str, Any]:
    page = notebook.page
    page.until("the notebook", lambda: page.has(CELL.format(count + 1)))
    notebook.wait_for_kernel()
    outputs = [notebook.run(number) for number in range(count)]
    completed = notebook.completed(count, "%gpufetch stat")
    notebook.zoom(count - 1)

    def is_zoomed() -> str:
        text = notebook.run(count + 1)
        return text if "zoomed" in text else ""

    zoomed = page.until("the zoom", is_zoomed)
    colour = page.driver.execute_script(COLOUR, f"{CELL.format(count - 1)} {CANVAS}")
    notebook.cell(count - 1).screenshot(str(notebook.folder / "zoomed.png"))
    load_dark(notebook)
    console = notebook.messages()
    return {
        "outputs": outputs,
        "completed": completed,
        "zoomed": zoomed,
        "colour": colour,
        "console": console,
    }


def load_dark(notebook: Notebook) -> None:
    """Save the notebook, load it again in the dark theme, and take its picture."""
    page = notebook.page
    notebook.save()
    notebook.choose_theme("JupyterLab Dark")
    page.driver.refresh()
    page.until("the dark theme", lambda: page.has('body[data-jp-theme-light="false"]'))
    page.until("its displays", lambda: page.has(".gpufetch-display svg"))
    page.driver.save_screenshot(str(notebook.folder / "dark.png"))
    notebook.choose_theme("JupyterLab Light")


def token_of(url: str) -> str:
    return urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)["token"][0]


def main(url: str, count: str, folder: str) -> None:
    page = Page(url)
    page.driver.set_window_size(*SIZE)
    try:
        print(json.dumps(use(Notebook(page, Path(folder), token_of(url)), int(count))))
    except Exception:
        page.driver.save_screenshot(str(Path(folder) / "failed.png"))
        raise
    finally:
        page.driver.quit()


if __name__ == "__main__":
    main(*sys.argv[1:])
