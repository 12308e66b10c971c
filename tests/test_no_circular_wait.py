"""No Python function is called by polars' threads: they wait for the interpreter, whose holder may wait for them."""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import polars as pl
import pytest

ROOT = Path(__file__).resolve().parents[1]
BY_HAND = {"convert_runs.py"}  # never in a thread beside others
SOURCES = sorted(
    path
    for room in ("engine", "dashboard", "precomputed")
    for path in (ROOT / room).rglob("*.py")
    if path.name not in BY_HAND
)
# Their threads call a Python file's `write` (the other writers have one thread for it, which nobody waits for while
# holding the interpreter); seen to stop beside `to_pandas`. `Object`: columns of Python objects.
ALSO_CALLING = {"write_json", "write_avro", "write_ipc_stream", "Object"}
AT_ONCE = {"pipe"}  # called by Python itself, before polars does anything
ALSO_OF_OTHERS = {"map", "reduce", "fold", "rename"}  # methods of other things, or with names instead of a function


@cache
def calling_back():
    """What takes a Python function in the installed polars, by name; and the parameters that are given one."""
    found = {}
    for path in Path(pl.__file__).parent.rglob("*.py"):
        if any(part.startswith("_") for part in path.with_suffix("").parts[-3:] if part != "__init__"):
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "Callable[" in text else ():
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name not in AT_ONCE:
                for one in [*node.args.args, *node.args.kwonlyargs]:
                    if one.annotation is not None and "Callable[" in ast.unparse(one.annotation):
                        found.setdefault(node.name, set()).add(one.arg)
    return found


def is_a_function(node, local):
    return isinstance(node, ast.Lambda) or (isinstance(node, ast.Name) and node.id in local)


def waits(source):
    """Lines that have polars call Python, or that keep the interpreter while they wait for polars."""
    optional = {name for name, given in calling_back().items() if name.startswith(("read_", "scan_"))}
    always = calling_back().keys() - optional - ALSO_OF_OTHERS | ALSO_CALLING
    if not any(name in source for name in {*optional, *always, *ALSO_OF_OTHERS, "to_pandas"}):
        return
    tree = ast.parse(source)
    local = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            through_arrow = isinstance(node.value, ast.Call) and getattr(node.value.func, "attr", "") == "to_arrow"
            if node.attr in always or (node.attr == "to_pandas" and not through_arrow):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "polars":
            if {alias.name for alias in node.names} & {*always, *ALSO_OF_OTHERS}:
                yield node.lineno
        elif isinstance(node, ast.Constant) and node.value in always:  # `getattr`
            yield node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, given = node.func.attr, [*node.args, *(word.value for word in node.keywords)]
            if name in ALSO_OF_OTHERS and any(is_a_function(one, local) for one in given):
                yield node.lineno
            if name in optional and {word.arg for word in node.keywords} & calling_back()[name]:
                yield node.lineno


def test_polars_calls_no_python():
    found = {str(path.relative_to(ROOT)): list(waits(path.read_text(encoding="utf-8"))) for path in SOURCES}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "frame.select(pl.col('a').map_elements(str))", "frame['a'].map_elements(str)",
        "frame['a'].rolling_map(sum, 3)", "pl.col('a').map_batches(function)", "pl.map_batches(['a'], function)",
        "frame.lazy().map_batches(function)", "frame.map_rows(function)", "frame.map_columns('a', function)",
        "frame.group_by('a').map_groups(function)", "pl.map_groups(['a'], function)",
        "pl.col('a').name.map(lambda name: name)", "pl.col('a').name.map_fields(function)",
        "frame.rename(lambda name: name)", "def upper(name): ...\nframe.rename(upper)",
        "pl.fold(0, lambda a, b: a + b, exprs=names)", "pl.reduce(lambda a, b: a + b, exprs=names)",
        "pl.cum_fold(0, function, exprs=names)", "pl.read_csv(path, with_column_names=function)",
        "frame.lazy().sink_batches(function)", "from polars.io.plugins import register_io_source",
        "from polars import map_groups as grouped", "getattr(pl.col('a'), 'map_elements')(str)",
        "told = pl.Expr.map_elements", "pl.Series(values, dtype=pl.Object)", "frame.to_pandas()",
        "frame.write_json(io.BytesIO())", "frame.write_ipc_stream(buffer)",
    ],
)  # fmt: skip
def test_what_would_wait_is_seen(line):
    assert list(waits(line))


@pytest.mark.parametrize(
    "line",
    ["frame.rename({'a': 'b'})", "path.rename(other)", "pool.map(len, texts)", "pl.read_csv(path)",
     "frame.to_arrow().to_pandas()", "frame.pipe(function)", "functools.reduce(operator.or_, sets)"],
)  # fmt: skip
def test_what_waits_for_nothing_is_allowed(line):
    assert not list(waits(line))


CIRCLE = """
import faulthandler, threading, time
import polars as pl
from dashboard.charts import formats
from dashboard.charts.sortable import sortable
from dashboard.show import shown_tables as tables, tools
from streamlit import dataframe_util
faulthandler.dump_traceback_later(12, exit=True)
frame = pl.DataFrame({"nll": [2.0 + i for i in range(14)], "name": [f"m{i}" for i in range(14)]})
table = sortable(frame.head(2), frame.head(2))
end = time.monotonic() + 2
def in_expressions():  # as a plug-in might
    frame.select(*(pl.col("nll").map_elements(str, return_dtype=pl.String).alias(f"t{k}") for k in range(6)))
def as_pages():
    WORK
def again(work):
    while time.monotonic() < end:
        work()
as_pages()
threads = [threading.Thread(target=again, args=(one,)) for one in (in_expressions, *[as_pages] * 3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def ends(work):
    environment = {**os.environ, "POLARS_MAX_THREADS": "2", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-W", "ignore", "-c", CIRCLE.replace("WORK", work)]
    found = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert not found.returncode or "Timeout (0:00:12)!" in found.stderr, found.stderr
    return not found.returncode


@pytest.mark.long
def test_tables_of_pages_wait_for_nothing_that_waits_for_them():
    """Even beside a plug-in that does have polars call Python."""
    assert ends(
        "tables._styled(table); dataframe_util.convert_anything_to_arrow_bytes(frame); "
        "tools._parquet(frame); frame.write_csv()"
    )


@pytest.mark.long
def test_a_circle_is_seen():
    assert not ends("frame.to_pandas()")
