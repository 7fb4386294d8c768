"""Views of tracks: positions of chosen points, pictures with the camera held still, and files.

A job that tracks follows every pixel of its reference frame, so that points can be chosen later.
"""

from collections.abc import Callable
from fractions import Fraction
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from jaxtyping import Int, UInt8

from gmaflow import viz
from gmaflow.errors import FlowError
from gmaflow.inference import TrackedFrame, Tracks, default_spacing, fit_camera, grid_points
from gmaflow.inference.camera import project
from gmaflow.io import VideoWriter
from gmaflow.serving.http_errors import ApiError
from gmaflow.serving.jobs import Job, frame_name, track_name

Picture = UInt8[np.ndarray, "h w 3"]
PixelCoordinates = Int[np.ndarray, "k 2"]

MOST_POINTS = 2000
"""Points of one request."""
TRAIL = 12
"""Frames that a trail of the video goes back."""
NEAREST = 2.0
"""A tracked pixel within this many pixels counts as being at a position."""


def save_tracks(job: Job, tracked: TrackedFrame) -> None:
    """Save x, y, visibility and confidence of every pixel in a frame, and what the camera did.

    The camera's motion is that from the reference to the frame, so it does not drift. What has
    moved by itself until the frame before counts less, so that the camera does not change over to
    an object that comes to cover more than the backdrop. A pixel that is hidden, or in a frame that
    shows too little for the camera's motion, counts as in the frame before.
    """
    folder, name = job.footage.folder, track_name(tracked.number)
    values = [tracked.positions, tracked.visible[..., None], tracked.confidence[..., None]]
    folder.save(name, np.concatenate(values, axis=2, dtype=np.float32))
    homography = np.full((3, 3), np.nan)
    moving = np.zeros(tracked.visible.shape, np.uint8)
    if tracked.number == tracked.reference:
        homography = np.eye(3)
    elif not tracked.cut:
        height, width = tracked.visible.shape
        flow = tracked.positions - grid_points(height, width, 1).reshape(height, width, 2)
        before = tracked.number + (1 if tracked.number < tracked.reference else -1)
        moving = folder.load(f"{track_name(before)}-moving")
        rest = 1 - moving / np.float32(255)
        try:
            camera = fit_camera(flow, tracked.confidence * tracked.visible * rest)
        except FlowError:  # too little is still visible
            pass
        else:
            homography = camera.homography
            now = np.rint(255 * camera.moving).astype(np.uint8)
            moving = np.where(tracked.visible, now, moving)
    folder.save(f"{name}-camera", homography)
    folder.save(f"{name}-moving", moving)


def parse_points(job: Job, text: str | None) -> PixelCoordinates:
    """Read points written as `x,y;x,y`, in pixels of the reference; by default a grid.

    Raises:
        ApiError: They have another format, are too many, or are outside the frame.
    """
    size = job.footage.size
    if text is None:
        spacing = default_spacing(size.height, size.width)
        while ceil(size.height / spacing) * ceil(size.width / spacing) > MOST_POINTS:
            spacing += 1
        return grid_points(size.height, size.width, spacing).astype(int)
    pieces = [piece for piece in text.split(";") if piece]
    if not pieces:
        raise ApiError(422, "there are no points; give x,y of each, such as points=12,40;30,8")
    if len(pieces) > MOST_POINTS:
        raise ApiError(422, f"{len(pieces)} points are too many; give at most {MOST_POINTS}")
    try:
        points = np.array([[int(part) for part in piece.split(",")] for piece in pieces])
        x, y = points.T
    except ValueError:
        raise ApiError(
            422, "points must be whole numbers x,y separated by ;, such as points=12,40;30,8"
        ) from None
    inside = (x >= 0) & (x < size.width) & (y >= 0) & (y < size.height)
    if not inside.all():
        x, y = points[~inside][0]
        raise ApiError(422, f"the point {x},{y} is outside the frame of {size} pixels")
    return points


def read_tracks(job: Job, points: PixelCoordinates) -> Tracks:
    """Return the tracks of some points; NaN in frames that are not tracked yet."""
    assert job.request.reference is not None
    values = np.full((job.footage.frames, len(points), 4), np.nan, np.float32)
    values[..., 2:] = 0
    x, y = points.T
    for frame in job.tracked_frames():
        values[frame] = job.footage.folder.load_pixels(track_name(frame), x, y)
    return Tracks(
        points.astype(np.float32),
        job.request.reference,
        values[..., :2],
        values[..., 2] > 0,
        values[..., 3],
    )


