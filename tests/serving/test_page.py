"""The page in a real browser, with a real server behind it."""

import base64
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gmaflow import read_flow
from gmaflow.inference import read_tracks
from gmaflow.io import VideoWriter
from gmaflow.viz import flow_to_image, position_colors
from tests.serving.conftest import (
    PAN_SIZE,
    SHIFT,
    Running,
    eventually,
    frames,
    pan_frames,
    png,
    texture,
    write_clip,
)

pytest.importorskip("playwright", reason="playwright is not installed: pip install '.[dev]'")

from playwright.sync_api import (
    Browser,
    FilePayload,
    Page,
    Route,
    expect,
    sync_playwright,
)

from tests.serving.screen import PATIENT, SIZE, Screen, file_of

MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def browser(pytestconfig: pytest.Config) -> Iterator[Browser]:
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    path = next(filter(None, found), None)
    if path is None:
        pytest.skip("there is no Chromium to show the page in")
    # The parser of Python 3.11 fails where two threads use it at once, as the server's may, and
    # pytest parses what it shows of a failure: it would end the whole run. This style is not.
    style, pytestconfig.option.tbstyle = pytestconfig.option.tbstyle, "native"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path)
        yield launched
        launched.close()
    pytestconfig.option.tbstyle = style


Open = Callable[[str], Screen]


