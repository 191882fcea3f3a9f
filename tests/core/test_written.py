"""Staged files: where they are once their folder was sealed, and whose they are."""

from __future__ import annotations

import json

import pytest

from sparkrobust.core.written import StagedFile, WrittenFile, path_of_upload, uploads
from sparkrobust.errors import CorruptTableError
from tests.core.control_objects import FOLDER, written

FILE = written().staged


def test_a_file_moves_with_its_folder_and_no_other_does() -> None:
    moved = FILE.moved(FOLDER.staging, FOLDER.sealed)
    assert moved.token == FILE.token.replace("/staging/", "/sealed/")
    assert (moved.final_path, moved.size) == (FILE.final_path, FILE.size)
    assert moved.moved(FOLDER.staging, FOLDER.sealed) == moved
    for token in (FOLDER.staging, f"{FOLDER.staging}2/x", f"x/{FOLDER.staging}/x", '{"path":"x"}'):
        other = StagedFile(final_path="x", token=token, size=1)
        assert other.moved(FOLDER.staging, FOLDER.sealed) == other


def test_a_file_belongs_to_the_write_in_whose_folder_it_lies_or_whose_upload_it_is() -> None:
    assert FILE.belongs_to(FOLDER)
    assert FILE.moved(FOLDER.staging, FOLDER.sealed).belongs_to(FOLDER)
    token = json.dumps({"path": FILE.final_path})
    assert StagedFile(final_path=FILE.final_path, token=token, size=1).belongs_to(FOLDER)
    assert not StagedFile(final_path="p/other.parquet", token=token, size=1).belongs_to(FOLDER)
    assert not StagedFile(final_path="p/other.parquet", token=FILE.token, size=1).belongs_to(FOLDER)


@pytest.mark.parametrize(
    "token",
    ["", "{", "{}", '{"path":null}', '{"path":["x"]}', '["x"]', '"x"', "x", '{"Path":"x"}', "{" * 9999],
)
def test_other_texts_are_no_uploads(token: str) -> None:
    assert not uploads(token, "x") and path_of_upload(token) == ""
    assert uploads('{"path":"x"}', "x") and path_of_upload('{"path":"x"}') == "x"


def test_the_plain_forms_have_these_names_and_no_others() -> None:
    plain = {"final": FILE.final_path, "token": FILE.token, "size": 7}
    assert FILE.to_plain() == plain
    assert StagedFile.from_plain(plain, path="cm/0") == FILE
    whole = written()
    assert whole.to_plain() == {"stat": whole.stat.to_plain(), "staged": plain, "new_keys": ""}
    assert WrittenFile.from_plain(whole.to_plain(), path="cm/0") == whole
    for wrong in (
        {**whole.to_plain(), "more": 1},
        {"staged": plain, "new_keys": ""},
        {"stat": whole.stat.to_plain(), "staged": plain},
        {**whole.to_plain(), "staged": {**plain, "size": -1}},
        {"stat": {}, "staged": plain, "new_keys": ""},
        {**whole.to_plain(), "new_keys": "no hashes"},
        {**whole.to_plain(), "new_keys": 1},
        {**whole.to_plain(), "staged": {"final": "x", "token": "x"}},
    ):
        with pytest.raises(CorruptTableError, match=r"^cm/0: expected") as refused:
            WrittenFile.from_plain(wrong, path="cm/0")
        assert refused.value.path == "cm/0"


def test_a_file_that_was_published_at_once_is_in_place_and_belongs_to_any_write_that_names_it() -> None:
    published = FILE.published()
    assert published.in_place and not FILE.in_place
    assert (published.final_path, published.size) == (FILE.final_path, FILE.size)
    assert published.belongs_to(FOLDER)
    assert not StagedFile(final_path=".hoodie/x", token=".hoodie/x", size=1).belongs_to(FOLDER)
