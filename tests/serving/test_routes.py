"""The API as a client sees it, over real HTTP."""

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from gmaflow.example import load_example
from gmaflow.inference.planning import TILING_BYTES
from gmaflow.io import VideoWriter, read_flow_arrays, scale_image
from gmaflow.runtime.device_options import DeviceOptions
from gmaflow.serving.models import ModelRegistry
from gmaflow.version import __version__
from tests.inference.test_engine import least_memory
from tests.serving.conftest import Running, frames, pair_files, running

SIZE = (40, 56)
PICTURES = ("frame1", "frame2", "flow", "arrows", "warped", "occlusion", "confidence", "panel")


def picture(answer: httpx.Response) -> np.ndarray:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/png"
    return np.asarray(Image.open(io.BytesIO(answer.content)))


@pytest.fixture(scope="module")
def job(site: Running) -> str:
    """A finished job with two models."""
    url = site.start(model="attentive", compare_model="small", iters="3")
    done = site.wait(url)
    assert (done["state"], done["models"]) == ("done", ["attentive", "small"])
    return url


def test_the_server_describes_itself(site: Running) -> None:
    assert site.client.get("/health").json()["status"] == "ok"
    assert site.client.get("/version").json()["gmaflow"] == __version__
    models = site.client.get("/api/models").json()
    assert [(model["name"], model["default"], model["attention"]) for model in models][:2] == [
        ("small", True, False),
        ("attentive", False, True),
    ]
    assert "gma" in [model["name"] for model in models]


def test_the_page_is_there(site: Running) -> None:
    answer = site.client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")


def test_the_documentation_names_every_address_and_nothing_from_elsewhere(site: Running) -> None:
    page = site.client.get("/docs").text
    paths = site.client.get("/openapi.json").json()["paths"]
    assert "/api/flow" in paths
    assert all(path in page for path in paths)
    assert "//" not in page
    assert "<script" not in page
    files = re.findall(r'href="(/static/[^"]+)"', page)
    assert files
    assert all(site.client.get(file).status_code == 200 for file in files)


def test_a_job_reports_its_outcome(site: Running, job: str) -> None:
    status = site.client.get(job).json()
    assert (status["kind"], status["state"], status["progress"]) == ("pair", "done", 1.0)
    assert (status["width"], status["height"], status["pairs"]) == (56, 40, 1)
    assert (status["iterations"], status["done_pairs"], status["error"]) == (3, [0], None)
    assert status["notes"] == []


@pytest.mark.parametrize("view", PICTURES)
def test_every_view_is_a_picture_of_the_frames_size(site: Running, job: str, view: str) -> None:
    shown = picture(site.client.get(f"{job}/pairs/0/attentive/{view}"))
    if view != "panel":
        assert shown.shape[:2] == SIZE
    assert shown.shape[2] == (4 if view == "occlusion" else 3)


def test_frames_come_back_as_they_were_sent(site: Running, job: str) -> None:
    for name, frame in zip(("frame1", "frame2"), frames(SIZE), strict=True):
        answer = site.client.get(f"{job}/pairs/0/small/{name}")
        assert np.array_equal(picture(answer), frame)
        assert answer.headers["cache-control"] == "private, max-age=600"


def test_iterations_lead_to_the_final_flow(site: Running, job: str) -> None:
    flows = [
        picture(site.client.get(f"{job}/pairs/0/small/flow", params={"iteration": i}))
        for i in (1, 2, 3)
    ]
    assert np.array_equal(flows[2], picture(site.client.get(f"{job}/pairs/0/small/flow")))
    assert not np.array_equal(flows[0], flows[1])


