from gmaflow.data import DATASETS


def test_published_numbers() -> None:
    counts = {(name, str(p)): p.count for name, info in DATASETS.items() for p in info.parts}
    assert counts["chairs", "training"] == 22_232
    assert counts["chairs", "validation"] == 640
    assert counts["chairs", "all"] == 22_232 + 640
    assert counts["things", "training clean left"] == 2239 * 9 * 2
    assert counts["things", "test final left"] == 437 * 9 * 2
    assert counts["things", "validation final left"] == 764
    assert counts["sintel", "training final"] == 1041
    assert counts["sintel", "test clean"] == 552
    assert counts["kitti-2012", "training occ"] == 194
    assert counts["kitti-2015", "training occ"] == 200
    assert counts["hd1k", "training"] == 1083 - 36
    assert counts["spring", "training left forward"] == 5000 - 37
    assert counts["spring", "test right backward"] == 1000 - 10
    assert counts["middlebury", "training"] == 8


def test_every_set_has_an_example_file_and_its_source_is_an_address() -> None:
    for name, info in DATASETS.items():
        assert info.name == name
        assert info.example
        assert not info.source or info.source.startswith("http")  # private data has none
