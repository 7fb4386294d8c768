"""Tracks on rendered clips whose tracks are known, against plain chains of flow.

PYTHONPATH=src python benchmarks/tracks.py --textures FOLDER --output scores.json
PYTHONPATH=src python benchmarks/tracks.py --speed 480x854 --device cuda
PYTHONPATH=src python benchmarks/tracks.py --preset film --seed 1 --picture 10 --output tracks.png
PYTHONPATH=src python benchmarks/tracks.py --turning bear.mp4 --object 40,100,240,222

Scores are those of TAP-Vid, over a grid of points of each clip's first frame. With the same weights
and frames, `chain` follows the flow from frame to frame, and `direct` estimates the flow from the
first frame to every other one. Both decide by the way back whether a point is visible, with the
tolerance 1 of `FlowEstimator.bidirectional`, or with 2 or 4; or without it, which takes half of the
flows: then a point is visible wherever it is inside the frame. A run continues where it stopped.

`--limits` adds what better choices could reach: our positions with the best flags, our flags with
true positions, and the best of all chains over gaps of 1, 2, 4, 8 and 16 and from the reference.
Choices that know the truth are not methods; they tell which part of the loss is which.

`--turning` takes a real shot, at half its size, by a camera that turns but stays where it is. Then
everything that rests moves by a homography, which SIFT features give independently of flow (needs
OpenCV). `--object` is a box in the first frame, in pixels of that size, with what does not rest.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from gmaflow import FlowEstimator
from gmaflow.evaluation.track_metrics import THRESHOLDS, TrackScores, score_tracks
from gmaflow.geometry import outside_frame, sample
from gmaflow.inference import Frame, grid_points
from gmaflow.inference.camera import project
from gmaflow.inference.engine import BatchEstimate
from gmaflow.inference.tracking import Points, Tracker
from gmaflow.inference.visibility import ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE
from gmaflow.io import VideoReader, write_image
from gmaflow.io.images import read_size
from gmaflow.scenes import PRESETS, SceneClip, SceneRenderer, TextureBank
from gmaflow.viz import draw_trails, panel, position_colors

TOLERANCES = {"1": 1.0, "2": 2.0, "4": 4.0, "one flow": math.inf}
SPACING = 8
GAPS = (1, 2, 4, 8, 16)
WITHOUT = "ours without steps"
WAYS = ("chain, lost once", "chain, returning", "direct")
METHODS = {"ours", WITHOUT, *(f"{way}, {kind}" for way in WAYS for kind in TOLERANCES)}


class CachedEstimator:
    """An estimator that estimates no pair twice; it counts only as itself for a tracker."""

    def __init__(self, estimator: FlowEstimator) -> None:
        self._estimator = estimator
        self._matches: dict[tuple[int, int], BatchEstimate] = {}
        self.device = estimator.device

    def match(
        self, first: Frame, second: Frame, *, both_ways: bool = True, watch: None = None
    ) -> BatchEstimate:
        """Estimate both ways, or remember."""
        key = id(first), id(second)
        if key not in self._matches:
            self._matches[key] = self._estimator.match(first, second)
        match = self._matches[key]
        return match if both_ways else match._replace(flow=match.flow[:1])


def start_points(points: np.ndarray, device: torch.device) -> Points:
    """Points in the first frame."""
    position = torch.from_numpy(points).to(device)
    visible = torch.ones(len(points), dtype=torch.bool, device=device)
    certain = torch.ones(len(points), device=device)
    return Points(position, visible, certain)


def follow(points: Points, both: torch.Tensor, tolerance: float) -> Points:
    """Move points along a flow; they are visible where the way back agrees."""
    moved = sample(both[:1], points.position[None])[0].T
    target = points.position + moved
    back = sample(both[1:], target[None])[0].T
    lengths = moved.square().sum(dim=1) + back.square().sum(dim=1)
    limit = tolerance * (RELATIVE_TOLERANCE * lengths + ABSOLUTE_TOLERANCE)
    height, width = both.shape[-2:]
    x, y = (target + 0.5).unbind(dim=1)
    inside = ~outside_frame(x, y, height=height, width=width)
    inside &= (moved + back).square().sum(dim=1) <= limit
    return points._replace(position=target, visible=points.visible & inside)


@torch.inference_mode()
def chain(
    estimator: CachedEstimator, frames: list[Frame], points: Points, tolerance: float, returns: bool
) -> list[Points]:
    """Follow the flow from frame to frame; a lost point may return, or is lost for ever."""
    track = [points]
    for first, second in pairwise(frames):
        flow = estimator.match(first, second).flow.float()
        last = track[-1]
        if returns:
            last = last._replace(visible=torch.ones_like(last.visible))
        track.append(follow(last, flow, tolerance))
    return track


@torch.inference_mode()
def direct(
    estimator: CachedEstimator, frames: list[Frame], points: Points, tolerance: float
) -> list[Points]:
    """Follow the flow from the first frame to each other one."""
    flows = (estimator.match(frames[0], frame).flow.float() for frame in frames[1:])
    links = (follow(points, flow, tolerance) for flow in flows)
    return [points, *links]


@torch.inference_mode()
def best_chains(
    estimator: CachedEstimator, frames: list[Frame], points: Points, truth: np.ndarray
) -> list[Points]:
    """Reach every frame over all gaps, and take for each point what is nearest to the truth."""
    track = [points]
    true = torch.from_numpy(truth).to(points.position)
    for t in range(1, len(frames)):
        sources = sorted({0} | {t - gap for gap in GAPS if gap <= t})
        flows = [estimator.match(frames[s], frames[t]).flow.float() for s in sources]
        links = [follow(track[s], flow, 1.0) for s, flow in zip(sources, flows, strict=True)]
        positions = torch.stack([link.position for link in links])
        nearest = (positions - true[t]).norm(dim=2).argmin(dim=0)
        position = positions[nearest, torch.arange(len(nearest))]
        track.append(points._replace(position=position))
    return track


def limits(
    clip: SceneClip, points: np.ndarray, ours: list[Points], best: list[Points]
) -> dict[str, TrackScores]:
    """Score choices that know the truth."""
    truth, visible = truth_of(clip, points)
    positions, flags = as_arrays(ours)
    chosen, _ = as_arrays(best)
    return {
        "limit: our positions, true flags": score_tracks(positions, visible, truth, visible),
        "limit: our positions, best flags": best_flags(positions, truth, visible),
        "limit: true positions, our flags": score_tracks(truth, flags, truth, visible),
        "limit: best chain, our flags": score_tracks(chosen, flags, truth, visible),
        "limit: best chain, true flags": score_tracks(chosen, visible, truth, visible),
        "limit: best chain, best flags": best_flags(chosen, truth, visible),
    }


def best_flags(positions: np.ndarray, truth: np.ndarray, visible: np.ndarray) -> TrackScores:
    """Say that a point is visible only where it is, and its position is right enough."""
    away = np.linalg.norm(positions - truth, axis=2)
    tried = [score_tracks(positions, visible & (away < d), truth, visible) for d in THRESHOLDS]
    return max(tried, key=lambda scores: scores.average_jaccard)


def truth_of(clip: SceneClip, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the true positions `[n, k, 2]`, and where they are visible."""
    x, y = points.astype(int).T
    truth = points + clip.tracks[:, :, y, x].permute(0, 2, 1).cpu().numpy()
    return truth, clip.visible[:, y, x].cpu().numpy()


