"""The camera's motion and independently moving objects, from the flow of a pair.

The image motion of the static scene is due to the camera only. A plane, or anything seen by a
camera that only rotates and zooms, moves by a homography. Points nearer or farther than that plane
are shifted along lines through one point, the epipole: parallax.

The homography is found by RANSAC with samples of four points and refined by iteratively reweighted
least squares; the epipole likewise, from samples of two points that the homography does not
explain. It is all numpy on a grid of points, with fixed random seeds.

Legend: n points, k samples.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from gmaflow.errors import FlowError
from gmaflow.io.images import check_same_size
from gmaflow.viz.flow_colors import strips

Coordinates = Float64[np.ndarray, "n 2"]
Homogeneous = Float64[np.ndarray, "n 3"]
Matrix = Float64[np.ndarray, "3 3"]

GRID_POINTS, SUBSET_POINTS = 4096, 512
"""About how many points of the frame are used, and how many to rank the samples."""
MIN_POINTS = 16
SAMPLES, REFINED_SAMPLES = 300, 4
"""How many samples are tried, and how many of the best are refined."""
REWEIGHTING_ROUNDS = 12
"""Iterations of reweighted least squares."""
MIN_NOISE, MAX_NOISE = 0.05, 1.0
"""Pixels: the smallest and largest noise of the flow that is assumed."""
TOLERANCE = 2.5
"""Points farther from the camera's motion than this many times the noise are outliers."""
STRONG_PARALLAX = 0.1
"""Share of all points that the epipole must explain in addition to the homography."""
OUTLIER_SHARE = 0.4
"""Share of the homography's outliers that the epipole must explain."""
SPREAD, EXTENT = 1.5, 0.6
"""Parallax must vary with depth by at least this factor, and extend over this share of the frame's
height or width. Otherwise it could be a single moving object."""
STILL_CAMERA = 0.5
"""Pixels: if the camera moves the image less, parallax is not looked for."""
_CONVERGED = 1e-6
"""Change of a homography, in units of half a frame, below which it has converged."""
MOVING_RESIDUAL = 2.0
"""Pixels: residual motion at which a pixel is as likely to move independently as not."""
OUTLIER_DISTANCE = 1.0
"""Pixels: points farther from a homography may be parallax."""


@dataclass(frozen=True, eq=False)
class CameraMotion:
    """The image motion that the camera causes between two frames, and the residual flow."""

    flow: Float32[np.ndarray, "h w 2"]
    """The flow it was fitted to."""
    homography: Matrix
    """From pixels (x, y, 1) of the first frame to those of the second; its last entry is 1."""
    epipole: Float64[np.ndarray, "3"] | None
    """Where lines of parallax meet, in homogeneous pixels of the second frame; None if a homography
    explains the camera's motion."""
    noise: float
    """Standard deviation, in pixels, of the flow around the motion of the camera."""
    support: float
    """Share of the used pixels that follow the camera."""

    @cached_property
    def motion(self) -> Float32[np.ndarray, "h w 2"]:
        """The motion that the camera gives each pixel: the homography's, and parallax."""
        height, width = self.flow.shape[:2]
        motion = np.empty_like(self.flow)
        for rows in strips(height, width):
            y, x = np.mgrid[rows, :width][:, : height - rows.start].astype(np.float64)
            start = np.stack([x, y], axis=-1).reshape(-1, 2)
            projected = project(self.homography, start)
            if self.epipole is not None:
                target = start + self.flow[rows].reshape(-1, 2)
                along = _directions(self.epipole, projected)
                projected = (
                    projected + ((target - projected) * along).sum(axis=1, keepdims=True) * along
                )
            motion[rows] = (projected - start).reshape(-1, width, 2)
        return motion

    @cached_property
    def residual(self) -> Float32[np.ndarray, "h w 2"]:
        """The flow minus the motion of the camera."""
        return self.flow - self.motion

    @cached_property
    def moving(self) -> Float32[np.ndarray, "h w"]:
        """How sure it is that a pixel moves by itself: 0 not at all, 0.5 as likely as not, 1."""
        squared = np.nan_to_num(np.square(self.residual).sum(axis=2))
        limit = max(MOVING_RESIDUAL, TOLERANCE * self.noise) ** 2
        return squared / (squared + np.float32(limit))

    def __repr__(self) -> str:
        length = float(np.hypot(*np.moveaxis(self.motion, 2, 0)).mean())
        parallax = "" if self.epipole is None else ", with parallax"
        return f"<CameraMotion: mean {length:.2f} px{parallax}, {self.support:.0%} follow it>"


