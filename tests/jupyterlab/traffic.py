"""What a notebook's page and its kernel send each other, as seen in the page.

HOOK is a script for every new document: it notes each message of the kernel's WebSockets, and each
use of the page, in `traffic`. Python asks by `Traffic`.
"""

from __future__ import annotations

import time
from typing import Any

from page import TIMEOUT_S, Page

POLL_S = 0.1

# `traffic.answered` counts the kernel's ends of what it was sent, `updates` the changes of widgets
# that the page has told its kernel, and `repeated` those that the kernel has repeated to it.
# `traffic.large` are messages from the kernel that carry a picture or values, not words alone; a
# picture counts as drawn when two frames have come after the last of them.
HOOK = """
const afterTwoFrames = (act) => requestAnimationFrame(
  () => requestAnimationFrame(() => act(performance.now())),
);
const NOTHING = {
  in: 0, out: 0, sent: 0, updates: 0, repeated: 0, large: 0, began: 0, came: 0, first: 0, last: 0,
  used: 0, heard: 0, answered: 0,
};
globalThis.traffic = {
  LARGE: 4096, ...NOTHING,
  clear() { Object.assign(this, NOTHING); },
  began_now() {
    if (this.began) return;
    this.began = performance.now();
    afterTwoFrames((now) => (this.used = now));
  },
  received(nbytes) {
    this.in += nbytes;
    this.came = performance.now();
    if (!this.began) return;
    const isLarge = nbytes >= this.LARGE;
    this.large += isLarge;
    afterTwoFrames((now) => {
      this.heard = now;
      if (!isLarge) return;
      this.last = now;
      this.first ||= now;
    });
  },
};
const decoder = new TextDecoder();
const has = (data, words) => nbytesOf(data) < traffic.LARGE && (
  typeof data === "string" ? data : decoder.decode(data)
).includes(words);
const nbytesOf = (data) => (typeof data === "string" ? data.length : data.byteLength ?? data.size);
globalThis.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    this.isKernels = String(given[0]).includes("/channels");
    if (!this.isKernels) return;
    this.addEventListener("message", ({ data }) => {
      traffic.repeated += has(data, "echo_update");
      traffic.answered += has(data, '"execution_state": "idle"');
      traffic.received(nbytesOf(data));
    });
  }
  send(data) {
    if (this.isKernels) {
      traffic.out += nbytesOf(data);
      traffic.sent += 1;
      traffic.updates += has(data, '"method":"update"');
    }
    super.send(data);
  }
};
// Plotly's picture is made of elements, some of them a while after its last message.
new MutationObserver((changes) => {
  const isPicture = ({ target }) => target.closest?.(".js-plotly-plot");
  if (!traffic.began || !changes.some(isPicture)) return;
  afterTwoFrames((now) => {
    traffic.heard = now;
    if (traffic.large) traffic.last = now;
  });
}).observe(document, { childList: true, subtree: true });
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.shiftKey) traffic.began = performance.now();
}, true);
document.addEventListener("pointermove", (event) => {
  if (event.buttons) traffic.began_now();
}, true);
document.addEventListener("wheel", () => traffic.began_now(), true);
"""

SEEN = """
const { in: received, out, sent, large, answered, began, came, used, heard } = traffic;
const quiet = performance.now() - Math.max(came, began, heard);
const [first, last] = large ? [traffic.first, traffic.last] : [used || heard, used || heard];
const is_drawn = first > 0 && last > 0;
const seen = { received, out, sent, large, answered, quiet, is_drawn };
return { ...seen, first: first - began, last: last - began };
"""


class Traffic:
    """The messages of a page since `clear`."""

    def __init__(self, page: Page) -> None:
        self.driver = page.driver

    def clear(self) -> None:
        self.driver.execute_script("traffic.clear()")

    def seen(self) -> dict[str, Any]:
        found: dict[str, Any] = self.driver.execute_script(SEEN)
        return found

    def when_quiet(self, quiet_ms: float) -> dict[str, Any]:
        """What was seen when a picture has come, and then nothing for so long or thrice as long.

        The latter where no large message came; and for ten times as long where the kernel has not
        ended all that it was sent. `first` and `last` are the milliseconds from the use of the page
        until the first and the last change was drawn; `received` and `out` bytes, `sent` and
        `large` messages.
        """
        end = time.monotonic() + TIMEOUT_S
        while True:
            seen = self.seen()
            times = 10 if seen["answered"] < seen["sent"] else 1 if seen["large"] else 3
            if seen["is_drawn"] and seen["quiet"] > quiet_ms * times:
                return seen
            if time.monotonic() > end:
                raise TimeoutError(f"no picture came from the kernel: {seen}")
            time.sleep(POLL_S)