def as_arrays(track: list[Points]) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and flags of all frames."""
    positions, visible = (
        torch.stack([getattr(p, name) for p in track]).cpu().numpy()
        for name in ("position", "visible")
    )
    return positions, visible


def score(clip: SceneClip, points: np.ndarray, track: list[Points]) -> TrackScores:
    """Compare with the truth of the clip."""
    return score_tracks(*as_arrays(track), *truth_of(clip, points))


def measure(estimator: FlowEstimator, clip: SceneClip, *, limited: bool) -> dict[str, object]:
    """Score all methods on a clip."""
    images = (clip.final * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    frames = [estimator.encode(image) for image in images]
    height, width = images.shape[1:3]
    points = grid_points(height, width, SPACING)
    start = start_points(points, estimator.device)
    cached = CachedEstimator(estimator)
    tracker = Tracker(cached, frames[0], points)  # type: ignore[arg-type]
    ours = [start, *(tracker.advance(frame) for frame in frames[1:])]
    gaps = Tracker(cached, frames[0], points, steps=0.0)  # type: ignore[arg-type]
    without = [start, *(gaps.advance(frame) for frame in frames[1:])]
    scores = {"ours": score(clip, points, ours), WITHOUT: score(clip, points, without)}
    for kind, tolerance in TOLERANCES.items():
        for returns in (False, True):
            name = f"chain, {'returning' if returns else 'lost once'}, {kind}"
            track = chain(cached, frames, start, tolerance, returns)
            scores[name] = score(clip, points, track)
        name = f"direct, {kind}"
        scores[name] = score(clip, points, direct(cached, frames, start, tolerance))
    if limited:
        best = best_chains(cached, frames, start, truth_of(clip, points)[0])
        scores |= limits(clip, points, ours, best)
    return {
        "flows": tracker.flows / (len(frames) - 1),
        "visible": float(clip.visible.float().mean()),
        "scores": {name: asdict(one) for name, one in scores.items()},
    }


def is_complete(measured: dict[str, object], *, limited: bool) -> bool:
    """Whether a clip was scored by all methods; a file of an earlier version lacks some."""
    scores = measured["scores"]
    assert isinstance(scores, dict)
    return scores.keys() >= METHODS and (not limited or any("limit" in name for name in scores))


def draw(estimator: FlowEstimator, clip: SceneClip, frame: int) -> np.ndarray:
    """Draw the tracks of all methods, and the true ones, up to a frame."""
    images = (clip.final * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    frames = [estimator.encode(image) for image in images[: frame + 1]]
    height, width = images.shape[1:3]
    points = grid_points(height, width, SPACING + SPACING // 2)
    start = start_points(points, estimator.device)
    cached = CachedEstimator(estimator)
    tracker = Tracker(cached, frames[0], points)  # type: ignore[arg-type]
    methods = {
        "chained from frame to frame": chain(cached, frames, start, 1.0, returns=False),
        "direct from the first frame": direct(cached, frames, start, 1.0),
        "gmaflow track": [start, *(tracker.advance(one) for one in frames[1:])],
    }
    shown = replace(clip, **_cut(clip, frame + 1))
    drawn = {"true tracks": truth_of(shown, points)}
    for name, track in methods.items():
        scores = score(shown, points, track)
        caption = f"{name}, average Jaccard {scores.average_jaccard:.2f}"
        drawn[caption] = as_arrays(track)
    colors = position_colors(points, height=height, width=width)
    large = np.repeat(np.repeat(images[frame], 2, axis=0), 2, axis=1)
    pictures = [
        draw_trails(large, (2 * places[-9:] + 0.5).astype(np.float32), seen[-9:], colors)
        for places, seen in drawn.values()
    ]
    return panel(pictures, list(drawn), columns=2)


def _cut(clip: SceneClip, count: int) -> dict[str, torch.Tensor]:
    return {"tracks": clip.tracks[:count], "visible": clip.visible[:count]}


def report(done: dict[str, dict[str, object]]) -> None:
    """Print the mean scores of what all clips were scored by."""
    clips = list(done.values())
    names = sorted(set.intersection(*(set(clip["scores"]) for clip in clips)))  # type: ignore[call-overload]
    means = {
        name: TrackScores.mean([TrackScores(**clip["scores"][name]) for clip in clips])  # type: ignore[index]
        for name in names
    }
    print(f"{len(clips)} clips, {np.mean([clip['visible'] for clip in clips]):.0%} visible")  # type: ignore[misc]
    for name in sorted(means, key=lambda name: means[name].average_jaccard):
        one = means[name]
        gain = means["ours"].average_jaccard / one.average_jaccard - 1
        print(
            f"{name:<33} average Jaccard {one.average_jaccard:.3f}, positions "
            f"{one.position_accuracy:.3f}, occlusion {one.occlusion_accuracy:.3f}; ours {gain:+.1%}"
        )
    flows = np.mean([clip["flows"] for clip in clips])  # type: ignore[misc]
    most = max(clip["flows"] for clip in clips)  # type: ignore[type-var]
    print(
        f"flows a frame: ours {flows:.2f}, at most {most:.2f}; chain, direct and ours without "
        "steps 2, one each way; with one flow 1"
    )


def find_homography(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Find the homography between two images from SIFT features, without any flow."""
    import cv2

    sift = cv2.SIFT_create()
    (keys1, values1), (keys2, values2) = (
        sift.detectAndCompute(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), None)
        for image in (first, second)
    )
    near = cv2.BFMatcher().knnMatch(values1, values2, k=2)
    good = [one for one, other in near if one.distance < 0.8 * other.distance]
    places1 = np.array([keys1[match.queryIdx].pt for match in good])
    places2 = np.array([keys2[match.trainIdx].pt for match in good])
    homography, inliers = cv2.findHomography(places1, places2, cv2.USAC_MAGSAC, 1.5)
    inliers = inliers[:, 0] > 0
    away = np.linalg.norm(project(homography, places1[inliers]) - places2[inliers], axis=1)
    print(
        f"{inliers.sum()} of {len(inliers)} features, {np.median(away):.2f} px from the homography"
    )
    return homography


