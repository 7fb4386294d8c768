"""Sheets and cameras in space, in double precision on the CPU; results are homographies.

World: x to the right, y down, z forward, the first camera at the origin.
"""

from dataclasses import dataclass, fields

import numpy as np

from gmaflow.scenes.dice import Array


@dataclass(frozen=True)
class Sheets:
    """Flat sheets and their own motion. Arrays `[b, l, 3]`, `turn` is `[b, l, 3, 3]`.

    The canvas point (u, v) lies at `centre + u * right + v * down`; in the second frame it has been
    turned about `pivot` and then moved by `shift`.
    """

    centre: Array
    right: Array
    down: Array
    turn: Array
    pivot: Array
    shift: Array

    @classmethod
    def resting(cls, centre: Array, right: Array, down: Array) -> "Sheets":
        """Sheets that do not move of themselves."""
        turn = np.broadcast_to(np.eye(3), (*centre.shape, 3)).copy()
        return cls(centre, right, down, turn, centre.copy(), np.zeros_like(centre))

    def beside(self, other: "Sheets") -> "Sheets":
        """These layers followed by the other's."""
        pairs = [(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)]
        return Sheets(*(np.concatenate(pair, axis=1) for pair in pairs))


@dataclass(frozen=True)
class Camera:
    """A pinhole camera in both frames. Arrays `[b]`, `[b, 3]` and `[b, 3, 3]`.

    Attributes:
        focal: Focal length in pixels in the first frame.
        zoom: The second frame's focal length over the first one's.
        centre: The principal point.
        view: Orientation in the first frame.
        turn: Rotation from the first frame to the second.
        shift: Where the first frame's origin lies in the second, before turning.
    """

    focal: Array
    zoom: Array
    centre: Array
    view: Array
    turn: Array
    shift: Array


def rotation(x: Array, y: Array, z: Array) -> Array:
    """Turn about the z axis, then y, then x; angles in radians, `[...]` to `[..., 3, 3]`."""
    zero, one = np.zeros_like(x), np.ones_like(x)
    cx, sx, cy, sy, cz, sz = np.cos(x), np.sin(x), np.cos(y), np.sin(y), np.cos(z), np.sin(z)
    about_x = np.stack([one, zero, zero, zero, cx, -sx, zero, sx, cx], axis=-1)
    about_y = np.stack([cy, zero, sy, zero, one, zero, -sy, zero, cy], axis=-1)
    about_z = np.stack([cz, -sz, zero, sz, cz, zero, zero, zero, one], axis=-1)
    x_matrix, y_matrix, z_matrix = (m.reshape(*x.shape, 3, 3) for m in (about_x, about_y, about_z))
    return x_matrix @ y_matrix @ z_matrix


def rotate(matrix: Array, vector: Array) -> Array:
    """Apply `[..., 3, 3]` to `[..., 3]`."""
    return (matrix * vector[..., None, :]).sum(axis=-1)


def cross(a: Array, b: Array) -> Array:
    """The vector product, without the checks that make numpy's slow on small arrays."""
    ax, ay, az = a[..., 0], a[..., 1], a[..., 2]
    bx, by, bz = b[..., 0], b[..., 1], b[..., 2]
    return np.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis=-1)


def inverse(matrix: Array) -> Array:
    """Inverse of 3 x 3 matrices by cofactors: the same bits alone and in a stack."""
    a, b, c = matrix[..., 0, :], matrix[..., 1, :], matrix[..., 2, :]
    first = cross(b, c)
    columns = np.stack([first, cross(c, a), cross(a, b)], axis=-1)
    determinant = (a * first).sum(axis=-1)
    return columns / determinant[..., None, None]


def homographies(sheets: Sheets, camera: Camera) -> tuple[Array, Array]:
    """Canvas to pixel, in homogeneous coordinates with the depth as scale, for both frames."""
    first = _look(camera, camera.focal, (sheets.right, sheets.down, sheets.centre), moved=False)
    moved = (
        rotate(sheets.turn, sheets.right),
        rotate(sheets.turn, sheets.down),
        rotate(sheets.turn, sheets.centre - sheets.pivot) + sheets.pivot + sheets.shift,
    )
    second = _look(camera, camera.focal * camera.zoom, moved, moved=True)
    return first, second


def _look(camera: Camera, focal: Array, columns: tuple[Array, Array, Array], moved: bool) -> Array:
    """Canvas to pixel; the columns are where the canvas's axes and centre lie in the world.

    Their combination `u * right + v * down + centre` is a point, so the matrix of the columns, seen
    from the camera and multiplied with its intrinsic one, is the homography.
    """
    right, down, centre = (rotate(camera.view[:, None], column) for column in columns)
    if moved:
        centre = centre + camera.shift[:, None]
        right, down, centre = (rotate(camera.turn[:, None], c) for c in (right, down, centre))
    frame = np.stack([right, down, centre], axis=-1)  # [b, l, 3 (x y z), 3 (columns)]
    depth = frame[..., 2, :]
    x, y = (
        focal[:, None, None] * frame[..., axis, :] + camera.centre[:, None, None, axis] * depth
        for axis in (0, 1)
    )
    return np.stack([x, y, depth], axis=-2)


def across(first: Array, second: Array) -> Array:
    """Pixels of one frame to pixels of the other; exactly the identity where nothing moves.

    The product of a matrix and its inverse is the identity only up to rounding, and a still scene's
    flow is to be zero, not nearly zero.
    """
    matrix = second @ inverse(first)
    still = np.abs(matrix - np.eye(3)).max(axis=(-2, -1)) < 1e-9
    return np.where(still[..., None, None], np.eye(3), matrix)
