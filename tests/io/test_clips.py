import errno
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmaflow.errors import FlowError, FlowFileError, OutputError
from gmaflow.io import FLOW_ENDINGS, create_clip, open_clip, write_flow
from gmaflow.io.clips import ClipReader
from tests.io.test_xy_jpeg import smooth

CLIPS = ("a.h5", "a.tar", "a")


def write(path: Path, frames: tuple[int, ...] = (0, 1, 5), **options: float) -> None:
    with create_clip(path, **options) as clip:  # type: ignore[arg-type]
        for frame in frames:
            clip.add(frame, smooth() + frame)


@pytest.mark.parametrize("name", CLIPS)
def test_a_written_clip_is_read_by_place_and_by_frame(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    clip = open_clip(tmp_path / name)
    assert (len(clip), clip.frames, clip.name) == (3, (0, 1, 5), "a")
    within = 0.01 if name == "a.h5" else 0.6
    for place, flow in enumerate(clip):
        wanted = smooth() + clip.frames[place]
        assert flow.array.dtype == np.float32
        np.testing.assert_allclose(flow.array, wanted, atol=within)
    np.testing.assert_array_equal(clip[-1].array, clip.at_frame(5).array)
    with pytest.raises(FlowFileError, match="has no flow of frame 2; its frames are 0 to 5"):
        clip.at_frame(2)
    with pytest.raises(IndexError):
        clip[3]


@pytest.mark.parametrize("name", CLIPS)
def test_a_reader_goes_to_other_processes(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    clip = open_clip(tmp_path / name)
    copy: ClipReader = pickle.loads(pickle.dumps(clip))  # noqa: S301
    np.testing.assert_array_equal(copy[2].array, clip[2].array)


@pytest.mark.parametrize("name", CLIPS)
def test_the_same_flow_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    contents = []
    for folder in ("one", "two"):
        write(tmp_path / folder / name)
        files = sorted(path for path in (tmp_path / folder).rglob("*") if path.is_file())
        contents.append([(path.name, path.read_bytes()) for path in files])
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize("error", [FlowError, KeyboardInterrupt])
def test_an_unfinished_clip_leaves_nothing_and_keeps_the_old_one(
    tmp_path: Path, name: str, error: type[BaseException]
) -> None:
    path = tmp_path / name

    def fail() -> None:
        with create_clip(path) as clip:
            clip.add(0, smooth())
            raise error

    for before in ([], [path]):
        with pytest.raises(error):
            fail()
        assert list(tmp_path.iterdir()) == before
        write(path, (7,))
        assert open_clip(path).frames == (7,)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError(errno.EBUSY, "busy"), KeyboardInterrupt()])
def test_a_folder_that_cannot_take_its_place_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "a"
    write(path, (7,))
    rename = Path.rename

    def refuse(source: Path, target: Path) -> Path:
        if target == path and source.suffix == ".partial":
            raise error
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises((OutputError, KeyboardInterrupt)):
        write(path)
    assert list(tmp_path.iterdir()) == [path]
    assert open_clip(path).frames == (7,)


@pytest.mark.parametrize("name", ["holiday.jpg", "000000.png", ".git/config", "1.flo/a"])
def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a")
    other = tmp_path / "a" / name
    other.parent.mkdir(exist_ok=True)
    other.touch()
    with pytest.raises(OutputError, match="which is not the flow of a frame"):
        write(tmp_path / "a")
    assert other.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    write(tmp_path / "disk" / "clip", (7,))
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "clip")
    write(tmp_path / "link")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "disk", tmp_path / "link"]
    assert (tmp_path / "link").is_symlink()
    assert list((tmp_path / "disk").iterdir()) == [tmp_path / "disk" / "clip"]
    assert open_clip(tmp_path / "disk" / "clip").frames == (0, 1, 5)


@pytest.mark.parametrize("name", CLIPS)
def test_what_does_not_belong_into_a_clip_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FlowFileError, match="no flow was added"), create_clip(tmp_path / name):
        pass
    with create_clip(tmp_path / name) as clip:
        clip.add(3, smooth())
        with pytest.raises(FlowFileError, match="got frame 3 after frame 3; add frames in order"):
            clip.add(3, smooth())
        with pytest.raises(FlowFileError, match="a clip has one size"):
            clip.add(4, smooth(10, 10))
    assert open_clip(tmp_path / name).frames == (3,)