def find_origin(job: Job, frame: int, x: float, y: float) -> tuple[int, int]:
    """Return the pixel of the reference frame that is at this place of another frame.

    Raises:
        ApiError: None is visible there.
    """
    values = job.footage.folder.load(track_name(frame))
    distance = np.hypot(values[..., 0] - x, values[..., 1] - y)
    distance[(values[..., 2] == 0) | ~np.isfinite(distance)] = np.inf
    row, column = np.unravel_index(np.argmin(distance), distance.shape)
    if distance[row, column] > NEAREST:
        raise ApiError(
            404,
            f"what is at {x:g},{y:g} of this frame was not found in the reference frame; track "
            "from this frame",
        )
    return int(column), int(row)


def pack_tracks(job: Job, points: PixelCoordinates) -> bytes:
    """Return x, y, visible, confidence, and x, y with the camera held still, as float32.

    frames x points x 6. The last two are where a point is in the stable picture of the frame.
    """
    tracks = read_tracks(job, points)
    still = np.full_like(tracks.positions, np.nan)
    for frame in job.tracked_frames():
        homography = job.footage.folder.load(f"{track_name(frame)}-camera")
        if np.isfinite(homography).all():
            still[frame] = project(
                np.linalg.inv(homography), tracks.positions[frame].astype(np.float64)
            )
    flags = [tracks.visible[..., None], tracks.confidence[..., None]]
    values = np.concatenate([tracks.positions, *flags, still], axis=2)
    return values.astype("<f4").tobytes()


def draw_still(job: Job, frame: int) -> Picture:
    """Draw a frame as if the camera had stayed where it was in the reference frame."""
    picture = job.footage.folder.load(frame_name(frame))
    homography = job.footage.folder.load(f"{track_name(frame)}-camera")
    if not np.isfinite(homography).all():
        raise ApiError(404, f"the camera's motion to frame {frame} is unknown")
    height, width = picture.shape[:2]
    grid = grid_points(height, width, 1)
    motion = project(homography, grid.astype(np.float64)) - grid
    return viz.warp_back(picture, motion.reshape(height, width, 2).astype(np.float32))


def draw_moving(job: Job, frame: int) -> Picture:
    """Light up what of the reference frame has moved by itself until this frame."""
    assert job.request.reference is not None
    moving = job.footage.folder.load(f"{track_name(frame)}-moving") / np.float32(255)
    return viz.moving_overlay(job.footage.folder.load(frame_name(job.request.reference)), moving)


FRAME_PICTURES: dict[str, Callable[[Job, int], Picture]] = {
    "frame": lambda job, frame: job.footage.folder.load(frame_name(frame)),
    "still": draw_still,
    "moving": draw_moving,
}
"""Pictures of a frame by name. All but the first need its tracks."""

TRACK_FILES = {
    "tracks.npz": "application/octet-stream",
    "tracks.csv": "text/csv",
    "trails.mp4": "video/mp4",
}
"""Files of tracks, and their media types."""


def track_file(job: Job, points: PixelCoordinates, name: str) -> bytes:
    """Return a file with the tracks of some points.

    It is not kept: each choice of points makes another, and together they could fill the disk.
    """
    tracks = read_tracks(job, points)
    with TemporaryDirectory(dir=job.footage.folder.path, ignore_cleanup_errors=True) as folder:
        path = Path(folder) / name
        if path.suffix == ".mp4":
            write_trails(path, job, tracks)
        else:
            in_original_pixels(job, tracks).save(path)
        return path.read_bytes()


def in_original_pixels(job: Job, tracks: Tracks) -> Tracks:
    """Return tracks in pixels of the upload, which may have been scaled down."""
    size, original = job.footage.size, job.footage.original
    factor = np.array([original.width / size.width, original.height / size.height], np.float32)

    def enlarge(places: np.ndarray) -> np.ndarray:
        return (places + np.float32(0.5)) * factor - np.float32(0.5)

    return Tracks(
        enlarge(tracks.points),
        tracks.reference,
        enlarge(tracks.positions),
        tracks.visible,
        tracks.confidence,
    )


def write_trails(path: Path, job: Job, tracks: Tracks) -> None:
    size = job.footage.size
    colors = viz.position_colors(tracks.points, height=size.height, width=size.width)
    with VideoWriter(path, fps=Fraction(job.footage.fps).limit_denominator(1001)) as video:
        for number in range(job.footage.frames):
            part = slice(max(0, number - TRAIL), number + 1)
            frame = job.footage.folder.load(frame_name(number))
            video.write(
                viz.draw_trails(frame, tracks.positions[part], tracks.visible[part], colors)
            )
