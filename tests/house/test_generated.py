"""What is generated from the table of options is current, and right."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkrobust.formats import properties
from sparkrobust.options import OPTIONS, REFUSED, parse
from tools import docs

CONF = docs.ROOT / "conf"


def options_of(path: Path) -> dict[str, str]:
    return properties.parse(path.read_bytes(), path=str(path))


def test_the_readme_and_the_samples_are_current() -> None:
    assert docs.stale() == [], "run make docs"


@pytest.mark.parametrize("path", sorted(CONF.glob("*.properties")), ids=lambda path: path.name)
def test_a_sample_is_accepted_by_the_option_parser_and_all_of_it_is_acted_on(path: Path) -> None:
    parsed = parse(options_of(path))
    assert parsed.ignored == ()


def test_the_sample_of_every_option_has_them_all_and_its_values_are_the_defaults() -> None:
    text = (CONF / "every-option.properties").read_text()
    given = dict(line[1:].split("=", 1) for line in text.splitlines() if line.startswith("#hoodie."))
    assert set(given) == {option.key for option in OPTIONS}
    given = {key: value for key, value in given.items() if value}
    defaults = {option.field: option.default for option in OPTIONS if option.default is not None}
    parsed = parse(given)
    assert {field: getattr(parsed, field) for field in defaults} == defaults


def test_the_readme_has_a_row_for_every_option_alias_and_refusal() -> None:
    readme = (docs.ROOT / "README.md").read_text()
    for option in OPTIONS:
        names = "<br>".join(f"`{name}`" for name in (option.key, *option.aliases))
        rows = [line for line in readme.splitlines() if line.startswith(f"| {names} |")]
        assert rows and all(option.doc in row and option.default_text in row for row in rows)
    assert all(f"| `{refusal.key}` |" in readme for refusal in REFUSED)


def test_a_stale_sample_and_a_stray_one_are_found(tmp_path: Path) -> None:
    for folder in ("conf", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "README.md").write_text((docs.ROOT / "README.md").read_text())
    for path, text in docs.files(tmp_path).items():
        path.write_text(text)
    assert docs.stale(tmp_path) == []
    (tmp_path / "conf" / "upsert.properties").write_text("hoodie.table.name=other\n")
    (tmp_path / "conf" / "stray.properties").write_text("")
    assert [path.name for path in docs.stale(tmp_path)] == ["upsert.properties", "stray.properties"]