def test_numbers_are_the_same_in_every_form(site: Running, job: str, tmp_path: Path) -> None:
    answer = site.client.get(f"{job}/pairs/0/small/values")
    height, width = int(answer.headers["X-Height"]), int(answer.headers["X-Width"])
    values = np.frombuffer(answer.content, "<f4").reshape(height, width, 4)
    formats = (("flow.flo", ".flo", 0.0), ("flow.npz", ".npz", 0.0), ("flow.png16", ".png", 1 / 64))
    for name, suffix, off in formats:
        path = tmp_path / f"flow{suffix}"
        path.write_bytes(site.client.get(f"{job}/pairs/0/small/{name}").content)
        flow = read_flow_arrays(path).array
        assert np.abs(flow - values[..., :2]).max() <= off
    assert set(np.unique(values[..., 2])) <= {0, 1, 2}
    assert values[..., 3].min() >= 0
    assert values[..., 3].max() <= 1
    length = np.hypot(values[..., 0], values[..., 1]).max()
    assert site.client.get(job).json()["max_flow"] >= length - 1e-3


def test_a_flow_file_of_an_iteration_is_kept_apart_from_the_result(
    site: Running, tmp_path: Path
) -> None:
    url = site.start(iters="2")
    site.wait(url)
    files = [f"{url}/pairs/0/small/flow.flo{query}" for query in ("?iteration=1", "")]
    for number, file in enumerate(files):
        (tmp_path / f"{number}.flo").write_bytes(site.client.get(file).content)
    values = np.frombuffer(site.client.get(f"{url}/pairs/0/small/values").content, "<f4")
    result = values.reshape(*SIZE, 4)[..., :2]
    early, late = (read_flow_arrays(tmp_path / f"{number}.flo").array for number in (0, 1))
    assert np.array_equal(late, result)
    assert not np.array_equal(early, result)


def test_the_difference_of_two_models_is_the_same_from_both_sides(site: Running, job: str) -> None:
    one, other = (
        picture(site.client.get(f"{job}/pairs/0/{model}/difference"))
        for model in ("attentive", "small")
    )
    assert np.array_equal(one, other)
    assert one.std() > 0


def test_attention_is_what_the_estimator_says(
    site: Running, models: ModelRegistry, job: str
) -> None:
    point = {"x": 17, "y": 30}
    answer = site.client.get(f"{job}/pairs/0/attentive/attention", params=point)
    shape = int(answer.headers["X-Height"]), int(answer.headers["X-Width"])
    shades = np.frombuffer(answer.content, np.uint8).reshape(shape)
    cells = models.estimator("attentive").attend(frames(SIZE)[0]).cells([(17.0, 30.0)])[0].numpy()
    assert np.abs(shades / 255 * float(answer.headers["X-Max"]) - cells).max() < cells.max() / 255
    drawn = site.client.get(f"{job}/pairs/0/attentive/attention", params={**point, "format": "png"})
    assert picture(drawn).shape == (*SIZE, 3)


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("pairs/0/small/attention?x=1&y=1", 404, "small has no attention"),
        ("pairs/0/attentive/attention?x=99&y=1", 422, "outside the frame"),
        ("pairs/0/attentive/attention?x=nan&y=1", 422, ""),
        ("pairs/0/attentive/attention?x=1", 422, "y: field required"),
        ("pairs/1/small/flow", 404, "no pair 1"),
        ("pairs/0/large/flow", 404, "no model 'large'"),
        ("pairs/0/small/flwo", 404, "did you mean flow"),
        ("pairs/0/small/flow?iteration=4", 404, "no iteration 4"),
        ("pairs/0/small/flow?max_flow=0", 422, ""),
        ("pairs/0/small/error", 404, "built-in example"),
        ("nothing", 404, "/docs"),
    ],
)
def test_a_missing_result_is_one_sentence(
    site: Running, job: str, path: str, status: int, sentence: str
) -> None:
    answer = site.client.get(f"{job}/{path}")
    assert answer.status_code == status
    assert sentence in answer.json()["error"]


def test_everything_comes_in_one_file(site: Running, job: str) -> None:
    answer = site.client.get(f"{job}/all.zip")
    assert answer.status_code == 200, answer.text
    names = set(zipfile.ZipFile(io.BytesIO(answer.content)).namelist())
    assert {"small/0000-flow.flo", "attentive/0000-panel.png"} <= names
    assert len(names) == 2 * (1 + len(PICTURES))


