"""The rules of docs/architecture.md, held against the syntax tree of every module of the package."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "sparkrobust"

# What each layer may import of our own, besides itself.  Top-level modules are layers too.
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "world": set(),
    "remembered": set(),
    "probe": set(),
    "core": {"errors"},
    "options": {"errors"},
    "formats": {"errors", "core"},
    "storage": {"errors", "core", "formats", "world"},
    "handles": {"errors", "core", "formats", "storage", "world", "remembered", "probe"},
    "coordinator": {"errors", "core", "formats", "storage", "world", "remembered", "probe", "options"},
    "spark": {"errors", "core", "formats", "storage", "world", "probe", "options", "handles", "coordinator"},
    "testing": {"errors", "core", "formats", "storage", "world"},
    "cli": {"errors", "storage", "world", "options", "coordinator"},
    "__main__": {"cli"},
}
# Third-party packages and the only layers that may import them.
PLACES: dict[str, set[str]] = {
    "pyspark": {"spark"},
    "py4j": set(),
    "fastavro": {"formats"},
    "fsspec": {"storage"},
    "boto3": {"storage"},
    "botocore": {"storage"},
    "obstore": {"storage"},
    "hdfs_native": {"storage"},
    "kazoo": {"storage"},
    "typer": {"cli"},
    "rich": {"cli", "spark"},
    "pyarrow": {"formats", "handles", "spark", "testing"},
    "pytest": {"testing"},
    "hypothesis": {"testing"},
    "pandas": set(),
    "numpy": set(),
}
OPTIONAL = {"boto3", "botocore", "fsspec", "hdfs_native", "kazoo", "obstore", "numpy", "rich"}
"""Packages that may be missing, so that importing them inside a function is right."""
CHANCE = {
    "time",
    "random",
    "secrets",
    "uuid.uuid1",
    "uuid.uuid4",
    "datetime.now",
    "datetime.utcnow",
    "date.today",
    "os.urandom",
}
PROVIDES_CHANCE = {"world.py"}
MAKES_TEST_DATA = {"testing"}
LOADS_BY_NAME = {"__init__.py", "storage/s3_settings.py", "storage/azure_settings.py"}
"""The public surface, whose names are loaded when used; and the clients of stores, the same."""
PURE = {"core", "errors", "options"}
NOT_PURE = {
    "asyncio",
    "ctypes",
    "http",
    "io",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "pickle",
    "random",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib",
}
JVM = {"_jvm", "_jsc", "_jdf", "_jsparkSession", "rdd"}
DRIVER_ONLY = (
    "fastavro",
    "fsspec",
    "boto3",
    "botocore",
    "hdfs_native",
    "obstore",
    "pandas",
    "numpy",
    "hypothesis",
    "pytest",
)
EXECUTOR_LAYERS = ("core", "storage", "handles")


@dataclass(frozen=True, kw_only=True)
class Module:
    path: Path
    tree: ast.Module

    @property
    def name(self) -> str:
        return self.path.relative_to(PACKAGE).as_posix()

    @property
    def layer(self) -> str:
        return self.path.relative_to(PACKAGE).parts[0].removesuffix(".py")

    def imports(self) -> Iterator[tuple[str, ast.stmt]]:
        """Every module named by an import statement, with the statement."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}:{node.lineno}: a relative import"
                for alias in node.names:
                    yield (
                        (f"{node.module}.{alias.name}" if node.module == "sparkrobust" else str(node.module)),
                        node,
                    )

    def attributes(self) -> Iterator[tuple[str, ast.Attribute]]:
        """Dotted names of two parts, like ``os.urandom``."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                yield f"{node.value.id}.{node.attr}", node


def modules() -> list[Module]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [Module(path=path, tree=ast.parse(path.read_text(), str(path))) for path in paths]


MODULES = modules()
every_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)


def inside_functions(tree: ast.Module) -> Iterator[ast.stmt]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from (node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom))


def for_types_only(tree: ast.Module) -> set[ast.stmt]:
    """Imports under ``if TYPE_CHECKING``, which never run."""
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    return {
        inner
        for block in blocks
        for part in block.body
        for inner in ast.walk(part)
        if isinstance(inner, ast.stmt)
    }


def test_the_package_has_no_layer_that_the_rules_do_not_know() -> None:
    assert {module.layer for module in MODULES} - {"__init__"} <= set(LAYERS)


@every_module
def test_a_layer_imports_only_from_layers_under_it(module: Module) -> None:
    if module.layer == "__init__":
        return
    allowed = LAYERS[module.layer] | {module.layer}
    for name, node in module.imports():
        parts = name.split(".")
        if parts[0] == "sparkrobust" and parts[1:] != ["__version__"]:
            assert len(parts) > 1 and parts[1] in allowed, f"{module.name}:{node.lineno} imports {name}"


@every_module
def test_third_party_packages_are_imported_in_their_one_layer_only(module: Module) -> None:
    for name, node in module.imports():
        top = name.split(".")[0]
        where = f"{module.name}:{node.lineno} imports {name}"
        if top in PLACES:
            assert module.layer in PLACES[top], where
        else:
            assert top in sys.stdlib_module_names or top == "sparkrobust" or top in OPTIONAL, where


@every_module
def test_the_deciding_modules_have_no_io_threads_clock_or_chance(module: Module) -> None:
    if module.layer not in PURE:
        return
    for name, node in module.imports():
        assert name.split(".")[0] not in NOT_PURE, f"{module.name}:{node.lineno} imports {name}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("open", "input", "print"), f"{module.name}:{node.lineno} does I/O"


@every_module
def test_time_and_chance_come_from_one_place(module: Module) -> None:
    if module.name in PROVIDES_CHANCE or module.layer in MAKES_TEST_DATA:
        return
    for name, node in module.imports():
        assert name.split(".")[0] not in CHANCE, f"{module.name}:{node.lineno} imports {name}"
    for name, attribute in module.attributes():
        assert name not in CHANCE, f"{module.name}:{attribute.lineno} uses {name}"


@every_module
def test_only_optional_packages_are_imported_inside_functions(module: Module) -> None:
    for node in inside_functions(module.tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.split(".")[0] in OPTIONAL, f"{module.name}:{node.lineno} imports {name} in a function"


@every_module
def test_imports_by_name_at_run_time_load_our_own_modules_or_optional_packages(module: Module) -> None:
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called not in ("import_module", "__import__"):
            continue
        where = f"{module.name}:{node.lineno}"
        if module.name not in LOADS_BY_NAME:
            assert isinstance(node.args[0], ast.Constant), f"{where} imports what can't be read here"
            assert str(node.args[0].value).split(".")[0] in OPTIONAL, where


@every_module
def test_nothing_reaches_for_the_jvm_or_an_rdd(module: Module) -> None:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            assert node.attr not in JVM, f"{module.name}:{node.lineno} uses {node.attr}"


@every_module
def test_nothing_is_unpickled(module: Module) -> None:
    for name, node in module.imports():
        assert name.split(".")[0] not in ("pickle", "cloudpickle", "marshal", "shelve", "dill"), (
            f"{module.name}:{node.lineno} imports {name}"
        )


@every_module
def test_a_module_can_be_read_in_one_sitting(module: Module) -> None:
    assert len(module.path.read_text().splitlines()) <= 500


@every_module
def test_the_values_of_the_lower_layers_are_frozen(module: Module) -> None:
    """But private ones, which a function fills in."""
    if module.layer not in ("core", "options", "formats", "handles"):
        return
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        for decorator in node.decorator_list:
            called = isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "dataclass"
            given = {keyword.arg for keyword in decorator.keywords} if called else set()  # type: ignore[union-attr]
            bare = isinstance(decorator, ast.Name) and decorator.id == "dataclass"
            assert not bare and (not called or "frozen" in given), f"{module.name}:{node.lineno}: {node.name}"


def on_executors(module: Module) -> bool:
    return module.layer in EXECUTOR_LAYERS or module.name == "spark/tasks.py"


def test_what_executors_import_needs_only_the_standard_library_pyarrow_and_spark() -> None:
    """In an interpreter where everything else that a driver has is hidden."""
    names = [
        ".".join(("sparkrobust", *module.path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        for module in MODULES
        if on_executors(module)
    ]
    program = f"""
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {DRIVER_ONLY!r}:
            raise ImportError("hidden: " + name)

