"""Jobs that track: positions, pictures with the camera held still, files, refusals."""

import csv
import io
import tempfile
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image
from starlette.datastructures import UploadFile

from gmaflow.inference import TrackedFrame, grid_points, read_tracks
from gmaflow.inference.planning import TILING_BYTES
from gmaflow.io import VideoReader, decode_image
from gmaflow.runtime.device_options import DeviceOptions
from gmaflow.serving import Limits
from gmaflow.serving.job_queue import TRACKING_JOBS, JobQueue
from gmaflow.serving.jobs import Footage, Job, JobRequest, Size, frame_name, track_name
from gmaflow.serving.models import ModelRegistry
from gmaflow.serving.results import ResultFolder
from gmaflow.serving.track_views import (
    MOST_POINTS,
    TRACK_FILES,
    parse_points,
    save_tracks,
)
from gmaflow.serving.uploads import Deadline, read_images
from tests.conftest import random_images
from tests.inference.test_engine import least_memory
from tests.serving.conftest import (
    PAN_SIZE,
    SHIFT,
    Running,
    pan_frames,
    png,
    running,
    texture,
    write_clip,
)

SIZE = (96, 128)


@pytest.fixture(scope="module")
def tracked(site: Running, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a job that has tracked a pan and a square that follows the camera.

    From its third frame, with real weights.
    """
    images = pan_frames(SIZE)
    for image in images:
        image[33:63, 49:79] = texture(30, 30, seed=1)
    clip = write_clip(tmp_path_factory.mktemp("pan") / "pan.mp4", images)
    fields = {"reference": "2", "model": "gma", "iters": "6"}
    answer = site.client.post("/api/jobs", files={"clip": ("pan.mp4", clip)}, data=fields)
    assert answer.status_code == 202, answer.text
    url = str(answer.json()["url"])
    status = site.wait(url)
    assert (status["state"], status["tracked_frames"]) == ("done", list(range(6)))
    assert (status["frames"], status["fps"], status["reference"]) == (6, 10.0, 2)
    assert status["progress"] == 1
    return url


def picture(site: Running, address: str) -> np.ndarray:
    answer = site.client.get(address)
    assert answer.status_code == 200, answer.text
    return np.asarray(Image.open(io.BytesIO(answer.content))).astype(int)


def test_points_go_where_the_camera_takes_them(site: Running, tracked: str) -> None:
    answer = site.client.get(f"{tracked}/tracks/values", params={"points": "20,12;104,80"})
    assert (answer.headers["X-Frames"], answer.headers["X-Points"]) == ("6", "2")
    values = np.frombuffer(answer.content, "<f4").reshape(6, 2, 6)
    steps = np.arange(6) - 2
    for point, (x, y) in enumerate([(20, 12), (104, 80)]):
        np.testing.assert_allclose(values[:, point, 0], x - SHIFT * steps, atol=0.7)
        np.testing.assert_allclose(values[:, point, 1], y, atol=0.7)
        assert values[:, point, 2].all()
        # With the camera held still they rest.
        np.testing.assert_allclose(values[:, point, 4:], [[x, y]] * 6, atol=0.7)


def test_the_camera_is_held_still(site: Running, tracked: str) -> None:
    first, last = (picture(site, f"{tracked}/frames/{n}/frame") for n in (2, 5))
    still = picture(site, f"{tracked}/frames/5/still")
    backdrop = (slice(2, 24), slice(12, 110))
    moved, held = (np.abs(one - first)[backdrop].mean() for one in (last, still))
    assert held < moved / 3


def test_what_moves_by_itself_is_lit(site: Running, tracked: str) -> None:
    moving = picture(site, f"{tracked}/frames/4/moving")
    colour = np.ptp(moving, axis=2)
    assert colour[38:58, 54:74].mean() > 5 * colour[2:22, 20:110].mean()
    nothing = picture(site, f"{tracked}/frames/2/moving")
    assert np.ptp(nothing, axis=2).max() == 0


def test_files_of_tracks(site: Running, tracked: str, tmp_path: Path) -> None:
    query = {"points": "20,12;64,48"}
    files = {}
    for name in ("tracks.npz", "tracks.csv", "trails.mp4"):
        answer = site.client.get(f"{tracked}/tracks/{name}", params=query)
        assert answer.status_code == 200, answer.text
        assert f'filename="{name}"' in answer.headers["Content-Disposition"]
        files[name] = tmp_path / name
        files[name].write_bytes(answer.content)
    tracks = read_tracks(files["tracks.npz"])
    assert tracks.reference == 2
    assert tracks.points.tolist() == [[20, 12], [64, 48]]
    rows = list(csv.DictReader(files["tracks.csv"].read_text().splitlines()))
    assert len(rows) == 6 * 2
    assert float(rows[0]["x"]) == pytest.approx(tracks.positions[0, 0, 0], abs=1e-3)
    assert [frame.image.shape for frame in VideoReader(files["trails.mp4"])] == [(*SIZE, 3)] * 6


def test_a_place_of_any_frame_leads_to_the_reference(site: Running, tracked: str) -> None:
    answer = site.client.get(f"{tracked}/frames/5/origin", params={"x": 11, "y": 12})
    assert answer.json()["x"] == pytest.approx(20, abs=1)
    assert answer.json()["y"] == pytest.approx(12, abs=1)
    # What comes into the frame from the right was not there before.
    answer = site.client.get(f"{tracked}/frames/5/origin", params={"x": 126, "y": 12})
    assert answer.status_code == 404
    assert "of this frame was not found in the reference frame;" in answer.json()["error"]


def test_a_grid_is_the_default(site: Running, tracked: str) -> None:
    answer = site.client.get(f"{tracked}/tracks/values")
    assert int(answer.headers["X-Points"]) == 12 * 16  # of 96x128


@pytest.mark.parametrize("size", [Size(3515, 32), Size(32, 3515), Size(16, 34_000), Size(700, 700)])
def test_the_grid_of_a_narrow_frame_is_not_too_large(tmp_path: Path, size: Size) -> None:
    footage = Footage("clip", ResultFolder(tmp_path / "0"), 2, size, size)
    job = Job("a", footage, JobRequest(("m",), 1, reference=0))
    assert MOST_POINTS / 4 < len(parse_points(job, None)) <= MOST_POINTS


def test_files_of_points_do_not_stay_on_the_disk(site: Running, tracked: str) -> None:
    folder = site.queue.find(tracked.rsplit("/", 1)[1]).footage.folder.path
    before = sorted(folder.rglob("*"))
    for x in range(3):
        for name in TRACK_FILES:
            site.client.get(f"{tracked}/tracks/{name}", params={"points": f"{x},1"})
    assert sorted(folder.rglob("*")) == before


def test_what_moves_is_remembered_while_it_is_hidden_or_the_camera_unknown(tmp_path: Path) -> None:
    size = Size(64, 48)
    footage = Footage("clip", ResultFolder(tmp_path / "0"), 4, size, size)
    job = Job("a", footage, JobRequest(("m",), 1, reference=0))
    square, hole = (slice(10, 20), slice(10, 20)), (slice(10, 15), slice(10, 20))

    def save(number: int, visible: np.ndarray) -> np.ndarray:
        positions = grid_points(48, 64, 1).reshape(48, 64, 2)
        positions[square] += 5 * number
        save_tracks(job, TrackedFrame(number, 0, positions, visible, visible.astype(np.float32)))
        moving: np.ndarray = footage.folder.load(f"{track_name(number)}-moving")
        return moving

    everything = np.ones((48, 64), bool)
    save(0, everything)
    assert save(1, everything)[square].min() > 200
    partly = everything.copy()
    partly[hole] = False
    assert save(2, partly)[hole].min() > 200
    assert save(3, ~everything)[square].min() > 200


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ("", "there are no points"),
        ("128,5", "the point 128,5 is outside the frame of 128 x 96 pixels"),
        ("-1,5", "the point -1,5 is outside"),
        ("5", "points must be whole numbers"),
        ("5,x", "points must be whole numbers"),
        ("1,2;3", "points must be whole numbers"),
        (";".join(["1,1"] * 2001), "2001 points are too many"),
    ],
)
def test_bad_points_give_one_clear_error(
    site: Running, tracked: str, points: str, message: str
) -> None:
    answer = site.client.get(f"{tracked}/tracks/values", params={"points": points})
    assert answer.status_code == 422
    assert message in answer.json()["error"]


def test_a_job_has_either_tracks_or_pairs(site: Running, tracked: str) -> None:
    for address in ("pairs/0/gma/flow", "all.zip"):
        answer = site.client.get(f"{tracked}/{address}")
        assert (answer.status_code, "has no pairs" in answer.text) == (404, True)
    assert site.client.post(f"{tracked}/seek", json={"pair": 1}).status_code == 404
    flow = site.start(iters="1")
    assert "no tracks" in site.client.get(f"{flow}/tracks/values").json()["error"]
    assert "no tracks" in site.client.get(f"{flow}/frames/0/still").json()["error"]
    assert site.client.get(f"{flow}/frames/0/frame").status_code == 200
    for address in ("frames/9/frame", "frames/0/stil", "tracks/tracks.np"):
        assert site.client.get(f"{tracked}/{address}").status_code == 404


def test_bad_requests_give_one_clear_error(site: Running, pan: bytes, tmp_path: Path) -> None:
    one = write_clip(tmp_path / "one.mp4", [texture(*SIZE)])
    for content, fields, message in (
        (pan, {"reference": "6"}, "there is no frame 6; frames are numbered 0 to 5"),
        (b"not read", {"reference": "-1"}, "there is no frame -1"),
        (pan, {"reference": "0", "model": "gma", "compare_model": "small"}, "one model"),
        (one, {"reference": "0"}, "fewer than two frames"),
    ):
        answer = site.client.post("/api/jobs", files={"clip": ("x.mp4", content)}, data=fields)
        assert 400 <= answer.status_code < 500
        assert message in answer.json()["error"]
    first, second = (
        (255 * image[0].permute(1, 2, 0)).byte().numpy() for image in random_images(1, *SIZE)
    )
    files = {}
    for name, image in (("image1", first), ("image2", second[:48])):
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "PNG")
        files[name] = (name, buffer.getvalue())
    answer = site.client.post("/api/jobs", files=files, data={"reference": "0"})
    assert "differ in size" in answer.json()["error"]


def test_frames_may_be_images(site: Running) -> None:
    images = pan_frames(PAN_SIZE)
    parts = [("frames", (f"{n}.png", png(image))) for n, image in enumerate(images)]
    fields = {"reference": "1", "model": "small", "iters": "1"}
    answer = site.client.post("/api/jobs", files=parts, data=fields)
    assert answer.status_code == 202, answer.text
    status = site.wait(answer.json()["url"])
    assert (status["kind"], status["frames"], status["fps"]) == ("clip", 6, 25.0)
    shown = picture(site, f"{answer.json()['url']}/frames/3/frame")
    np.testing.assert_array_equal(shown, images[3])
    for wrong, message in (
        ([*parts[:2], ("frames", ("x.png", png(images[2][:32])))], "frame 1 and frame 3 differ"),
        (parts[:1], "fewer than two frames"),
        ([*parts[:2], ("frames", ("x.png", b"no image"))], "frame 3"),
        ([*parts, ("clip", ("x.mp4", b"nothing"))], "give image1 and image2, or clip, or frames"),
    ):
        answer = site.client.post("/api/jobs", files=wrong, data=fields)
        assert answer.status_code in (400, 422)
        assert message in answer.json()["error"]


def test_each_image_is_decoded_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    decode = Mock(wraps=decode_image)
    monkeypatch.setattr("gmaflow.serving.uploads.decode_image", decode)
    uploads = [UploadFile(io.BytesIO(png(image))) for image in pan_frames(PAN_SIZE)]
    folder, deadline = ResultFolder(tmp_path / "0"), Deadline(60.0)
    footage = read_images(uploads, folder, Limits(clip_frames=3), deadline)
    names = [call.kwargs["name"] for call in decode.call_args_list]
    assert names == ["frame 1", "frame 2", "frame 3", "frame 4"]
    assert (footage.frames, footage.notes) == (3, ("only the first 3 frames are used",))


def test_the_example_is_tracked_smaller(site: Running) -> None:
    fields = {"example": "1", "reference": "0", "model": "small", "iters": "1"}
    status = site.wait(site.client.post("/api/jobs", data=fields).json()["url"])
    assert (status["state"], status["truth"]) == ("done", False)
    assert status["width"] * status["height"] <= site.queue.limits.track_pixels


def test_tiles_are_noted(weight_files: tuple[str, str], tmp_path: Path) -> None:
    memory = least_memory("raft-small", 192, 384) + TILING_BYTES * 2 * 192 * 640
    options = DeviceOptions(device="cpu", max_memory=str(memory))
    clip = write_clip(tmp_path / "wide.mp4", [np.tile(texture(192, 320), (1, 2, 1))] * 2)
    with running(ModelRegistry(weight_files, options=options), work_pixels=10**6) as site:
        fields = {"reference": "0", "model": "small", "iters": "1"}
        answer = site.client.post("/api/jobs", files={"clip": ("x.mp4", clip)}, data=fields)
        status = site.wait(answer.json()["url"])
        assert status["state"] == "done", status["error"]
        assert "computed in tiles" in status["notes"][-1]


def test_a_cut_ends_the_tracks(site: Running, tmp_path: Path) -> None:
    scene, other = texture(*SIZE), 255 - texture(*SIZE, seed=5)
    content = write_clip(tmp_path / "cut.mp4", [scene, np.roll(scene, 1, 1), other, other])
    fields = {"reference": "0", "model": "small", "iters": "1"}
    answer = site.client.post("/api/jobs", files={"clip": ("x.mp4", content)}, data=fields)
    url = answer.json()["url"]
    status = site.wait(url)
    assert status["state"] == "done"
    assert any("scene cut at frame 3" in note for note in status["notes"])
    answer = site.client.get(f"{url}/tracks/values", params={"points": "5,5"})
    values = np.frombuffer(answer.content, "<f4").reshape(4, 6)
    assert np.isfinite(values[:2, :2]).all()
    assert np.isnan(values[2:, :2]).all()
    beyond = site.client.get(f"{url}/frames/3/still")
    assert (beyond.status_code, "unknown" in beyond.text) == (404, True)
    assert site.client.get(f"{url}/tracks/trails.mp4", params={"points": "5,5"}).status_code == 200


def test_large_frames_are_tracked_smaller_and_files_are_in_their_pixels(
    models: ModelRegistry, pan: bytes, tmp_path: Path
) -> None:
    with running(models, work_pixels=PAN_SIZE[0] * PAN_SIZE[1]) as site:
        fields = {"reference": "0", "model": "small", "iters": "1"}
        answer = site.client.post("/api/jobs", files={"clip": ("x.mp4", pan)}, data=fields)
        url = answer.json()["url"]
        status = site.wait(url)
        assert (status["width"], status["height"]) == (PAN_SIZE[1] // 2, PAN_SIZE[0] // 2)
        assert "files of tracks are in pixels of the original" in status["notes"][0]
        answer = site.client.get(f"{url}/tracks/tracks.npz", params={"points": "10,20"})
        (tmp_path / "t.npz").write_bytes(answer.content)
        assert read_tracks(tmp_path / "t.npz").points.tolist() == [[20.5, 40.5]]


def test_tracking_stops_when_it_is_cancelled_or_takes_too_long(
    models: ModelRegistry, pan: bytes
) -> None:
    with running(models) as site:
        fields = {"reference": "0", "model": "gma", "iters": "32"}
        files = {"clip": ("x.mp4", pan)}
        url = site.client.post("/api/jobs", files=files, data=fields).json()["url"]
        site.until(url, lambda job: len(job["tracked_frames"]) >= 1)
        assert site.client.get(f"{url}/tracks/tracks.npz").status_code == 409
        assert site.client.get(f"{url}/frames/5/still").status_code == 409
        site.client.delete(url)
        status = site.wait(url)
        assert status["state"] == "cancelled"
        assert site.queue.find(status["id"]).tracking is None
        answer = site.client.get(f"{url}/frames/5/still")
        assert "frame 5 is not tracked; the job is cancelled" in answer.json()["error"]
        # What it has is kept.
        assert site.client.get(f"{url}/tracks/tracks.csv").status_code == 200
        url = site.client.post("/api/jobs", files=files, data=fields).json()["url"]
        object.__setattr__(site.queue.limits, "job_seconds", 0.05)  # after the upload
        status = site.wait(url)
        assert status["state"] == "failed"
        assert "a frame took longer than 0.05 s" in status["error"]


def test_frames_before_the_reference_are_stored_once(
    models: ModelRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    queue = JobQueue(models, Limits())
    images, folder = pan_frames(PAN_SIZE), queue.new_folder()
    for number, image in enumerate(images):
        folder.save(frame_name(number), image)
    size = Size(PAN_SIZE[1], PAN_SIZE[0])
    job = Job("a", Footage("clip", folder, 6, size, size), JobRequest(("small",), 1, reference=3))
    queue._jobs[job.id] = job
    for _ in range(6):
        queue._run_next_task(job)
        assert job.error is None
        frames = [p for p in tmp_path.rglob("*.npy") if not p.name.startswith("tracks-")]
        assert sorted(p.name for p in frames) == [f"frame-{n:04d}.npy" for n in range(6)]
    assert (job.state, job.tracked_frames()) == ("done", list(range(6)))
    queue._folder.cleanup()


def test_few_jobs_track_at_a_time_and_others_pass(models: ModelRegistry, tmp_path: Path) -> None:
    footage = Footage("clip", ResultFolder(tmp_path / "0"), 3, Size(8, 8), Size(8, 8))
    track, flow = JobRequest(("m",), 1, reference=1), JobRequest(("m",), 1)
    begun = [Job("a", footage, track, tracking=iter(())) for _ in range(TRACKING_JOBS)]
    new, other = Job("b", footage, track), Job("b", footage, flow)
    assert [task.number for task in new.todo] == [1, 0, 2]
    queue = JobQueue(models, Limits())
    queue._jobs = {job.id: job for job in (*begun, new, other)}
    assert [queue._may_run(job) for job in (*begun, new, other)] == [
        *[True] * TRACKING_JOBS,
        False,
        True,
    ]
    begun[0].tracking = None  # it is over
    assert queue._may_run(new)
    queue._folder.cleanup()
