import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import FlowFileError
from gmaflow.io import create_clip, open_clip, write_flow
from gmaflow.io.tar_shard import list_samples, read_member
from tests.io.test_xy_jpeg import smooth


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def test_files_of_one_name_are_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    files = {"v.1/7.flow_x.jpg": b"x", "v.1/7.flow_y.jpg": b"yy", "v.1/8.CLS": b"3", "README": b""}
    write_tar(path, files)
    samples = list_samples(path)
    assert [(key, list(files)) for key, files in samples] == [
        ("v.1/7", ["flow_x.jpg", "flow_y.jpg"]),
        ("v.1/8", ["cls"]),
        ("README", [""]),
    ]
    assert read_member(path, samples[0].files["flow_y.jpg"]) == b"yy"


def test_a_clip_is_a_shard_under_its_key(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with create_clip(path, key="some/clip.mp4") as clip:
        clip.add(3, smooth())
    assert [sample.key for sample in list_samples(path)] == ["some/clip.mp4/000003"]


def test_frames_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write_flow(tmp_path / "flow_x.jpg", smooth())
    x, y = ((tmp_path / f"flow_{c}.jpg").read_bytes() for c in "xy")
    files = {"10.flow_x.jpg": y, "10.flow_y.jpg": x, "9.flow_x.jpg": x, "9.flow_y.jpg": y}
    write_tar(tmp_path / "a.tar", files)
    clip = open_clip(tmp_path / "a.tar")
    assert clip.frames == (9, 10)
    np.testing.assert_array_equal(clip[0].array, clip[1].array[..., ::-1])
    np.testing.assert_allclose(clip[0].array, smooth(), atol=0.6)


def test_links_devices_and_holes_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        links, holes = (tarfile.SYMTYPE, tarfile.LNKTYPE), tarfile.GNUTYPE_SPARSE
        for kind in (*links, tarfile.CHRTYPE, tarfile.DIRTYPE, holes):
            member = tarfile.TarInfo("1.flow_x.jpg")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    assert list_samples(path) == []
    with pytest.raises(FlowFileError, match=r"holds no flow_x\.jpg and flow_y\.jpg"):
        open_clip(path)


def test_several_clips_in_one_file_are_no_clip(tmp_path: Path) -> None:
    names = [f"{clip}/1.flow_{c}.jpg" for clip in "ab" for c in "xy"]
    write_tar(tmp_path / "a.tar", dict.fromkeys(names, b""))
    with pytest.raises(FlowFileError, match="open a file of many clips as a shard"):
        open_clip(tmp_path / "a.tar")


def test_a_size_beyond_the_end_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    header = tarfile.TarInfo("1.flow_x.jpg")
    header.size = 8**11 - 1
    path.write_bytes(header.tobuf() + bytes(1024))
    with pytest.raises(FlowFileError, match=r"a\.tar"):
        read_member(path, list_samples(path)[0].files["flow_x.jpg"])


def test_a_compressed_tar_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w:gz"):
        pass
    with pytest.raises(FlowFileError, match=r"not a valid \.tar file"):
        list_samples(tmp_path / "a.tar")
