"""The structure of the code: imports point one way, nothing unpickles, and no machine's path is committed."""

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "rulax").rglob("*.py"))
# The rooms in their order (docs/read_in_this_order.md): a module imports only from its own room and from those above it.
ROOMS = [
    "errors",
    "own",
    "settings",
    "text",
    "files",
    "types",
    "parallel",
    "values",
    "envs",
    "agents",
    "metanet",
    "rules",
    "learning",
    "discovery",
    "evaluation",
    "methods",
    "records",
    "report",
    "commands",
    "api",
    "callbacks",
]
FRONT_DOOR = {"__init__", "__main__"}  # the package's own door opens on everything


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names) if node.module == "rulax" else [node.module]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def room_of(module):
    pieces = module.split(".")
    return pieces[1] if pieces[0] == "rulax" and len(pieces) > 1 and pieces[1] in ROOMS else None


def test_imports_point_one_way():
    wrong = []
    for path in FILES:
        own = path.relative_to(ROOT / "rulax").with_suffix("").parts[0]
        if own in FRONT_DOOR:
            continue
        assert own in ROOMS, f"{own} is a new room: give it a place in the order"
        for module in imported(path):
            room = room_of(module)
            if room and ROOMS.index(room) > ROOMS.index(own):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong, "these imports point the wrong way:\n" + "\n".join(wrong)


def test_the_commands_form_no_ring():
    """Inside of the command side imports form no ring either, not even one of imports that wait inside of a function."""
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES if "commands" in path.parts}
    files["rulax.api"] = ROOT / "rulax" / "api.py"
    needed = {module: set(modules_of(path)) & set(files) for module, path in files.items()}
    while free := {module for module, others in needed.items() if not others & set(needed)}:
        needed = {module: others for module, others in needed.items() if module not in free}
    assert not needed, f"a ring is among {sorted(needed)}"


def modules_of(path):
    """The modules that a file imports, where `from package import module` counts as both."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_file_opens_with_a_sentence():
    silent = [str(path.relative_to(ROOT)) for path in FILES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent


def test_nothing_unpickles():
    for path in FILES:
        assert not set(imported(path)) & {"pickle", "cloudpickle", "dill", "joblib", "shelve"}, path
        assert "allow_pickle=True" not in path.read_text(), path


def test_no_machine_is_named():
    """No absolute path of the machine that a file was written on."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    machine = re.compile(rb"(?<![\w.])/(?:root|work|home/\w+)/")
    named = [name for name in listed if (ROOT / name).is_file() and machine.search((ROOT / name).read_bytes())]
    assert not [name for name in named if name != str(Path(__file__).relative_to(ROOT))]


def test_no_half_of_a_merge_is_left() -> None:
    # Built from pieces, so that this file does not find itself.
    marks = "|".join(character * 7 + " " for character in "<>")
    found = subprocess.run(["git", "grep", "-nE", f"^({marks})"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not found.stdout, found.stdout
