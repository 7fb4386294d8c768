"""Parameters that would be ignored are refused, with where they belong."""

from typing import Any

import pytest

from tests.serving.conftest import Running, pair_files

Form = dict[str, str | list[str]]


@pytest.mark.parametrize(
    ("path", "fields", "sentence"),
    [
        ("/api/flow", {"format": "flo"}, "format belongs in the query: /api/flow?format=..."),
        ("/api/flow", {"itres": "2"}, "unknown parameter 'itres'; did you mean iters?"),
        ("/api/flow?bogus=1", {}, "unknown parameter 'bogus'; there are format, model, iters,"),
        ("/api/flow?image1=a.png", {}, "image1 belongs in the form: with curl use -F image1=..."),
        ("/api/flow?iters=1&iters=2", {}, "iters was given 2 times; give it once"),
        ("/api/jobs?iters=2", {}, "iters belongs in the form: with curl use -F iters=..."),
        ("/api/jobs", {"comparemodel": "small"}, "did you mean compare_model"),
        ("/api/jobs", {"iters": ["1", "2"]}, "iters was given 2 times; give it once"),
        (f"/api/jobs?{'x' * 5000}", {}, f"unknown parameter '{'x' * 40}'; there are image1,"),
    ],
)
def test_submitting_refuses_other_parameters(
    site: Running, path: str, fields: Form, sentence: str
) -> None:
    answer = site.client.post(path, files=pair_files(), data=fields)
    assert answer.status_code == 422, answer.text
    assert sentence in answer.json()["error"]
    assert not list(site.folder.iterdir())


@pytest.mark.parametrize("path", ["/api/flow", "/api/jobs"])
def test_a_third_image_is_refused(site: Running, path: str) -> None:
    third = {"image3": pair_files()["image1"]}
    answer = site.client.post(path, files=pair_files() | third)
    assert answer.status_code == 422
    assert "unknown parameter 'image3'; did you mean image" in answer.json()["error"]


def test_an_image_and_another_input_are_refused(site: Running) -> None:
    image = {"image1": pair_files()["image1"]}
    clip = {"clip": pair_files()["image2"]}
    for files, fields in ((image, {"example": "1"}), (image | clip, {})):
        answer = site.client.post("/api/jobs", files=files, data=fields)
        assert answer.status_code == 422
        assert "give image1 and image2, or clip, or frames, or example=1" in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("pairs/0/small/flow?iterations=1", "did you mean iteration?"),
        ("pairs/0/small/flow?model=gma", "model belongs in the path: /api/jobs/{job_id}/pairs/"),
        ("pairs/0/attentive/attention?x=1&y=1&z=1", "unknown parameter 'z'"),
        ("pairs/0/attentive/attention?x=1&y=1&iteration=1", "unknown parameter 'iteration'"),
        ("all.zip?model=small", "/api/jobs/{job_id}/all.zip has no parameters"),
        ("events?since=1", "unknown parameter 'since'"),
    ],
)
def test_results_refuse_other_parameters(site: Running, path: str, sentence: str) -> None:
    answer = site.client.get(f"/api/jobs/none/{path}")
    assert answer.status_code == 422, answer.text
    assert sentence in answer.json()["error"]


@pytest.mark.parametrize(
    ("query", "fields", "sentence"),
    [
        ("", {"pair": 0, "pairs": 1}, "unknown parameter 'pairs'; did you mean pair?"),
        ("?pair=0", {"pair": 0}, 'pair belongs in the body: {"pair": ...}'),
    ],
)
def test_seek_refuses_other_parameters(
    site: Running, query: str, fields: dict[str, Any], sentence: str
) -> None:
    answer = site.client.post(f"/api/jobs/none/seek{query}", json=fields)
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]


@pytest.mark.parametrize("path", ["/api/flow", "/api/jobs"])
@pytest.mark.parametrize(("text", "file"), [("a.png", "a.png"), ("iVBORw0KGgo" * 100, "FILE")])
def test_text_in_place_of_a_file_is_explained(
    site: Running, path: str, text: str, file: str
) -> None:
    second = {"image2": pair_files()["image2"]}
    answer = site.client.post(path, files=second, data={"image1": text})
    assert answer.status_code == 422
    expected = f"image1 is text, not a file; with curl use image1=@{file}; see /docs"
    assert expected in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"data": {"pair": "0"}}, "the body must be a JSON object, sent as application/json;"),
        ({"json": [0]}, "the body must be a JSON object, sent as application/json;"),
        ({"content": "{", "headers": {"Content-Type": "application/json"}}, "the body must be a"),
        ({}, "the body: field required;"),
        ({"json": {"pair": "x"}}, "pair: input should be a valid integer"),
    ],
)
def test_a_body_of_another_form_is_named(
    site: Running, body: dict[str, Any], sentence: str
) -> None:
    answer = site.client.post("/api/jobs/none/seek", **body)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(sentence)


def test_the_page_and_health_may_be_asked_for_with_anything(site: Running) -> None:
    # The page reads its own address; monitors add numbers that keep caches out.
    for path in ("/?model=small&iters=2", "/health?t=1", "/version?t=1", "/api/models?t=1"):
        assert site.client.get(path).status_code == 200
