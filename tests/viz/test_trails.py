import numpy as np

from gmaflow.viz import draw_trails, position_colors

GREY = np.full((40, 60, 3), 120, np.uint8)
RED = np.array([[255, 0, 0]], np.uint8)


def path(*points: tuple[float, float]) -> np.ndarray:
    return np.array(points, np.float32)[:, None]


def red(picture: np.ndarray) -> np.ndarray:
    return picture[..., 0].astype(int) - picture[..., 1] > 40


def test_a_trail_leads_to_its_point() -> None:
    seen = np.ones((3, 1), bool)
    picture = draw_trails(GREY, path((10, 20), (25, 20), (40, 20)), seen, RED)
    marked = red(picture)
    assert marked[20, 12:41].all()
    assert not marked[:16].any()
    assert not marked[20, 46:].any()


def test_hidden_stretches_are_dotted_and_hidden_points_are_rings() -> None:
    large = np.full((320, 480, 3), 120, np.uint8)
    track = path(*((10.0 + 15 * step, 160.0) for step in range(5)))
    solid, dotted = (
        red(draw_trails(large, track, np.full((5, 1), seen), RED)) for seen in (True, False)
    )
    assert solid[160, 30:70].all()
    assert 0.1 < dotted[160, 30:60].mean() < 0.7
    assert solid[160, 70]
    assert not dotted[160, 70]


def test_a_trail_fades_towards_the_past() -> None:
    large = np.full((960, 1280, 3), 120, np.uint8)
    track = path(*((100.0 + 100 * step, 480.0) for step in range(6)))
    row = draw_trails(large, track, np.ones((6, 1), bool), RED)[480].astype(int)
    redness = (row[:, 0] - row[:, 1])[[150, 250, 350, 450, 550]]
    assert (np.diff(redness) > 10).all()


def test_a_ring_is_seen_in_a_small_frame() -> None:
    still = path((30, 20), (30, 20))
    picture = draw_trails(GREY, still, np.zeros((2, 1), bool), RED).astype(int)
    redness = picture[..., 0] - picture[..., 1]
    assert redness[16:19, 28:33].max() > 150
    assert redness[22:25, 28:33].max() > 150
    assert redness[19, 30] < 120


def test_a_guess_that_jumps_leaves_no_trail() -> None:
    track = path((10, 20), (40, 20))
    picture = red(draw_trails(GREY, track, np.zeros((2, 1), bool), RED))
    assert not picture[20, 12:36].any()


def test_nothing_is_drawn_beyond_a_cut_or_without_points() -> None:
    gone = np.full((2, 1, 2), np.nan, np.float32)
    ground = draw_trails(GREY, gone, np.zeros((2, 1), bool), RED)
    assert (ground == ground[0, 0]).all()
    none = draw_trails(GREY, gone[:, :0], np.zeros((2, 0), bool), RED[:0])
    np.testing.assert_array_equal(none, ground)


def test_colours_distinguish_positions() -> None:
    corners = np.array([(0, 0), (59, 0), (0, 39), (59, 39), (30, 20)], np.float32)
    colors = position_colors(corners, height=40, width=60).astype(int)
    apart = np.abs(colors[:, None] - colors[None]).sum(axis=2) + 999 * np.eye(5, dtype=int)
    assert apart.min() > 80
    assert (colors.max(axis=1) > 120).all()