@pytest.fixture
def show(browser: Browser, site: Running) -> Iterator[Open]:
    """Open the page with something in its address; at the end it must not have complained."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    screens: list[Screen] = []

    def show_page(query: str) -> Screen:
        screen = Screen(context.new_page())
        screens.append(screen)
        screen.page.goto(f"{site.url}?{query}")
        return screen

    yield show_page
    for screen in screens:
        # A browser itself notes every answer that is an error; those are tested where they belong.
        left = [text for text in screen.complaints if "Failed to load resource" not in text]
        assert left == []
    context.close()


@pytest.fixture
def screen(show: Open) -> Screen:
    """The page without the example, on the shipped model."""
    return show("example=0&model=gma&iters=4")


def test_it_opens_on_the_example(show: Open) -> None:
    screen = show("model=small&iters=1")
    screen.wait_for_results()
    expect(screen.sentence).to_contain_text("512 x 384 · 1 refinement ·")
    for view in ("attention", "flow", "warped", "hidden", "confidence", "frame2"):
        assert screen.picture(view).std() > 1, view


def test_the_value_under_the_cursor_is_that_of_the_file(screen: Screen, tmp_path: Path) -> None:
    screen.give_pair()
    screen.page.locator("#save").click()
    with screen.page.expect_download() as download:
        screen.page.get_by_text("Flow, .flo").click()
    download.value.save_as(tmp_path / "flow.flo")
    flow = read_flow(tmp_path / "flow.flo").array
    assert flow.shape == (*SIZE, 2)

    screen.click("confidence", 0.25, 0.75)
    x, y = (int(number) for number in screen.value("pixel").split(","))
    assert (x, y) == pytest.approx((SIZE[1] / 4, 3 * SIZE[0] / 4), abs=1)
    shown = [float(number.replace(MINUS, "-")) for number in screen.value("motion").split(",")]
    assert shown == pytest.approx(flow[y, x], abs=0.051)


def test_a_click_lights_up_the_attention_and_points_are_compared(screen: Screen) -> None:
    screen.give_pair()
    screen.click_for_attention(0.2, 0.3)
    first = screen.picture("attention")
    screen.click_for_attention(0.8, 0.7)
    assert screen.points.count() == 1
    assert (screen.picture("attention") != first).mean() > 0.1

    screen.click_for_attention(0.2, 0.3, more=True)
    assert screen.points.count() == 2
    both = screen.picture("attention")
    screen.points.first.locator(".choose").click()
    assert (screen.picture("attention") != both).any()
    screen.points.first.get_by_label("Remove").click()
    assert screen.points.count() == 1


def test_a_point_is_dragged_and_its_attention_follows(screen: Screen) -> None:
    screen.give_pair((48, 64))
    screen.click_for_attention(0.2, 0.3)
    before = screen.picture("attention")
    box = screen.canvas("attention").bounding_box()
    assert box is not None
    mouse = screen.page.mouse
    mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.3 * box["height"])
    mouse.down()
    with screen.page.expect_response(re.compile("/attention")):
        mouse.move(box["x"] + 0.76 * box["width"], box["y"] + 0.76 * box["height"], steps=4)
    mouse.up()
    expect(screen.points.locator(".where")).to_have_text("48, 36")
    screen.wait_for_change("attention", before)


def test_a_model_without_attention_is_reported(show: Open) -> None:
    screen = show("example=0&model=small&iters=1")
    screen.give_pair()
    expect(screen.page.locator("#hint")).to_contain_text("small has no attention")
    screen.click("attention", 0.5, 0.5)
    assert screen.points.count() == 1


def test_the_slider_goes_through_the_refinements(screen: Screen) -> None:
    screen.give_pair()
    screen.page.keyboard.press("a")  # without arrows, which only the result has
    last = screen.picture("flow")
    with screen.page.expect_response(re.compile(r"flow\?iteration=1")) as answer:
        screen.page.locator("#iteration").fill("1")
    answer.value.finished()
    expect(screen.page.locator("#iteration-text")).to_have_text("1 of 4")
    expect(screen.page.locator("#view-flow h2")).to_have_text("Flow after 1")
    assert (screen.picture("flow") != last).mean() > 0.1
    screen.page.locator("#iteration").fill("4")
    assert np.array_equal(screen.picture("flow"), last)


def test_zooming_keeps_the_pixel_under_the_cursor_in_all_views(screen: Screen) -> None:
    screen.give_pair()
    screen.page.keyboard.press("c")
    wide = {view: screen.picture(view) for view in ("frame2", "flow")}
    screen.canvas("attention").hover(position={"x": 100, "y": 80})
    pixel = screen.value("pixel")
    screen.page.mouse.wheel(0, -500)
    expect(screen.page.locator("#zoom-text")).not_to_have_text("100 %")
    screen.canvas("attention").hover(position={"x": 101, "y": 80})
    screen.canvas("attention").hover(position={"x": 100, "y": 80})
    assert screen.value("pixel") == pixel
    assert all((screen.picture(view) != wide[view]).mean() > 0.1 for view in wide)


def test_everything_comes_as_a_zip(screen: Screen) -> None:
    screen.give_pair((48, 64))
    screen.page.locator("#save").click()
    with screen.page.expect_download() as download:
        screen.page.get_by_text("Everything, .zip").click()
    assert download.value.suggested_filename.endswith(".zip")
    assert download.value.path().read_bytes()[:2] == b"PK"


def test_a_text_file_is_answered_with_the_servers_sentence(screen: Screen, site: Running) -> None:
    screen.give_pair((48, 64))
    text = FilePayload(name="notes.txt", mimeType="text/plain", buffer=b"not a video")
    screen.give(text)
    expect(screen.status).to_have_attribute("data-state", "error", timeout=PATIENT)
    files = {"clip": ("notes.txt", b"not a video", "text/plain")}
    answer = site.client.post("/api/jobs", files=files)
    assert screen.sentence.inner_text() == answer.json()["error"]

    # What was there before is still there, and alive.
    screen.click_for_attention(0.2, 0.3)


def test_two_images_may_come_one_after_the_other(screen: Screen) -> None:
    first, second = frames((48, 64))
    screen.give(file_of(first, "first.png"))
    expect(screen.sentence).to_contain_text("first.png is frame 1")
    screen.give(file_of(second, "second.png"))
    screen.wait_for_results()
    expect(screen.sentence).to_contain_text("first.png, second.png")


# Hands files over as a drag or the clipboard does.
HAND_OVER = """([kind, files]) => {
    const data = new DataTransfer();
    for (const { name, bytes } of files) {
        const content = Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0));
        data.items.add(new File([content], name, { type: "image/png" }));
    }
    const options = { bubbles: true, cancelable: true };
    document.body.dispatchEvent(
        kind === "drop"
            ? new DragEvent(kind, { ...options, dataTransfer: data })
            : new ClipboardEvent(kind, { ...options, clipboardData: data }),
    );
}"""


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_images_may_be_dropped_or_pasted(screen: Screen, kind: str) -> None:
    # The names tell the order: frame 10 comes after frame 9.
    files = [
        {"name": name, "bytes": base64.b64encode(png(image)).decode()}
        for name, image in zip(("frame 10.png", "frame 9.png"), frames((48, 64)), strict=True)
    ]
    screen.page.evaluate(HAND_OVER, [kind, files])
    screen.wait_for_results()
    expect(screen.sentence).to_contain_text("frame 9.png, frame 10.png")


def test_the_warped_frame_is_swiped_and_blinks(screen: Screen) -> None:
    screen.give_pair((48, 64))
    screen.page.keyboard.press("c")
    slider = screen.page.get_by_label("Edge between")
    slider.fill("1")
    only_frame1 = screen.picture("warped")
    slider.fill("0")
    only_warped = screen.picture("warped")
    assert (only_frame1 != only_warped).mean() > 0.01

    screen.page.get_by_role("button", name="Blink").click()
    for one in (only_frame1, only_warped):
        eventually(lambda one=one: close(screen.picture("warped"), one))  # type: ignore[misc]


def close(picture: np.ndarray, other: np.ndarray) -> bool:
    """Whether two pictures are the same but for the edge that is swiped."""
    inside = (slice(None), slice(8, -8))
    return np.array_equal(picture[inside], other[inside])


def test_two_fingers_zoom(browser: Browser, site: Running) -> None:
    context = browser.new_context(has_touch=True, viewport={"width": 390, "height": 844})
    screen = Screen(context.new_page())
    screen.page.goto(f"{site.url}?example=0&model=small&iters=1")
    screen.give_pair((48, 64))
    box = screen.canvas("attention").bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    fingers = context.new_cdp_session(screen.page)

    def touch(kind: str, *sides: float) -> None:
        points = [{"x": middle[0] + side, "y": middle[1], "id": i} for i, side in enumerate(sides)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", -30, 30)
    for gap in range(30, 91, 10):
        touch("touchMove", -gap, gap)
    touch("touchEnd")
    expect(screen.page.locator("#zoom-text")).to_have_text("300 %")
    assert screen.points.count() == 0
    context.close()


def test_two_models_stand_side_by_side(screen: Screen) -> None:
    screen.give_pair((48, 64))
    expect(screen.page.locator("#view-difference")).to_be_hidden()
    screen.page.locator("#compare").select_option("small")
    expect(screen.page.locator("#view-difference")).to_be_visible()
    expect(screen.page.locator("#view-other h2")).to_have_text("Flow, small")
    assert (screen.picture("other") != screen.picture("flow")).any()
    screen.page.get_by_label("Enlarge: Difference").click()
    expect(screen.page.locator("#main-view #view-difference")).to_be_visible()
    screen.page.locator("#compare").select_option("")
    expect(screen.page.locator("#main-view #view-attention")).to_be_visible(timeout=PATIENT)


def test_a_clip_has_a_timeline(screen: Screen, tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    first, second = frames((48, 64))
    with VideoWriter(path, fps=5) as video:
        for frame in (first, second, first, second):
            video.write(frame)
    screen.give(FilePayload(name="clip.mp4", mimeType="video/mp4", buffer=path.read_bytes()))
    screen.wait_for_results()
    expect(screen.page.locator("#pair-text")).to_have_text("pair 1 of 3")
    before = screen.picture("frame2")
    with screen.page.expect_response(re.compile("/pairs/2/gma/values")) as answer:
        screen.page.locator("#pair").fill("2")
    answer.value.finished()
    expect(screen.page.locator("#pair-text")).to_have_text("pair 3 of 3")
    screen.page.locator("#pair").fill("1")
    expect(screen.page.locator("#pair-text")).to_have_text("pair 2 of 3")
    screen.wait_for_change("frame2", before)
    screen.page.get_by_label("Play the clip").click()
    expect(screen.page.locator("#pair-text")).to_have_text("pair 3 of 3")
    expect(screen.page.get_by_label("Play the clip")).to_be_visible()  # it has stopped at the end


def test_a_computation_can_be_watched_and_cancelled(show: Open) -> None:
    screen = show("example=0&model=gma&iters=32")
    screen.give(*(file_of(image, f"{i}.png") for i, image in enumerate(frames((160, 200)))))
    expect(screen.sentence).to_contain_text("Refining", timeout=PATIENT)
    # The flow is seen while it forms.
    title = screen.page.locator("#view-flow h2")
    expect(title).to_have_text(re.compile("Flow after [0-9]+"), timeout=PATIENT)
    assert screen.picture("flow").std() > 1
    # A refused upload does not disturb it.
    screen.give(FilePayload(name="notes.txt", mimeType="text/plain", buffer=b"not a video"))
    expect(screen.status).to_have_attribute("data-state", "error", timeout=PATIENT)
    before = title.inner_text()
    expect(title).not_to_have_text(before, timeout=PATIENT)
    screen.page.locator("#cancel").click()
    expect(screen.page.locator("#cancel")).to_be_hidden(timeout=PATIENT)
    expect(screen.page.locator("#save")).to_be_disabled()


def test_keys_do_what_the_help_says(screen: Screen) -> None:
    screen.give_pair((48, 64))
    screen.page.keyboard.press("?")
    help_dialog = screen.page.get_by_role("dialog")
    expect(help_dialog).to_contain_text("Enlarge a view")
    screen.page.keyboard.press("Escape")
    expect(help_dialog).to_be_hidden()
    screen.page.keyboard.press("2")
    expect(screen.page.locator("#main-view #view-flow")).to_be_visible()

    screen.page.keyboard.press("c")
    screen.canvas("flow").focus()
    screen.page.keyboard.press("ArrowRight")
    screen.page.keyboard.press("Enter")
    assert screen.points.count() == 1
    assert screen.value("pixel") == "34, 24"


def test_the_theme_is_kept(screen: Screen) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = screen.page.evaluate(ground)
    screen.page.get_by_label("Light or dark").click()
    dark = screen.page.evaluate(ground)
    screen.page.reload()
    assert dark != light
    assert screen.page.evaluate(ground) == dark


def test_nothing_is_wider_than_the_window(show: Open) -> None:
    screen = show("example=0&model=gma&compare=small&iters=1")
    screen.give_pair((48, 64))
    for x in (0.1, 0.3, 0.5, 0.7, 0.9):
        screen.click_for_attention(x, 0.2, more=True)
    for width in (320, 390, 700, 900, 1440, 2200):
        screen.page.set_viewport_size({"width": width, "height": 844})
        assert screen.page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_colours_of_the_wheel_are_those_of_the_pictures(screen: Screen) -> None:
    angle = np.linspace(0, 2 * np.pi, 73, dtype=np.float32)
    reach = np.linspace(0, 1.2, 7, dtype=np.float32)[:, None]
    motion = np.stack([reach * np.cos(angle), reach * np.sin(angle)], axis=-1)
    found = screen.page.evaluate(
        """async (motions) => {
            const { motionColor } = await import("/static/inspector.js");
            return motions.map(([u, v]) => motionColor(u, v));
        }""",
        motion.reshape(-1, 2).tolist(),
    )
    expected = flow_to_image(motion, max_length=1.0).reshape(-1, 3).astype(int)
    assert np.abs(np.array(found) - expected).max() <= 1


def test_angles_are_below_360_degrees(screen: Screen) -> None:
    found = screen.page.evaluate(
        """async () => {
            const { inWords } = await import("/static/inspector.js");
            const angle = (u, v) => inWords({ u, v, length: 1, occluded: 0, confidence: 1 }).angle;
            return [angle(1, 0.001), angle(1, 0), angle(0, -1), angle(0, 1)];
        }"""
    )
    assert found == ["0°", "0°", "90°", "270°"]


def test_a_lost_server_is_reported(screen: Screen) -> None:
    screen.page.context.set_offline(True)
    screen.give(*(file_of(image, f"{i}.png") for i, image in enumerate(frames((48, 64)))))
    expect(screen.sentence).to_contain_text("The server does not respond", timeout=PATIENT)
    screen.page.context.set_offline(False)


def test_the_download_menu_is_inside_a_narrow_window(show: Open) -> None:
    screen = show("example=0&model=small&iters=1")
    screen.page.set_viewport_size({"width": 320, "height": 600})
    screen.give_pair((48, 64))
    screen.page.locator("#save").click()
    box = screen.page.locator("#save-menu").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 320
    assert box["y"] + box["height"] <= 600


def test_all_points_are_seen_at_once(show: Open) -> None:
    screen = show("example=0&model=gma&iters=1")
    screen.page.set_viewport_size({"width": 1440, "height": 900})
    screen.give_pair((48, 64))
    for x in (0.1, 0.3, 0.5, 0.7, 0.9):
        screen.click_for_attention(x, 0.2, more=True)
    row = screen.page.locator("#points").bounding_box()
    assert row is not None
    for point in screen.points.all():
        box = point.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= row["x"] + row["width"] + 1


def test_every_canvas_has_a_name(screen: Screen) -> None:
    screen.give_pair((48, 64))
    nameless = screen.page.evaluate(
        """() => [...document.querySelectorAll("canvas:not([aria-hidden])")].filter(
            (canvas) => canvas.checkVisibility() && !canvas.ariaLabel).length"""
    )
    assert nameless == 0


def test_one_refinement_is_singular(show: Open) -> None:
    screen = show("example=0&model=small&iters=1")
    screen.give_pair((48, 64))
    expect(screen.sentence).to_contain_text(re.compile(r"1 refinement\b"))
    expect(screen.sentence).not_to_contain_text("1 refinements")


def test_a_point_is_not_put_twice_at_one_place(show: Open) -> None:
    screen = show("example=0&model=gma&iters=1")
    screen.give_pair((48, 64))
    screen.click_for_attention(0.25, 0.25)
    before = screen.points.count()
    for _ in range(2):
        screen.click("attention", 0.25, 0.25, more=True)
    expect(screen.points).to_have_count(before)


def test_fingers_and_own_colours(browser: Browser, site: Running) -> None:
    """On a phone browsers zoom in on type below 16 px; forced colours keep those with a meaning."""
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    screen = Screen(context.new_page())
    screen.page.emulate_media(forced_colors="active")
    screen.page.goto(f"{site.url}?example=0&model=small&iters=1")
    screen.give_pair((48, 64))
    for select in screen.page.locator(".settings select:visible").all():
        box = select.bounding_box()
        assert box is not None
        assert box["height"] >= 40
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert select.evaluate("(one) => parseFloat(getComputedStyle(one).fontSize)") >= 16
    adjusts = "(one) => getComputedStyle(one).forcedColorAdjust"
    swatches = screen.page.locator(".swatch, .ramp").all()
    assert swatches
    assert all(one.evaluate(adjusts) == "none" for one in swatches)
    context.close()


def test_a_long_name_takes_no_more_than_its_line(screen: Screen) -> None:
    name = 40 * "a_long_name_" + ".png"
    screen.give(*(file_of(image, f"{i}{name}") for i, image in enumerate(frames((48, 64)))))
    screen.wait_for_results()
    height = screen.sentence.bounding_box()
    assert height is not None
    assert height["height"] < 30
    assert screen.page.evaluate("() => document.documentElement.scrollWidth") <= 1280


@pytest.fixture
def tracks(show: Open, pan: bytes) -> Screen:
    """The tab of tracks, with the pan tracked from its first frame."""
    return track(show("tab=tracks&model=gma&iters=3"), pan)


def track(screen: Screen, clip: bytes) -> Screen:
    screen.give(FilePayload(name="pan.mp4", mimeType="video/mp4", buffer=clip))
    screen.wait_for_results()
    return screen


def marks(screen: Screen) -> list[str]:
    return screen.page.locator("#marks .where").all_inner_texts()


def go_to_frame(screen: Screen, number: int) -> None:
    """Show a frame, counted from 1."""
    before = screen.picture("trails")
    screen.page.locator("#pair").fill(str(number - 1))
    expect(screen.page.locator("#pair-text")).to_have_text(f"frame {number} of 6")
    screen.wait_for_change("trails", before)


def test_points_of_any_frame_are_tracked_and_saved(tracks: Screen, tmp_path: Path) -> None:
    expect(tracks.sentence).to_contain_text("6 frames tracked from frame 1")
    expect(tracks.page.locator("[data-track=points]")).to_have_text(str(8 * 12))
    go_to_frame(tracks, 1)
    with tracks.page.expect_response(re.compile("/tracks/values.points=")):
        tracks.click("trails", 0.505, 0.26)
    assert marks(tracks) == ["48, 16"]
    # The same thing, three frames later: it leads to where it was in the first.
    go_to_frame(tracks, 4)
    with tracks.page.expect_response(re.compile("/origin")):
        tracks.click("trails", 0.505, 0.26)
    expect(tracks.page.locator("#marks .where")).to_have_count(2)
    x, y = map(int, marks(tracks)[1].split(","))
    assert (x, y) == pytest.approx((48 + 3 * SHIFT, 16), abs=1)
    expect(tracks.page.locator("[data-track=visible]")).to_have_text("2")

    tracks.page.locator("#save").click()
    with tracks.page.expect_download() as download:
        tracks.page.get_by_text("Tracks, .npz").click()
    download.value.save_as(tmp_path / "tracks.npz")
    found = read_tracks(tmp_path / "tracks.npz")
    assert found.points[0].tolist() == [48, 16]
    np.testing.assert_allclose(found.positions[:, 0, 0], 48 - SHIFT * np.arange(6), atol=0.8)

    tracks.page.get_by_label("Remove: Point 48, 16").click()
    assert len(marks(tracks)) == 1


def test_a_box_is_dragged_or_has_two_corners(show: Open, pan: bytes) -> None:
    tracks = track(show("tab=tracks&model=small&iters=1"), pan)
    go_to_frame(tracks, 1)
    page = tracks.page
    page.get_by_role("button", name="Box").click()
    box = tracks.canvas("trails").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.25 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"], steps=4)
    page.mouse.up()
    width, height = map(int, marks(tracks)[0].split(" x "))
    assert (width, height) == pytest.approx((25, 17), abs=1)
    count = (width // 2) * (height // 2)  # every other pixel
    expect(page.locator("[data-track=points]")).to_have_text(str(count))
    page.keyboard.press("c")
    assert marks(tracks) == []
    # By keyboard, in the view with the camera held still.
    tracks.canvas("still").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert marks(tracks) == ["17 x 3"]


def test_tracks_begin_at_another_frame(tracks: Screen) -> None:
    go_to_frame(tracks, 1)
    tracks.click("trails", 0.505, 0.26)
    go_to_frame(tracks, 4)
    tracks.page.get_by_role("button", name="Track from here").click()
    expect(tracks.sentence).to_contain_text("6 frames tracked from frame 4", timeout=PATIENT)
    x, y = map(int, marks(tracks)[0].split(","))
    assert (x, y) == pytest.approx((48 - 3 * SHIFT, 16), abs=1)
    expect(tracks.page.locator("[data-track=reference]")).to_have_text("frame 4")


def test_the_clip_plays_and_hidden_points_are_hollow(tracks: Screen) -> None:
    go_to_frame(tracks, 1)
    tracks.click("trails", 0.02, 0.25)  # leaves the frame soon
    tracks.page.keyboard.press(" ")
    expect(tracks.page.locator("#pair-text")).not_to_have_text("frame 1 of 6")
    tracks.page.get_by_label("Pause the clip").click()
    go_to_frame(tracks, 6)
    expect(tracks.page.locator("[data-track=hidden]")).to_have_text("1")


def test_each_tab_keeps_its_results(tracks: Screen, pan: bytes) -> None:
    page = tracks.page
    go_to_frame(tracks, 3)
    before = tracks.picture("trails")
    page.get_by_role("tab", name="Tracks").press("ArrowLeft")
    expect(page.get_by_role("tab", name="Flow")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tab", name="Flow")).to_be_focused()
    tracks.wait_for_results()  # the clip came along
    expect(tracks.sentence).to_contain_text("5 pairs")
    assert tracks.picture("flow").std() > 1
    page.keyboard.press("w")
    expect(tracks.sentence).to_contain_text("6 frames tracked")
    expect(page.locator("#pair-text")).to_have_text("frame 3 of 6")
    assert np.array_equal(tracks.picture("trails"), before)
    page.keyboard.press("w")
    expect(tracks.sentence).to_contain_text("5 pairs")


def test_a_frame_that_arrives_in_the_other_tab_is_shown_afterwards(show: Open, pan: bytes) -> None:
    screen = show("tab=tracks&model=small&iters=1&example=0")
    page = screen.page
    held: list[Route] = []
    page.route("**/frames/1/frame", lambda route: held.append(route))  # noqa: PLW0108  built-ins are refused
    track(screen, pan)
    expect(page.locator("#pair-text")).to_have_text("frame 6 of 6")
    before = screen.picture("trails")
    page.locator("#pair").fill("1")
    eventually_on(page, lambda: bool(held))
    page.keyboard.press("w")
    expect(screen.sentence).to_contain_text("5 pairs", timeout=PATIENT)
    with page.expect_response("**/frames/1/frame"):
        held.pop().continue_()
    page.wait_for_timeout(300)
    page.keyboard.press("w")
    expect(page.locator("#pair-text")).to_have_text("frame 2 of 6")
    screen.wait_for_change("trails", before)


def eventually_on(page: Page, there: Callable[[], bool]) -> None:
    """Wait until something is so, while the page goes on."""
    for _ in range(100):
        if there():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not come to be")


def test_an_upload_is_not_replaced_by_the_clip_of_the_other_tab(show: Open, pan: bytes) -> None:
    screen = show("tab=tracks&model=small&iters=1&example=0")
    page = screen.page
    sent: list[Route] = []

    def hold_first(route: Route) -> None:
        sent.append(route)
        if len(sent) > 1:
            route.continue_()

    page.route("**/api/jobs", hold_first)
    screen.give(FilePayload(name="first.mp4", mimeType="video/mp4", buffer=pan))
    eventually_on(page, lambda: len(sent) == 1)
    page.get_by_role("tab", name="Flow").click()
    screen.give(FilePayload(name="second.mp4", mimeType="video/mp4", buffer=pan))
    expect(screen.sentence).to_contain_text("5 pairs", timeout=PATIENT)
    page.get_by_role("tab", name="Tracks").click()
    sent[0].continue_()
    expect(screen.sentence).to_contain_text("6 frames tracked", timeout=PATIENT)
    assert len(sent) == 2


def test_input_given_before_the_models_are_known_waits_for_them(show: Open, pan: bytes) -> None:
    """Otherwise the clip is sent for the wrong tab, and with the wrong settings."""
    screen = show("tab=tracks&model=small&iters=2&example=0")
    page = screen.page
    asked: list[Route] = []
    sent: list[Route] = []
    page.route("**/api/models", lambda route: asked.append(route))  # noqa: PLW0108  built-ins are refused
    page.route("**/api/jobs", lambda route: sent.append(route))  # noqa: PLW0108
    page.reload()
    eventually_on(page, lambda: bool(asked))
    screen.give(FilePayload(name="pan.mp4", mimeType="video/mp4", buffer=pan))
    page.wait_for_timeout(200)
    with page.expect_response("**/version"):
        asked.pop().continue_()
    eventually_on(page, lambda: bool(sent))
    sent.pop().continue_()
    screen.wait_for_results()
    expect(screen.sentence).to_contain_text("2 refinements · 6 frames tracked")


def test_input_given_first_replaces_the_example(show: Open) -> None:
    screen = show("model=small&iters=2&example=0")
    page = screen.page
    asked: list[Route] = []
    sent: list[str] = []
    page.route("**/api/models", lambda route: asked.append(route))  # noqa: PLW0108  built-ins are refused
    page.on("request", lambda one: sent.append(one.url) if one.method == "POST" else None)
    page.goto(page.url.replace("&example=0", ""))
    eventually_on(page, lambda: bool(asked))
    screen.give(*(file_of(image, f"{i}.png") for i, image in enumerate(frames((48, 64)))))
    page.wait_for_timeout(200)
    asked.pop().continue_()
    screen.wait_for_results()
    expect(screen.sentence).to_contain_text("64 x 48 · 2 refinements")
    assert len(sent) == 1


def test_points_of_boxes_are_not_too_many(show: Open) -> None:
    count = """async (sizes) => {
      const { chosenPoints } = await import("/static/marks.js");
      const marks = sizes.map(([width, height]) => ({ x: 0, y: 0, width, height }));
      const points = chosenPoints(marks);
      return [points.length, Math.max(...points.map(([x]) => x))];
    }"""
    page = show("tab=tracks&example=0").page
    for sizes in ([[3515, 32]], [[30_000, 1]], [[3515, 32], [3000, 20], [3515, 5]]):
        number, right = page.evaluate(count, sizes)
        assert number <= 2000
        assert right > 0.97 * sizes[-1][0]


def test_bad_clips_give_one_clear_error(show: Open, tmp_path: Path) -> None:
    screen = show("tab=tracks&model=small&iters=1")
    expect(screen.sentence).to_contain_text("to track points through it")
    scene, other = texture(*PAN_SIZE), 255 - texture(*PAN_SIZE, seed=5)
    one = write_clip(tmp_path / "one.mp4", [scene])
    screen.give(FilePayload(name="one.mp4", mimeType="video/mp4", buffer=one))
    expect(screen.sentence).to_contain_text("fewer than two frames", timeout=PATIENT)
    screen.give(file_of(scene, "1.png"), file_of(other[:48], "2.png"))
    expect(screen.sentence).to_contain_text("differ in size", timeout=PATIENT)
    cut = write_clip(tmp_path / "cut.mp4", [scene, scene, other, other])
    screen.give(FilePayload(name="cut.mp4", mimeType="video/mp4", buffer=cut))
    screen.wait_for_results()
    expect(screen.sentence).to_contain_text("scene cut at frame 3: neither flow nor tracks")
    expect(screen.page.locator("[data-track=visible]")).to_have_text("0")  # the last frame is shown


def test_frames_of_a_clip_may_be_images(screen: Screen) -> None:
    screen.page.get_by_role("tab", name="Tracks").click()
    images = pan_frames(PAN_SIZE)
    files = [file_of(image, f"frame {number}.png") for number, image in enumerate(images, 8)]
    screen.give(*reversed(files))
    expect(screen.page.locator("#pair-text")).to_contain_text("of 6", timeout=PATIENT)
    screen.page.locator("#cancel").click()
    expect(screen.sentence).to_contain_text(
        re.compile("frame 8.png . frame 13.png"), timeout=PATIENT
    )
    screen.give(*files[:2], file_of(images[0][:48], "frame 9b.png"))
    expect(screen.sentence).to_contain_text("frame 1 and frame 3 differ in size", timeout=PATIENT)


def test_tracks_fit_the_window_and_have_names(show: Open, pan: bytes) -> None:
    tracks = track(show("tab=tracks&model=small&iters=1"), pan)
    go_to_frame(tracks, 1)
    for x in (0.1, 0.3, 0.5, 0.7, 0.9):
        tracks.click("trails", x, 0.2)
    for width in (320, 390, 700, 900, 1440, 2200):
        tracks.page.set_viewport_size({"width": width, "height": 844})
        assert tracks.page.evaluate("() => document.documentElement.scrollWidth") <= width
    for view in ("trails", "still", "moving"):
        assert "frame" in (tracks.canvas(view).get_attribute("aria-label") or "").lower()
    nameless = tracks.page.evaluate(
        """() => [...document.querySelectorAll("button, input, select")].filter(
            (one) => one.checkVisibility() && !one.ariaLabel && !one.innerText && !one.labels.length
        ).map((one) => one.id)"""
    )
    assert nameless == []


def test_colours_of_points_are_those_of_videos(screen: Screen) -> None:
    points = np.stack(np.meshgrid(np.arange(0, 64, 9), np.arange(0, 48, 7)), axis=-1).reshape(-1, 2)
    found = screen.page.evaluate(
        """async (points) => {
            const { colorOf } = await import("/static/marks.js");
            return points.map(([x, y]) => colorOf({ x, y }, { width: 64, height: 48 }));
        }""",
        points.tolist(),
    )
    expected = position_colors(points.astype(np.float32), height=48, width=64).astype(int)
    assert np.abs(np.array(found) - expected).max() <= 1
