"""The page in a browser, as somebody sees it and uses it."""

import base64
import io
import re
import time

import numpy as np
from PIL import Image
from playwright.sync_api import FilePayload, Locator, Page, expect

from tests.serving.conftest import PATIENCE, frames, png

SIZE = (128, 160)
PATIENT = 1000 * PATIENCE


class Screen:
    """The page as somebody sees it and uses it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.status = page.locator("#status")
        self.sentence = page.locator("#status-text")
        self.points = page.locator(".point")
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENT)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self.complaints.append(message.text))

    def give(self, *files: FilePayload) -> None:
        """Pick files."""
        self.page.locator("#files").set_input_files(list(files))

    def give_pair(self, size: tuple[int, int] = SIZE) -> None:
        """Pick two images, and wait for all that there is to see of them."""
        self.give(*(file_of(image, f"{i}.png") for i, image in enumerate(frames(size))))
        self.wait_for_results()

    def wait_for_results(self) -> None:
        expect(self.status).to_have_attribute("data-state", "idle", timeout=PATIENT)
        expect(self.page.locator("#save")).to_be_enabled(timeout=PATIENT)

    def canvas(self, view: str) -> Locator:
        return self.page.locator(f"#view-{view} canvas")

    def picture(self, view: str) -> np.ndarray:
        """What a view shows, after everything that was asked for is drawn."""
        drawn = (
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        self.page.evaluate(drawn)
        url = self.canvas(view).evaluate("(canvas) => canvas.toDataURL('image/png')")
        encoded = base64.b64decode(url.partition(",")[2])
        return np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB")).astype(int)

    def wait_for_change(self, view: str, before: np.ndarray) -> None:
        """Wait until a view shows something else."""
        deadline = time.monotonic() + PATIENCE
        while np.array_equal(self.picture(view), before):
            assert time.monotonic() < deadline, f"{view} shows the same as before"
            self.page.wait_for_timeout(50)

    def click(self, view: str, x: float, y: float, *, more: bool = False) -> None:
        """Click at a place of a view, in fractions of it."""
        box = self.canvas(view).bounding_box()
        assert box is not None
        position = {"x": x * box["width"], "y": y * box["height"]}
        self.canvas(view).click(position=position, modifiers=["Shift"] if more else [])  # type: ignore[arg-type]

    def click_for_attention(self, x: float, y: float, *, more: bool = False) -> None:
        with self.page.expect_response(re.compile("/attention")) as answer:
            self.click("attention", x, y, more=more)
        assert answer.value.ok
        answer.value.finished()

    def value(self, name: str) -> str:
        return self.page.locator(f"[data-value={name}]").inner_text()


def file_of(image: np.ndarray, name: str) -> FilePayload:
    return FilePayload(name=name, mimeType="image/png", buffer=png(image))