def fit_camera(
    flow: Float32[np.ndarray, "h w 2"], weight: Float[np.ndarray, "h w"] | None = None
) -> CameraMotion:
    """Find the motion of the camera in a flow.

    Args:
        flow: In pixels.
        weight: How much each pixel counts, such as its confidence; 0 leaves it out.

    Raises:
        FlowError: Too few pixels count.
    """
    check_same_size({"the flow": flow, "the weights": weight})
    points = _Correspondences.of(flow, weight)
    matrix, noise = _find_homography(points)
    epipole = _find_epipole(points, matrix, noise)
    distance = _camera_distance(points, matrix, epipole)
    support = points.weight_share(distance < TOLERANCE * noise)
    scale = points.scale
    matrix = scale @ matrix @ np.linalg.inv(scale)
    return CameraMotion(
        flow=flow,
        homography=matrix / matrix[2, 2],
        epipole=None if epipole is None else scale @ epipole,
        noise=noise,
        support=support,
    )


def project(homography: Matrix, points: Coordinates) -> Coordinates:
    homogeneous = points @ homography[:, :2].T + homography[:, 2]
    # Points behind the camera are treated as very near ones.
    return homogeneous[:, :2] / np.maximum(homogeneous[:, 2:], 1e-6)


@dataclass(frozen=True, eq=False)
class _Correspondences:
    """Points of a grid, where they go, and their weights; coordinates run from about -1 to 1."""

    start: Coordinates
    target: Coordinates
    weight: Float64[np.ndarray, " n"]
    """They sum to 1."""
    scale: Matrix
    """From these coordinates to pixels."""

    @classmethod
    def of(
        cls, flow: Float32[np.ndarray, "h w 2"], weight: Float[np.ndarray, "h w"] | None
    ) -> "_Correspondences":
        height, width = flow.shape[:2]
        step = max(1, round((height * width / GRID_POINTS) ** 0.5))
        rows, columns = np.mgrid[step // 2 : height : step, step // 2 : width : step]
        vectors = flow[rows, columns].astype(np.float64)
        weights = np.ones(rows.shape) if weight is None else weight[rows, columns].astype(float)
        used = np.isfinite(vectors).all(axis=2) & (weights > 0)
        if used.sum() < MIN_POINTS:
            raise FlowError(
                f"only {used.sum()} of {used.size} sampled pixels have usable flow; finding the "
                f"camera's motion takes {MIN_POINTS}: ignore fewer pixels"
            )
        start = np.stack([columns, rows], axis=2)[used].astype(np.float64)
        centre, unit = np.array([width - 1, height - 1]) / 2, max(height, width) / 2
        return cls(
            start=(start - centre) / unit,
            target=(start + vectors[used] - centre) / unit,
            weight=weights[used] / weights[used].sum(),
            scale=np.array([[unit, 0, centre[0]], [0, unit, centre[1]], [0, 0, 1]]),
        )

    @property
    def unit(self) -> float:
        """Pixels of one unit."""
        return float(self.scale[0, 0])

    def weight_share(self, mask: Bool[np.ndarray, " n"]) -> float:
        """Return the share of the weight that the points in `mask` have."""
        return float(self.weight[mask].sum())

    def subsample(self, mask: Bool[np.ndarray, " n"] | None = None) -> "_Correspondences":
        """Return some of the points, or of those in `mask`, spread over the frame."""
        indices = np.arange(len(self.weight)) if mask is None else np.flatnonzero(mask)
        chosen = indices[:: max(1, round(len(indices) / SUBSET_POINTS))]
        return replace(
            self, start=self.start[chosen], target=self.target[chosen], weight=self.weight[chosen]
        )

    def draw(
        self, rng: np.random.Generator, size: tuple[int, int], mask: Bool[np.ndarray, " n"]
    ) -> np.ndarray:
        """Draw samples of points by their weights."""
        indices = np.flatnonzero(mask)
        probability = self.weight[indices] / self.weight[indices].sum()
        return rng.choice(indices, size, p=probability)


def _distance(points: _Correspondences, matrix: Matrix) -> Float64[np.ndarray, " n"]:
    """Distance in pixels of the targets from where a homography moves the points."""
    error = points.target - project(matrix, points.start)
    return np.hypot(error[:, 0], error[:, 1]) * points.unit


def _find_homography(points: _Correspondences) -> tuple[Matrix, float]:
    """Return the homography with the best support, and the noise of its inliers in pixels."""
    rng = np.random.default_rng(0)
    samples = points.draw(rng, (SAMPLES, 4), np.ones(len(points.weight), bool))
    candidates = np.concatenate([np.eye(3)[None], _through_samples(points, samples)])
    subset = points.subsample()
    homogeneous = _homogeneous(subset.start) @ candidates.swapaxes(1, 2)
    projected = homogeneous[..., :2] / np.maximum(homogeneous[..., 2:], 1e-6)
    distance = np.linalg.norm(subset.target - projected, axis=2) * subset.unit
    best = np.argsort(_homography_cost(subset, distance), kind="stable")[:REFINED_SAMPLES]
    refined = [
        _refine_homography(
            subset, candidates[index], 2 * _noise(subset, distance[index], MAX_NOISE)
        )
        for index in best
    ]
    distance = np.stack([_distance(subset, matrix) for matrix, _ in refined])
    matrix, noise = refined[int(np.argmin(_homography_cost(subset, distance)))]
    return _refine_homography(points, matrix, 2 * noise)


def _homography_cost(
    points: _Correspondences, distance: Float64[np.ndarray, "k n"]
) -> Float64[np.ndarray, " k"]:
    """The cost at two levels of noise: one plane exactly is better than two planes roughly."""
    return _cost(points, distance, MAX_NOISE) + _cost(points, distance, MAX_NOISE / 5)


def _cost(
    points: _Correspondences, distance: Float64[np.ndarray, "k n"], noise: float
) -> Float64[np.ndarray, " k"]:
    """The mean truncated squared distance: outliers count as the limit."""
    limit = TOLERANCE * noise
    return np.square(np.minimum(distance / limit, 1)) @ points.weight


def _through_samples(points: _Correspondences, samples: np.ndarray) -> Float64[np.ndarray, "k 3 3"]:
    """Return the homography through each sample of four points."""
    x, y = np.moveaxis(points.start[samples], 2, 0)
    u, v = np.moveaxis(points.target[samples], 2, 0)
    zero, one = np.zeros_like(x), np.ones_like(x)
    for_u = np.stack([x, y, one, zero, zero, zero, -u * x, -u * y], axis=2)
    for_v = np.stack([zero, zero, zero, x, y, one, -v * x, -v * y], axis=2)
    left = np.concatenate([for_u, for_v], axis=1)
    right = np.concatenate([u, v], axis=1)[..., None]
    # Damped: collinear samples, or those with a point twice, are singular.
    normal = left.swapaxes(1, 2) @ left + 1e-10 * np.eye(8)
    entries = _solve(normal, left.swapaxes(1, 2) @ right)[..., 0]
    return np.concatenate([entries, np.ones((len(entries), 1))], axis=1).reshape(-1, 3, 3)


def _refine_homography(
    points: _Correspondences, matrix: Matrix, noise: float
) -> tuple[Matrix, float]:
    """Improve a homography by Gauss-Newton steps with weights that fall with the distance."""
    for _ in range(REWEIGHTING_ROUNDS):
        distance = _distance(points, matrix)
        weight = points.weight / np.square(1 + np.square(distance / (TOLERANCE * noise)))
        weight[distance > 2 * TOLERANCE * noise] = 0
        previous, matrix = matrix, _step(points, matrix, weight)
        new_noise = min(noise, _noise(points, _distance(points, matrix), noise))
        if np.abs(matrix - previous).max() < _CONVERGED and new_noise > 0.99 * noise:
            break
        noise = new_noise
    return matrix, noise


def _noise(points: _Correspondences, distance: Float64[np.ndarray, " n"], previous: float) -> float:
    """Standard deviation along an axis of the inliers, from their lower quartile.

    The median would include points of another plane that moves nearly alike.
    """
    inliers = distance < 2 * TOLERANCE * previous
    if not inliers.any():
        return previous
    order = np.argsort(distance[inliers])
    total = np.cumsum(points.weight[inliers][order])
    quartile = distance[inliers][order][np.searchsorted(total, total[-1] / 4)]
    # The lower quartile of the length of a 2-D normal vector is 0.7585 standard deviations.
    return float(np.clip(quartile / 0.7585, MIN_NOISE, MAX_NOISE))


def _step(points: _Correspondences, matrix: Matrix, weight: Float64[np.ndarray, " n"]) -> Matrix:
    used = weight > 0
    start, weight = points.start[used], weight[used]
    homogeneous = np.concatenate([start, np.ones((len(start), 1))], axis=1)
    depth = np.maximum(homogeneous @ matrix[2], 1e-6)[:, None]
    projected = project(matrix, start)
    slope, zero = homogeneous / depth, np.zeros_like(homogeneous)
    jacobian_x = np.concatenate([slope, zero, -projected[:, :1] * slope[:, :2]], axis=1)
    jacobian_y = np.concatenate([zero, slope, -projected[:, 1:] * slope[:, :2]], axis=1)
    error = points.target[used] - projected
    weighted_x, weighted_y = jacobian_x * weight[:, None], jacobian_y * weight[:, None]
    normal = jacobian_x.T @ weighted_x + jacobian_y.T @ weighted_y + 1e-12 * np.eye(8)
    change = _solve(normal, weighted_x.T @ error[:, 0] + weighted_y.T @ error[:, 1])
    return matrix + np.append(change, 0).reshape(3, 3)


def _solve(normal: Float64[np.ndarray, "*k 8 8"], right: Float64[np.ndarray, "..."]) -> np.ndarray:
    """Solve normal equations; if some are singular despite their damping, by least squares.

    They are where nearly all the weight is on a few points, or where motions are huge.
    """
    try:
        return np.linalg.solve(normal, right)
    except np.linalg.LinAlgError:
        return np.linalg.pinv(normal) @ right


def _directions(epipole: Float64[np.ndarray, "3"], points: Coordinates) -> Coordinates:
    """Unit vectors of the lines through points and the epipole, which may be at infinity."""
    towards = epipole[:2] - points * epipole[2]
    length = np.hypot(towards[:, 0], towards[:, 1])[:, None]
    return towards / np.maximum(length, 1e-12)


def _camera_distance(
    points: _Correspondences, matrix: Matrix, epipole: Float64[np.ndarray, "3"] | None
) -> Float64[np.ndarray, " n"]:
    """Distance in pixels of the targets from the homography or, with an epipole, from the line."""
    if epipole is None:
        return _distance(points, matrix)
    return _line_distance(points, project(matrix, points.start), epipole[None])[0]


def _line_distance(
    points: _Correspondences, projected: Coordinates, epipoles: Float64[np.ndarray, "k 3"]
) -> Float64[np.ndarray, "k n"]:
    """Distance in pixels of the targets from the lines through epipoles and points."""
    x, y = (epipoles[:, None, i] - projected[:, i] * epipoles[:, None, 2] for i in (0, 1))
    dx, dy = (points.target - projected).T * points.unit
    return np.abs(dx * y - dy * x) / np.maximum(np.hypot(x, y), 1e-12)


def _find_epipole(
    points: _Correspondences, matrix: Matrix, noise: float
) -> Float64[np.ndarray, "3"] | None:
    """Return the epipole, if parallax explains much of what the homography does not."""
    limit = TOLERANCE * noise
    outlier_mask = _distance(points, matrix) > max(OUTLIER_DISTANCE, 2 * limit)
    moved = np.hypot(*(project(matrix, points.start) - points.start).T).mean() * points.unit
    if points.weight_share(outlier_mask) < STRONG_PARALLAX or moved < STILL_CAMERA:
        return None
    outliers = points.subsample(outlier_mask)
    projected = project(matrix, outliers.start)
    # The target of a static point is on a line with the epipole.
    lines = np.cross(_homogeneous(projected), _homogeneous(outliers.target))
    lines /= np.hypot(lines[:, 0], lines[:, 1])[:, None]
    parallax = np.hypot(*(outliers.target - projected).T)
    all_outliers = np.ones(len(outliers.weight), bool)
    first, second = outliers.draw(np.random.default_rng(0), (SAMPLES, 2), all_outliers).T
    candidates = np.cross(lines[first], lines[second])
    candidates = candidates[np.linalg.norm(candidates, axis=1) > 1e-9]
    if not len(candidates):
        return None
    epipole = candidates[
        int(np.argmin(_cost(outliers, _line_distance(outliers, projected, candidates), noise)))
    ]
    for _ in range(REWEIGHTING_ROUNDS):
        distance = _line_distance(outliers, projected, epipole[None])[0]
        # The distance of a target from the line through the epipole is that of the epipole from the
        # target's own line, times the parallax over the distance to the epipole.
        epipole_distance = np.linalg.norm(epipole[:2] - projected * epipole[2], axis=1)
        weight = outliers.weight * np.square(parallax / np.maximum(epipole_distance, 1e-9))
        weight = weight / np.square(1 + np.square(distance / limit))
        weight[distance > 2 * limit] = 0
        epipole = np.linalg.eigh(lines.T @ (lines * weight[:, None]))[1][:, 0]
    explained = _line_distance(outliers, projected, epipole[None])[0] < limit
    explained_share = outliers.weight_share(explained) / outliers.weight_share(all_outliers)
    if (
        explained_share < OUTLIER_SHARE
        or explained_share * points.weight_share(outlier_mask) < STRONG_PARALLAX
    ):
        return None
    low, high = np.quantile(parallax[explained], [0.1, 0.9])
    left_top, right_bottom = np.quantile(outliers.start[explained], [0.05, 0.95], axis=0)
    extent = (right_bottom - left_top) / np.ptp(points.start, axis=0)
    return epipole if high > SPREAD * low and extent.max() > EXTENT else None


def _homogeneous(points: Coordinates) -> Homogeneous:
    return np.concatenate([points, np.ones((len(points), 1))], axis=1)
