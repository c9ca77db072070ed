"""JupyterLab's page in Chromium, used as a person does: a console on a kernel, and its shutdown.

    page.py URL LABEL CODE PICTURE

LABEL is the kernel's in the panel of running kernels. Prints a JSON object of what the page showed:
the console's text when it was open (opened) and after CODE was run in it (answered). PICTURE is a
screenshot, of what went wrong if anything did.

Runs in the environment of requirements.txt, which knows nothing of gpufetch.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

TIMEOUT_S = 90
POLL_S = 0.05
MOVE_MS = 30  # of the pointer, where Selenium takes 250
KERNEL = "#jp-running-sessions .jp-mod-kernel .jp-RunningSessions-itemLabel"
CONSOLE = ".jp-CodeConsole"
ACCEPT = ".jp-Dialog-button.jp-mod-accept"
INPUT = f"{CONSOLE}-input .cm-content"


class Page:
    """The page; every step is tried until it works or TIMEOUT_S is over."""

    def __init__(self, url: str, *arguments: str) -> None:
        """`arguments` are Chromium's."""
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for argument in ("--headless=new", "--disable-dev-shm-usage", "--window-size=1400,900"):
            options.add_argument(argument)
        for argument in arguments:
            options.add_argument(argument)
        options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
        options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")
        self.driver = webdriver.Chrome(
            options=options, service=Service(shutil.which("chromedriver"))
        )
        self.url = url
        self.driver.get(url)

    def until(self, what: str, condition: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> Any:
        """Wait until `condition` holds; elements come, go and have no size yet meanwhile.

        Asking takes the page's time, too: it has twice as long for itself.
        """
        end = time.monotonic() + timeout_s
        while True:
            began = time.monotonic()
            with contextlib.suppress(WebDriverException):
                if found := condition():
                    return found
            now = time.monotonic()
            if now > end:
                raise TimeoutException(f"not within {timeout_s} s: {what}")
            time.sleep(max(POLL_S, 2 * (now - began)))

    def messages(self) -> list[str]:
        """What the console has said of errors since this was asked last."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def actions(self) -> ActionChains:
        return ActionChains(self.driver, MOVE_MS)

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def has(self, selector: str) -> bool:
        return bool(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def click(self, selector: str) -> None:
        self.until(f"a click on {selector}", lambda: self.find(selector).click() or True)

    def choose(self, selector: str, command: str) -> None:
        """Choose a command of an element's context menu."""

        def open_menu() -> bool:
            self.actions().context_click(self.find(selector)).perform()
            return self.has(f'.lm-Menu-item[data-command="{command}"]')

        self.until(f"the menu of {selector}", open_menu)
        self.click(f'.lm-Menu-item[data-command="{command}"]')

    def text(self, part: str) -> str:
        """The console's text, when `part` is in it."""
        shown: str = self.until(
            f"{part!r} in the console", lambda: part in (text := self.find(CONSOLE).text) and text
        )
        return shown


def use(page: Page, label: str, code: str, picture: str) -> dict[str, Any]:
    page.click('li[data-id="jp-running-sessions"]')
    page.until(f"{label} is listed", lambda: label in page.find("#jp-running-sessions").text)
    page.choose(KERNEL, "running:kernel-new-console")
    opened = page.text("serves the tensors")
    page.click(INPUT)
    keys = page.actions().send_keys(code)
    keys.key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()
    answered = page.text("Tensors published")
    page.driver.save_screenshot(picture)
    page.choose(KERNEL, "running:kernel-shut-down")
    page.until("its end", lambda: page.has(ACCEPT) or not page.has(KERNEL))
    if page.has(ACCEPT):
        page.click(ACCEPT)
    page.until("no kernel is listed", lambda: not page.has(KERNEL))
    return {"opened": opened, "answered": answered}


def main(url: str, label: str, code: str, picture: str) -> None:
    page = Page(url)
    try:
        print(json.dumps(use(page, label, code, picture)))
    except Exception:
        page.driver.save_screenshot(picture)
        raise
    finally:
        page.driver.quit()


if __name__ == "__main__":
    main(*sys.argv[1:])