def test_events_follow_a_job_to_its_end(site: Running) -> None:
    url = site.start(iters="4")
    with site.client.stream("GET", f"{url}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        statuses = [
            json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")
        ]
    assert statuses[-1]["state"] == "done"
    progress = [status["progress"] for status in statuses]
    assert progress == sorted(progress)
    assert progress[-1] == 1


def test_the_example_knows_its_truth(site: Running) -> None:
    url = site.client.post("/api/jobs", data={"example": "1", "iters": "1"}).json()["url"]
    status = site.wait(url)
    assert (status["width"], status["height"], status["truth"]) == (512, 384, True)
    assert picture(site.client.get(f"{url}/pairs/0/small/error")).std() > 0
    first = picture(site.client.get(f"{url}/pairs/0/small/frame1"))
    assert np.array_equal(first, load_example().image1)


def test_where_memory_is_short_a_pair_is_done_in_parts(weight_files: tuple[str, str]) -> None:
    # Enough for one direction, not for both at once.
    memory = least_memory("raft-small", *SIZE)
    options = DeviceOptions(device="cpu", max_memory=str(memory))
    with running(ModelRegistry(weight_files, options=options)) as site:
        url = site.start(iters="3")
        status = site.wait(url)
        assert (status["state"], status["every_iteration"]) == ("done", False)
        answer = site.client.get(f"{url}/pairs/0/small/flow", params={"iteration": 1})
        assert answer.status_code == 404
        assert "memory was short" in answer.json()["error"]
        assert picture(site.client.get(f"{url}/pairs/0/small/occlusion")).shape[:2] == SIZE
        failed = site.wait(site.start(iters="1", size=(120, 160)))
        assert failed["state"] == "failed"
        assert "of memory are not enough for images of 120x160" in failed["error"]


def test_tiles_are_noted(weight_files: tuple[str, str]) -> None:
    memory = least_memory("raft-small", 192, 384) + TILING_BYTES * 2 * 192 * 640
    options = DeviceOptions(device="cpu", max_memory=str(memory))
    with running(ModelRegistry(weight_files, options=options)) as site:
        status = site.wait(site.start(iters="1", size=(192, 640)))
        assert status["state"] == "done"
        assert "computed in tiles" in status["notes"][-1]