def measure_turning(estimator: FlowEstimator, images: list[np.ndarray], object_box: str) -> None:
    """Compare tracks of a backdrop, from a camera that only turns, with homographies."""
    height, width = images[0].shape[:2]
    points = grid_points(height, width, SPACING)
    x0, y0, x1, y1 = map(float, object_box.split(","))
    x, y = points.T
    points = points[(x < x0) | (x > x1) | (y < y0) | (y > y1)]
    homographies = [np.eye(3), *(find_homography(images[0], image) for image in images[1:])]
    truth = np.stack([project(one, points.astype(np.float64)) for one in homographies])[1:]
    inside = ((truth > 0) & (truth < (width - 1, height - 1))).all(axis=2)
    frames = [estimator.encode(image) for image in images]
    start, cached = start_points(points, estimator.device), CachedEstimator(estimator)
    tracker = Tracker(cached, frames[0], points)  # type: ignore[arg-type]
    methods = {
        "chain": chain(cached, frames, start, 4.0, returns=False),
        "direct": direct(cached, frames, start, 4.0),
        "ours": [start, *(tracker.advance(frame) for frame in frames[1:])],
    }
    print(f"{len(points)} points, {inside.mean():.0%} of them inside; {tracker.flows} flows")
    for name, track in methods.items():
        positions, seen = as_arrays(track)
        away = np.linalg.norm(positions[1:] - truth, axis=2)
        both = away[seen[1:] & inside]
        shares = ", ".join(f"{(both < limit).mean():.1%} within {limit} px" for limit in (1, 2, 4))
        print(
            f"{name}: {seen[1:][inside].mean():.1%} visible, of these {shares}, median "
            f"{np.median(both):.2f} px; position accuracy of all inside "
            f"{np.mean([(away[inside] < limit).mean() for limit in THRESHOLDS]):.3f}"
        )


