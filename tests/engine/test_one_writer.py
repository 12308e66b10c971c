"""One module writes files, and whoever asks it says which kind."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Calls that write or remove, and where else they may stand: they touch what is this software's own there.
METHODS = {
    "write_text", "write_bytes", "unlink", "rmdir", "touch", "symlink_to", "hardlink_to", "save_file",
    "save_pretrained", "write_csv", "write_parquet", "write_ndjson", "write_ipc", "sink_parquet", "sink_csv",
    "savez", "write_html", "write_image",
}  # fmt: skip
FUNCTIONS = {
    "os": {"replace", "rename", "renames", "remove", "unlink", "link", "symlink", "truncate", "rmdir", "removedirs"},
    "shutil": {"rmtree", "copyfile", "copy", "copy2", "copytree", "move"},
}
NAMES = {*METHODS, *set().union(*FUNCTIONS.values()), "open", "fdopen", "memmap"}
ELSEWHERE = {
    "engine/records/files.py": "this is the place",
    "engine/records/processes.py": "temporary folders with a lock that nobody holds",
    "engine/results/running.py": "records of runs in a store, under names of 24 digits whose lock nobody holds",
    "engine/edits/exporting.py": "copies into the new folder, and rows of these copies",
    "engine/results/cells.py": "the index, whose new folder is its own; entries set aside have free names",
    "engine/results/damage.py": "moves damaged entries to free names",
    "engine/models/resumed_downloads.py": "parts of files in the hub's cache, under the hub's names",
    "engine/models/gguf_files.py": "a temporary folder of its own, moved to the store's under a hash",
    "engine/models/downloads.py": "unfinished files of this process in the hub's cache",
    "engine/commands/replay.py": "the mark in a store, which is known to be one",
    "dashboard/state/jobs.py": "a temporary folder of its own",
    "dashboard/pages/runs/catalogue.py": "deletes what a manifest of ours lists, asked by its reader",
    "dashboard/pages/runs/importing.py": "a hidden folder of its own, which takes a free name",
    "dashboard/pages/rows/row_cell.py": "a temporary folder of its own",
}


def writers(tree: ast.AST) -> Iterator[str]:
    """The calls that write to, remove or rename a file; not those into a buffer."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", getattr(node.func, "id", "")) not in NAMES:
            continue
        of, _, name = ast.unparse(node.func).rpartition(".")
        given = [*node.args, *(one.value for one in node.keywords)]
        words = [one.value for one in given if isinstance(one, ast.Constant)]
        writes = any(isinstance(one, str) and re.fullmatch("[rbt]*[wax+][bt+]*", one) for one in words)
        into_a_buffer = any(ast.unparse(one) == "buffer" for one in node.args)
        moves = name == "rename" and bool(node.args) and isinstance(node.args[0], ast.BinOp)  # tables have it as well
        opens = name in ("open", "fdopen", "memmap") and writes
        if opens or moves or (of and name in METHODS and not into_a_buffer) or name in FUNCTIONS.get(of, ()):
            yield name


def test_one_module_writes() -> None:
    found = {}
    for room in ("engine", "dashboard"):
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if any(name in text for name in NAMES) and (names := sorted(set(writers(ast.parse(text))))):
                found[path.relative_to(ROOT).as_posix()] = names
    assert {path: names for path, names in found.items() if path not in ELSEWHERE} == {}
    assert set(ELSEWHERE) <= set(found), "no longer writes"
