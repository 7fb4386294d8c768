"""Inputs become clips, and what cannot be one gets a sentence."""

import json
from pathlib import Path

import pytest

from gmaflow.batch.manifest import Clip, ClipList, Columns, check_identifier, identifier_of
from gmaflow.errors import FlowError
from tests.batch.conftest import write_clip_frames


def names(*inputs: Path | str, columns: Columns | None = None) -> list[str]:
    return [clip.identifier for clip in ClipList([str(text) for text in inputs], columns)]


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    for name in ("a/2.mp4", "a/10.MP4", "b.webm", "notes.doc", ".hidden/c.mp4"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    write_clip_frames(tmp_path / "frames", 2, seed=0)
    return tmp_path


def test_a_folder_is_all_videos_and_frames_in_it(videos: Path) -> None:
    assert names(videos) == ["b", "a/2", "a/10", "frames"]
    assert names(videos / "frames") == ["frames"]
    assert names(videos / "a" / "2.mp4", videos / "b.webm") == ["2", "b"]


def test_a_pattern_names_clips_after_what_it_matches(videos: Path) -> None:
    assert names(videos / "*" / "*.mp4") == ["a/2"]
    assert names(f"{videos}/**/*.[mM][pP]4") == ["a/2", "a/10"]
    assert names(f"{videos}/fram*") == ["frames"]


def test_a_destination_among_the_inputs_is_not_an_input(videos: Path) -> None:
    write_clip_frames(videos / "a" / "flow" / "2", 2, seed=0)
    (videos / "a" / "flow" / "2.mp4").touch()
    (videos / "a" / "flows").mkdir()  # begins like the destination
    (videos / "a" / "flows" / "3.mp4").touch()
    for text in (str(videos), f"{videos}/**/*.mp4"):
        found = ClipList([text], leave_out=f"{videos}/b/../a/flow/")
        sources = [clip.source for clip in found]
        assert f"{videos}/a/2.mp4" in sources
        assert [source for source in sources if "flow" in source] == [f"{videos}/a/flows/3.mp4"]
    # Results of a job can be the input of the same job if they are named.
    found = ClipList([str(videos / "a" / "flow" / "2")], leave_out=str(videos / "a" / "flow"))
    assert [clip.identifier for clip in found] == ["2"]


def test_a_remote_destination_among_the_inputs_is_not_an_input() -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for name in ("a.mp4", "flow/b.mp4"):
        store.pipe(f"/among/{name}", b"x")
    for text in ("memory://among", "memory://among/", "memory://among/**/*.mp4"):
        found = ClipList([text], leave_out="memory://among/flow")
        assert [clip.identifier for clip in found] == ["a"]
        assert [clip.identifier for clip in ClipList([text])] == ["a", "flow/b"]


def test_clips_do_not_depend_on_the_working_folder(
    videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(ClipList([str(videos / "a")]))
    monkeypatch.chdir(videos)
    assert list(ClipList(["a"])) == whole
    assert list(ClipList(["./b/../a/"])) == whole


def test_manifests_say_the_same_in_every_format(tmp_path: Path) -> None:
    rows = [
        {"path": "x/a.mp4", "second": None, "id": "one"},
        {"path": "/data/b.png", "second": "c.png", "id": None},
        {"path": "s3://bucket/d.mp4", "second": None, "id": None},
    ]
    (tmp_path / "m.csv").write_text(
        "path,second,id\nx/a.mp4,,one\n\n/data/b.png,c.png,\ns3://bucket/d.mp4,,\n"
    )
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "m.tsv").write_text(
        "id\tpath\tsecond\none\tx/a.mp4\n\t/data/b.png\tc.png\n\ts3://bucket/d.mp4\t\n"
    )
    wanted = [
        Clip("one", f"{tmp_path}/x/a.mp4"),
        Clip("data/b", "/data/b.png", f"{tmp_path}/c.png"),
        Clip("bucket/d", "s3://bucket/d.mp4"),
    ]
    for name in ("m.csv", "m.jsonl", "m.tsv"):
        assert list(ClipList([str(tmp_path / name)])) == wanted, name
    (tmp_path / "m.txt").write_text("x/a.mp4\r\n\n/data/b.png\tc.png\ns3://bucket/d.mp4")
    assert [(c.source, c.second) for c in ClipList([str(tmp_path / "m.txt")])] == [
        (c.source, c.second) for c in wanted
    ]


def test_paths_of_a_remote_manifest_are_relative_to_it() -> None:
    fsspec = pytest.importorskip("fsspec")
    rows = (
        b"\xef\xbb\xbfpath\na.mp4\n../videos/b.mp4\n./c//d.mp4\n/data/e.mp4\nfile:///data/g.mp4\n"
    )
    fsspec.filesystem("memory").pipe("/bucket/lists/m.csv", rows)
    found = {clip.identifier: clip.source for clip in ClipList(["memory://bucket/lists/m.csv"])}
    assert found == {
        "a": "memory://bucket/lists/a.mp4",
        "videos/b": "memory://bucket/videos/b.mp4",
        "c/d": "memory://bucket/lists/c/d.mp4",
        "data/e": "/data/e.mp4",
        "data/g": "/data/g.mp4",
    }


def test_columns_may_have_other_names_and_times(tmp_path: Path) -> None:
    path = tmp_path / "kinetics.csv"
    rows = "video,youtube_id,start,end\nv/a.mp4,abc,1.5,11.5\nv/a.mp4,abd,,\nv/a.mp4,abe,1.5,9\n"
    path.write_text(rows, encoding="utf-8-sig")  # as spreadsheets do
    found = list(ClipList([str(path)], Columns(path="video", identifier="youtube_id")))
    assert [(clip.identifier, clip.start, clip.end) for clip in found] == [
        ("abc", 1.5, 11.5),
        ("abd", None, None),
        ("abe", 1.5, 9),
    ]
    # One video, three parts: their records differ.
    assert len({clip.source_hash for clip in found}) == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("m.csv", "file\na.mp4\n", "has no column 'path', only 'file'; name the column"),
        ("m.csv", "path;id\na.mp4;1\n", "only 'path;id'; separate the columns with commas"),
        ("m.csv", "path,id\na.mp4,1\n,2\n", "row 2 of .*m.csv has no file in the column 'path'"),
        ("m.csv", "path,id\n", "has no rows"),
        ("m.csv", "", "has no rows"),
        ("m.csv", 'path\n"a.mp4\n', "cannot be read"),
        ("m.jsonl", '{"path": "a.mp4"}\n{', "cannot be read .row 2"),
        ("m.jsonl", '{"path": "a.mp4"\n', r"\(row 1: Expecting ',' delimiter\); correct that row"),
        ("m.jsonl", '["a.mp4"]', "line 1 of .* is not an object"),
        ("m.jsonl", 100_000 * "[", "cannot be read"),
        ("m.jsonl", '{"path": ' + 5000 * "1" + "}", "cannot be read"),
        ("m.csv", "path,id\na.mp4,../../etc\n", "cannot be the name of a file"),
        ("m.csv", "path,id\na.mp4,b\\etc\n", "cannot be the name of a file"),
        ("m.csv", "path,id\na.mp4,_clips/x\n", "cannot be the name of a file"),
        ("m.csv", "path,id\na.mp4,batch.json\n", "cannot be the name of a file"),
        ("m.csv", f"path,id\na.mp4,{'x' * 300}\n", "longer than 200 bytes"),
        ("m.csv", "path,start\na.mp4,soon\n", "'soon' in the column 'start'; give seconds"),
        ("m.jsonl", '{"path": ["a.mp4"]}', r"row 1 .* has \['a.mp4'\] in the column 'path'; give"),
        ("m.jsonl", '{"path": "a.mp4", "id": {}}', "row 1 of .* has {} in the column 'id'; give a"),
        ("m.json", '[{"path": "a.mp4"}]', "m.json is not a manifest; give a .csv, .tsv, .jsonl"),
        ("m.parquet", "PAR1", "m.parquet is not a manifest; give a .csv, .tsv, .jsonl or .txt"),
    ],
)
def test_an_unusable_manifest_gives_one_clear_error(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FlowError, match=message):
        list(ClipList([str(tmp_path / name)]))


def test_a_manifest_of_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes(b"path\n\xff\xfe\x00.mp4\n")
    with pytest.raises(FlowError, match=r"the manifest .*m\.csv cannot be read: it is not UTF-8"):
        list(ClipList([str(tmp_path / "m.csv")]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}/none.mp4", "does not exist"),
        ("{}/none.csv", "the manifest .*none.csv cannot be read: no such file"),
        ("{}/*.mkv", "matches no videos"),
        ("{}/frames/*.png", "matches images such as .*; give the folders"),
        ("{}/frames/frame0.png", "is one image; give the folder"),
        ("{}/empty", "holds neither videos nor frames"),
    ],
)
def test_an_unusable_input_gives_one_clear_error(videos: Path, text: str, message: str) -> None:
    (videos / "empty").mkdir()
    with pytest.raises(FlowError, match=message):
        names(text.format(videos))


def test_an_identifier_of_a_path_is_a_name() -> None:
    assert identifier_of("../x/./y.tar/a b.mp4") == "x/y.tar/a b"
    for text in ("s3://bucket/a.mp4", "/a/b.avi", "a.b.c"):
        assert check_identifier(identifier_of(text), "row 1") == identifier_of(text)
