"""The shape of the code: sizes, import order, and that nothing names a machine or unpickles."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "rulax").rglob("*.py"))
# A module imports only from its own layer or from those above.
LAYERS = [
    {"settings"},
    {"types"},
    {"envs"},
    {"agents"},
    {"rules", "metanet"},  # a discovered rule is a meta-network, which reads values as every rule does
    {"learning"},
    {"discovery"},
    {"evaluation"},
    {"methods"},  # a method is judged by references, which stand in evaluation
    {"run", "report"},  # a run ends with a page, and a page is made from a run's folder
]
LAYER = {name: index for index, names in enumerate(LAYERS) for name in names}


def name(path):
    return str(path.relative_to(ROOT))


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_and_functions_fit_on_a_screen(path):
    source = path.read_text()
    assert source.count("\n") <= 300, f"{name(path)} has more than 300 lines: split it"
    for function in functions(ast.parse(source)):
        length = function.end_lineno - function.lineno + 1
        assert length <= 60, f"{name(path)}: {function.name} has {length} lines"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_say_where_they_stand(path):
    assert ast.get_docstring(ast.parse(path.read_text())), f"{name(path)} does not open with a sentence"


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_imports_point_one_way(path):
    parts = path.relative_to(ROOT / "rulax").with_suffix("").parts
    if parts[0] not in LAYER:
        return  # the package's front door may import everything
    for module in imported(ast.parse(path.read_text())):
        pieces = module.split(".")
        if pieces[0] == "rulax" and len(pieces) > 1 and pieces[1] in LAYER:
            assert LAYER[pieces[1]] <= LAYER[parts[0]], f"{name(path)} imports {module}, which stands after it"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_nothing_unpickles(path):
    source = path.read_text()
    assert not set(imported(ast.parse(source))) & {"pickle", "cloudpickle", "dill", "joblib", "shelve"}
    assert "allow_pickle=True" not in source