def measure_speed(estimator: FlowEstimator, size: tuple[int, int], frames: int) -> None:
    """Print frames per second and CPU time, for plain chains, a grid of points and every pixel."""
    rng = np.random.default_rng(0)
    large = np.kron(rng.integers(0, 255, (80, 130, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    shot = [large[i : i + size[0], i : i + size[1]] for i in range(frames)]
    grid = grid_points(*size, 16)
    start = start_points(grid, estimator.device)

    def chained(images: list[np.ndarray]) -> None:
        chain(CachedEstimator(estimator), [estimator.encode(i) for i in images], start, 1.0, False)

    ways: dict[str, Callable[[list[np.ndarray]], object]] = {
        "chained from frame to frame, both ways": chained,
        "tracks of a grid": lambda images: list(estimator.track(images, grid)),
        "tracks of every pixel": lambda images: list(estimator.track(images)),
    }
    for name, follow_points in ways.items():
        # On a GPU kernels are compiled and graphs recorded first.
        follow_points(shot if estimator.device.type == "cuda" else shot[:2])
        begin, used = time.perf_counter(), time.process_time()
        follow_points(shot)
        seconds, used = time.perf_counter() - begin, time.process_time() - used
        print(
            f"{name}, {size[0]}x{size[1]}, {frames} frames on {estimator.device}: "
            f"{(frames - 1) / seconds:.3f} frames/s, {used / (frames - 1):.1f} s of CPU a frame"
        )


def main() -> None:
    """Measure scores, or speed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="mix")
    parser.add_argument("--size", default="160x224", metavar="HxW")
    parser.add_argument("--frames", type=int, default=24)
    parser.add_argument("--clips", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, metavar="CLIP", help="number of the first")
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("--textures", help="folder of images, of which the held-out ones are used")
    parser.add_argument("--weights")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--views", type=int, default=1, help="mirrored views of each pair")
    parser.add_argument("--output", type=Path, help="JSON file with the scores of every clip")
    parser.add_argument("--picture", type=int, metavar="CLIP", help="draw the tracks of a clip")
    parser.add_argument("--limits", action="store_true", help="add what better choices could reach")
    parser.add_argument("--turning", metavar="VIDEO", help="a real shot; see above")
    parser.add_argument("--every", type=int, default=3, help="of its frames")
    parser.add_argument("--object", metavar="X0,Y0,X1,Y1", default="0,0,-1,-1", help="left out")
    parser.add_argument("--speed", metavar="HxW", help="measure the speed instead")
    options = parser.parse_args()

    estimator = FlowEstimator(options.weights, device=options.device, views=options.views)
    if options.speed:
        measure_speed(estimator, read_size(options.speed), options.frames)
        return
    if options.turning:
        reader = VideoReader(options.turning, every=options.every, scale=0.5)
        shot = [frame.image for frame in reader][: options.frames]
        measure_turning(estimator, shot, options.object)
        return
    bank = TextureBank.procedural()
    if options.textures:
        bank = TextureBank.load(options.textures, split="held-out")
    size = read_size(options.size)
    renderer = SceneRenderer(options.preset, size, options.seed, bank, estimator.device)
    if options.picture is not None:
        clip = renderer.render_clip(options.picture, options.frames)
        write_image(options.output, draw(estimator, clip, options.frames - 1))
        return
    done: dict[str, dict[str, object]] = {}
    if options.output and options.output.exists():
        done = json.loads(options.output.read_text("utf-8"))
    numbers = range(options.first, options.first + options.clips)
    for number in numbers:
        if not (str(number) in done and is_complete(done[str(number)], limited=options.limits)):
            clip = renderer.render_clip(number, options.frames)
            done[str(number)] = measure(estimator, clip, limited=options.limits)
            if options.output:
                options.output.write_text(json.dumps(done, indent=1), "utf-8")
    report({name: clip for name, clip in done.items() if int(name) in numbers})


if __name__ == "__main__":
    main()