sys.meta_path.insert(0, Hidden())
import importlib
for name in {names!r}:
    importlib.import_module(name)
print(len({names!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(names) > 10


def test_the_public_names_are_loaded_only_when_they_are_used() -> None:
    program = "import sys, sparkrobust; print('pyspark' in sys.modules, 'fastavro' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.split() == ["False", "False"], done.stderr


@pytest.mark.parametrize(
    ("path", "source", "rule"),
    [
        ("core/x.py", "from sparkrobust.storage.contract import Storage", "imports_only_from_layers_under"),
        ("formats/x.py", "import sparkrobust.spark.writer", "imports_only_from_layers_under"),
        ("handles/x.py", "import pyspark", "third_party"),
        ("storage/x.py", "import fastavro", "third_party"),
        ("spark/x.py", "import requests", "third_party"),
        ("core/x.py", "import threading", "deciding_modules"),
        ("options/x.py", "open('x')", "deciding_modules"),
        ("storage/x.py", "from time import sleep", "time_and_chance"),
        ("coordinator/x.py", "datetime.now()", "time_and_chance"),
        ("spark/x.py", "def f():\n    import json", "only_optional_packages"),
        ("spark/x.py", "import importlib\nimportlib.import_module(name)", "imports_by_name"),
        ("spark/x.py", "df.rdd.map(f)", "reaches_for_the_jvm"),
        ("formats/x.py", "import pickle", "unpickled"),
        ("core/x.py", "@dataclass\nclass X:\n    pass", "values_of_the_lower_layers"),
    ],
)
def test_each_rule_finds_what_breaks_it(path: str, source: str, rule: str) -> None:
    broken = Module(path=PACKAGE / path, tree=ast.parse(source))
    (check,) = [check for name, check in globals().items() if name.startswith("test_") and rule in name]
    with pytest.raises(AssertionError):
        check(broken)
