"""Planes in 3-D space seen by a pinhole camera: from poses to homographies, in double precision.

World coordinates: x right, y down, z forward, with the first camera at the origin.
"""

from dataclasses import dataclass, fields

import numpy as np

from gmaflow.scenes.stateless_random import Array


@dataclass(frozen=True)
class Sheets:
    """Flat sheets and their motion. Arrays `[b, l, 3]`, `turn` is `[b, l, 3, 3]`.

    In the first frame the canvas point (u, v) is at `centre + u * right + v * down`. Until the
    second frame it is rotated by `turn` about `pivot` and then moved by `shift`.
    """

    centre: Array
    right: Array
    down: Array
    turn: Array
    pivot: Array
    shift: Array

    @classmethod
    def resting(cls, centre: Array, right: Array, down: Array) -> "Sheets":
        """Sheets that do not move."""
        turn = np.broadcast_to(np.eye(3), (*centre.shape, 3)).copy()
        return cls(centre, right, down, turn, centre.copy(), np.zeros_like(centre))

    def followed_by(self, other: "Sheets") -> "Sheets":
        """These layers followed by those of `other`."""
        pairs = [(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)]
        return Sheets(*(np.concatenate(pair, axis=1) for pair in pairs))


@dataclass(frozen=True)
class Camera:
    """A pinhole camera in both frames. Arrays `[b]`, `[b, 3]` and `[b, 3, 3]`."""

    focal: Array  # focal length in pixels in the first frame
    zoom: Array  # focal length of the second frame divided by that of the first
    centre: Array  # the principal point
    view: Array  # orientation in the first frame
    turn: Array  # rotation from the first frame to the second
    shift: Array  # position of the first camera relative to the second, before `turn`


def rotation(x: Array, y: Array, z: Array) -> Array:
    """Rotation about z, then y, then x; angles in radians `[...]` to matrices `[..., 3, 3]`."""
    zero, one = np.zeros_like(x), np.ones_like(x)
    cx, sx, cy, sy, cz, sz = np.cos(x), np.sin(x), np.cos(y), np.sin(y), np.cos(z), np.sin(z)
    about_x = np.stack([one, zero, zero, zero, cx, -sx, zero, sx, cx], axis=-1)
    about_y = np.stack([cy, zero, sy, zero, one, zero, -sy, zero, cy], axis=-1)
    about_z = np.stack([cz, -sz, zero, sz, cz, zero, zero, zero, one], axis=-1)
    x_matrix, y_matrix, z_matrix = (m.reshape(*x.shape, 3, 3) for m in (about_x, about_y, about_z))
    return x_matrix @ y_matrix @ z_matrix


def power(turn: Array, times: Array) -> Array:
    """Rotations `[..., 3, 3]` applied `times [...]` times, by the formula of Rodrigues."""
    # The part of the matrix that is not symmetric is the axis times the sine of the angle.
    half = (turn - np.swapaxes(turn, -1, -2)) / 2
    sine = np.sqrt((half * half).sum(axis=(-2, -1)) / 2)
    cosine = (np.trace(turn, axis1=-2, axis2=-1) - 1) / 2
    angle = (np.arctan2(sine, cosine) * times)[..., None, None]
    axis = half / np.maximum(sine, 1e-12)[..., None, None]
    return np.eye(3) + np.sin(angle) * axis + (1 - np.cos(angle)) * (axis @ axis)


def rotate(matrix: Array, vector: Array) -> Array:
    """Apply `[..., 3, 3]` to `[..., 3]`."""
    return (matrix * vector[..., None, :]).sum(axis=-1)


def cross(a: Array, b: Array) -> Array:
    """The cross product; numpy's is slow on small arrays."""
    ax, ay, az = a[..., 0], a[..., 1], a[..., 2]
    bx, by, bz = b[..., 0], b[..., 1], b[..., 2]
    return np.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis=-1)


def inverse(matrix: Array) -> Array:
    """Inverse of 3 x 3 matrices by cofactors; the result does not depend on the batch."""
    a, b, c = matrix[..., 0, :], matrix[..., 1, :], matrix[..., 2, :]
    first = cross(b, c)
    columns = np.stack([first, cross(c, a), cross(a, b)], axis=-1)
    determinant = (a * first).sum(axis=-1)
    return columns / determinant[..., None, None]


def homographies(sheets: Sheets, camera: Camera) -> tuple[Array, Array]:
    """Homographies from canvas to pixel for both frames; the homogeneous scale is the depth."""
    columns = (sheets.right, sheets.down, sheets.centre)
    first = _homography(camera, camera.focal, columns, moved=False)
    moved = (
        rotate(sheets.turn, sheets.right),
        rotate(sheets.turn, sheets.down),
        rotate(sheets.turn, sheets.centre - sheets.pivot) + sheets.pivot + sheets.shift,
    )
    second = _homography(camera, camera.focal * camera.zoom, moved, moved=True)
    return first, second


def _homography(
    camera: Camera, focal: Array, columns: tuple[Array, Array, Array], moved: bool
) -> Array:
    """Canvas to pixel; `columns` are the canvas axes and centre in world coordinates.

    A canvas point is `u * right + v * down + centre`, so the matrix of the columns in camera
    coordinates, multiplied by the intrinsic matrix, is the homography.
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
    """Homography from pixels of one frame to the other; exactly the identity if nothing moves.

    A matrix times its inverse is the identity only up to rounding, but the flow of a still scene
    must be exactly zero.
    """
    matrix = second @ inverse(first)
    still = np.abs(matrix - np.eye(3)).max(axis=(-2, -1)) < 1e-9
    return np.where(still[..., None, None], np.eye(3), matrix)