def test_large_images_are_scaled_down_with_a_note(models: ModelRegistry) -> None:
    with running(models, work_pixels=40 * 56 // 4) as site:
        url = site.start(iters="1")
        status = site.wait(url)
        assert (status["width"], status["height"]) == (28, 20)
        assert (status["original_width"], status["original_height"]) == (56, 40)
        assert "scaled down from 56 x 40 to 28 x 20" in status["notes"][0]
        assert picture(site.client.get(f"{url}/pairs/0/small/flow")).shape[:2] == (20, 28)
        answer = site.client.post("/api/flow", files=pair_files(SIZE))
        assert answer.status_code == 413
        assert "fit=true" in answer.json()["error"]
        answer = site.client.post("/api/flow?fit=true", files=pair_files(SIZE))
        assert (answer.headers["X-Width"], answer.headers["X-Height"]) == ("28", "20")
        query = "fit=true&bidirectional=1&iters=1"
        answer = site.client.post(f"/api/flow?{query}", files=pair_files(SIZE))
        small = [scale_image(frame, 0.5) for frame in frames(SIZE)]
        wanted = models.estimator("small").with_iters(1).bidirectional(*small, scale=0.5)
        found = np.load(io.BytesIO(answer.content))["confidence"]
        np.testing.assert_allclose(found, wanted.confidence, atol=2e-3)


@pytest.mark.parametrize(("format", "suffix"), [("npz", ".npz"), ("flo", ".flo"), ("png", ".png")])
def test_flow_in_one_request_is_that_of_the_estimator(
    site: Running, models: ModelRegistry, tmp_path: Path, format: str, suffix: str
) -> None:
    answer = site.client.post(f"/api/flow?format={format}&iters=2", files=pair_files(SIZE))
    assert answer.status_code == 200, answer.text
    path = tmp_path / f"flow{suffix}"
    path.write_bytes(answer.content)
    expected = models.estimator("small").with_iters(2)(*frames(SIZE)).array
    assert np.abs(read_flow_arrays(path).array - expected).max() <= (
        1 / 64 if format == "png" else 1e-4
    )


def test_flow_in_one_request_with_occlusion(site: Running) -> None:
    answer = site.client.post("/api/flow?bidirectional=1&iters=1", files=pair_files(SIZE))
    held = np.load(io.BytesIO(answer.content))
    assert set(held) == {"flow", "valid", "occluded_in", "occluded_out", "confidence"}
    assert (
        site.client.post("/api/flow?bidirectional=1&format=flo", files=pair_files(SIZE)).status_code
        == 422
    )


def test_a_clip_is_done_pair_by_pair(site: Running, clip: Path) -> None:
    answer = site.client.post(
        "/api/jobs", files={"clip": ("x.png", clip.read_bytes())}, data={"iters": "1"}
    )
    assert answer.json()["kind"] == "clip"
    url = answer.json()["url"]
    status = site.wait(url)
    assert (status["state"], status["pairs"], status["done_pairs"]) == ("done", 4, [0, 1, 2, 3])
    assert picture(site.client.get(f"{url}/pairs/3/small/flow")).shape[:2] == (48, 64)
    names = zipfile.ZipFile(io.BytesIO(site.client.get(f"{url}/all.zip").content)).namelist()
    assert "small/0003-flow.flo" in names
    assert not list(site.folder.rglob("clip"))  # the upload itself is not kept


def test_a_clip_continues_at_the_requested_pair(models: ModelRegistry, clip: Path) -> None:
    with running(models) as site:
        # A job before it holds the worker while we say where to go on.
        ahead = site.start(iters="64", size=(120, 160))
        files = {"clip": ("x.mp4", clip.read_bytes())}
        url = site.client.post("/api/jobs", files=files, data={"iters": "1"}).json()["url"]
        assert site.client.post(f"{url}/seek", json={"pair": 2}).status_code == 202
        assert site.client.post(f"{url}/seek", json={"pair": 4}).status_code == 422
        assert site.client.get(f"{url}/pairs/0/small/flow").status_code == 409
        site.client.delete(ahead)
        job = site.queue.find(url.rsplit("/", 1)[1])
        assert [task.number for task in job.todo] == [2, 3, 0, 1]
        site.wait(url)


@pytest.mark.parametrize("limit", [{"clip_frames": 3}, {"clip_seconds": 0.2}])
def test_a_long_clip_is_cut_with_a_note(
    models: ModelRegistry, clip: Path, limit: dict[str, Any]
) -> None:
    with running(models, **limit) as site:
        files = {"clip": ("x.mp4", clip.read_bytes())}
        url = site.client.post("/api/jobs", files=files, data={"iters": "1"}).json()["url"]
        status = site.wait(url)
        assert status["pairs"] == 2
        assert "only the first 3 frames" in status["notes"][0]


def test_cuts_in_a_clip_are_reported(site: Running, tmp_path: Path) -> None:
    scene, other = load_example().image1[:192, :256], load_example().image1[-192:, -256:]
    with VideoWriter(tmp_path / "cut.mp4", fps=10) as writer:
        for frame in (scene, np.roll(scene, 2, 1), other, np.roll(other, 2, 1)):
            writer.write(frame)
    files = {"clip": ("x.mp4", (tmp_path / "cut.mp4").read_bytes())}
    url = site.client.post("/api/jobs", files=files, data={"iters": "1"}).json()["url"]
    (note,) = site.client.get(url).json()["notes"]
    assert "scene cut at frame 3: " in note
    site.client.delete(url)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five frames."""
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    first, second = frames((48, 64))
    with VideoWriter(path, fps=10) as writer:
        for number in range(5):
            writer.write(second if number % 2 else first)
    return path