def test_unknown_pixels_are_kept_where_the_format_can(tmp_path: Path) -> None:
    flow = smooth()
    flow[3, 4] = np.nan
    with create_clip(tmp_path / "a.h5") as clip:
        clip.add(0, flow)
    got = open_clip(tmp_path / "a.h5")[0]
    assert (~got.valid).sum() == 1
    assert not got.valid[3, 4]
    for name in ("a.tar", "a"):
        with (
            pytest.raises(FlowFileError, match=r"a.*cannot mark unknown"),
            create_clip(tmp_path / name) as clip,
        ):
            clip.add(0, flow)
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]


@pytest.mark.parametrize("ending", FLOW_ENDINGS.values())
def test_a_folder_takes_any_format(tmp_path: Path, ending: str) -> None:
    flow = np.rint(smooth() * 64) / 64
    write(tmp_path / "a")  # in another format, which is replaced
    with create_clip(tmp_path / "a", ending=ending) as writer:
        writer.add(12, flow)
    clip = open_clip(tmp_path / "a")
    assert clip.frames == (12,)
    np.testing.assert_allclose(clip[0].array, flow, atol=0.6 if "flow_x" in ending else 0.01)


def test_a_folder_of_files_made_otherwise_is_read(tmp_path: Path) -> None:
    for name in ("b_9.flo", "b_10.flo", "b_9-backward.flo"):
        write_flow(tmp_path / name, smooth() + int(name[2] == "9"))
    clip = open_clip(tmp_path)
    assert clip.frames == (9, 10)
    np.testing.assert_array_equal(clip.at_frame(9).array, smooth() + 1)
    write_flow(tmp_path / "c_10.flo", smooth())  # the numbers are not those of one clip
    assert open_clip(tmp_path).frames == (0, 1, 2)
    for name in ("b_9.flo", "b_10.flo", "c_10.flo"):
        (tmp_path / name).unlink()
    with pytest.raises(FlowFileError, match="holds only backward flow"):
        open_clip(tmp_path)


def test_a_file_that_is_not_a_clip_is_refused(tmp_path: Path) -> None:
    for name in ("a.txt", "a.h5", "a.tar"):
        (tmp_path / name).write_bytes(b"words" * 300)
        with pytest.raises(FlowFileError, match=rf"{name}.* not a "):
            open_clip(tmp_path / name)
    with pytest.raises(FlowFileError, match="does not exist; give a clip"):
        open_clip(tmp_path / "gone.h5")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FlowFileError, match="holds no flow files"):
        open_clip(tmp_path / "empty")


@pytest.mark.parametrize("name", ["a.h5", "a.tar"])
def test_a_clip_cut_anywhere_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write(path)
    raw = path.read_bytes()
    # A .tar is filled up with zeros, of which only the first 1024 count.
    whole = len(raw) if name == "a.h5" else len(raw.rstrip(b"\0"))
    for cut in range(0, whole, 511):
        path.write_bytes(raw[:cut])
        with pytest.raises(FlowFileError, match=str(path)):
            open_clip(path)


@pytest.mark.parametrize("name", ["a.h5", "a.tar"])
@settings(max_examples=150)
@given(data=st.data())
def test_broken_bytes_give_flow_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    write(path, (0, 1))
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        end = data.draw(st.sampled_from([100, 2048, len(raw)]))
        place = data.draw(st.integers(-end, end - 1)) % len(raw)
        raw[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, *b"0129"]))
    path.write_bytes(raw)
    try:
        for flow in open_clip(path):
            assert flow.array.shape == (*flow.valid.shape, 2)
    except FlowFileError as err:
        assert str(path) in str(err)  # noqa: PT017 - or it is read


@pytest.mark.parametrize("name", CLIPS)
def test_a_full_disk_is_reported_and_does_not_end_the_program(tmp_path: Path, name: str) -> None:
    code = """
import signal, sys
import numpy as np
from gmaflow.errors import OutputError
from gmaflow.io import create_clip
from tests.full_disk import largest_file
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
rng = np.random.default_rng(0)
for limit in (0, 3000, 20_000):
    try:
        with largest_file(limit), create_clip(sys.argv[1]) as clip:
            for frame in range(20):
                clip.add(frame, rng.uniform(-20, 20, (64, 640, 2)))
    except OutputError as err:
        print(err)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / name],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(str(tmp_path / name)) for line in lines), lines
    assert all("cannot be written: file too large" in line for line in lines), lines
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name in CLIPS:
        with pytest.raises(OutputError, match="cannot be written"):
            write(tmp_path / "file" / name)
