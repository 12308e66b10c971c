"""Fixtures that all tests share. Models are loaded once per session; tests leave their weights as they were.

Two commands run everything, and `.ci/run` runs both: `uv run pytest` is for people, at most 5 minutes on two cores,
with a walk of a real browser over every page; `uv run pytest -m long` is the rest. Marked `long` is what needs more
than about ten seconds of a core and whose like is also in the first run: many rounds, near relatives of a model
family, processes that are killed or started afresh, and what opens pages in a browser but for the walk.
`first_run(pattern)` leaves those cases of a test in the first run whose id the pattern is in, and marks the others.

Browser tests (`*_browser.py`, marked `browser`) take `new_page` and open a path of the one app that their worker
serves; what it serves is the file's `store` (see tests/dashboard/conftest.py). Start no further server or browser.
"""

from __future__ import annotations

import gc
import json
import os
import random
import re
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

import pytest

# Bytecode is written once, not made by every worker and by every process that the tests start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# What a shell starts in the background ignores Ctrl-C, and so do its children; some tests send it to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["LANGUAGE"] = "C"  # argparse looks for translations on the disk, for every option of every parser

import shape_checks  # noqa: E402

shape_checks.watch()

# Before anything imports huggingface_hub: no test reaches for the network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["HF_ASSETS_CACHE"] = os.devnull  # and finds no documents that were kept on this machine
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tiny models are slower on several threads, and much slower when several processes share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from engine.data.corpora import Windows
    from engine.models.loading import LoadedModel

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3_text", "gemma3", "mistral", "phi", "olmo", "gpt_neox")
FIRST = ("llama", "gemma3", "gpt_neox")  # in the short run; the others are near relatives


# Files that take longest: they start first, so that all workers end together.
SLOW = (
    "test_harnesses.py", "test_wheel.py", "test_dashboard_watchdog.py", "test_dashboard_site_browser.py",
    "test_examples.py", "test_replay.py", "test_real_models.py", "test_dashboard_smollm2.py",
    "test_dashboard_browser.py", "test_dashboard_accessibility.py", "test_dashboard_audit_browser.py",
    "test_dashboard_rows_browser.py", "test_points_and_transfer.py", "test_refusal_grid.py",
    "test_refusal_commands.py", "test_pretend_device.py", "test_any_order.py",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="files, and tests within them, in a random order")


@pytest.fixture(scope="module", autouse=True)
def selectors_of_one_module() -> Iterator[None]:
    """Scores in files are selectors of the thread that named them; another file's tests have not named them."""
    with _of_one_run():
        yield


@pytest.fixture(autouse=True)
def selectors_of_one_test(selectors_of_one_module: None) -> Iterator[None]:
    with _of_one_run():
        yield


def _of_one_run() -> AbstractContextManager[None]:
    base = sys.modules.get("engine.selectors.base")
    return nullcontext() if base is None else base.REGISTRY.only_here()


@pytest.fixture(scope="session", autouse=True)
def every_module_imported() -> None:
    """A module that is first imported while a test patches names would bind what the test put there, for good."""
    for package in ("engine", "dashboard"):
        if package in sys.modules:
            for module in walk_packages(sys.modules[package].__path__, f"{package}."):
                if module.name not in ("engine.__main__", "dashboard.app"):  # these run something
                    import_module(module.name)
    gc.collect()
    gc.freeze()  # a million objects of libraries and collected tests, which no later collection has to walk through


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What collection makes stays, so that nothing is to be swept meanwhile."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    if (mark := item.get_closest_marker("first_run")) and not re.search(mark.args[0], item.callspec.id):  # type: ignore[attr-defined]
        item.add_marker(pytest.mark.long)


def _test_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("first_run")]
    first = {_test_of(item) for item in marked if not item.get_closest_marker("long")}
    if (lost := {_test_of(item) for item in marked} - first) and "::" not in "".join(config.args):
        raise pytest.UsageError(f"first_run leaves no case in the first run of {', '.join(sorted(lost))}")

    if (seed := config.getoption("--shuffle")) is not None:
        draw = random.Random(seed)
        files = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
        draw.shuffle(files)
        items[:] = [test for tests in files for test in draw.sample(tests, len(tests))]
        return

    def turn(item: pytest.Item) -> int:
        name = item.path.name
        if name in SLOW:
            return SLOW.index(name)
        return len(SLOW) + (not name.endswith("_browser.py"))

    items.sort(key=turn)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker per core; one more for long tests, of which some wait for a browser, a clock or a child process."""
    return len(os.sched_getaffinity(0)) + (config.option.markexpr == "long")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests stay together, since they share a store or a model. So do the browser tests of the short run:
    one worker starts the app and the browser for all of them."""
    from xdist.scheduler import LoadFileScheduling

    short = config.option.markexpr == "not long"

    class ByFile(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "browser" if short and file.endswith("_browser.py") else file

    return ByFile(config, log)


@pytest.fixture(scope="module")
def one_parser() -> Iterator[None]:
    """The command line is put together once for a file that calls it many times and registers nothing."""
    from engine import cli

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "build_parser", cache(cli.build_parser))
        yield


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A random Llama of two blocks, float32, CPU."""
    from tiny_models import load_tiny

    return load_tiny("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(
    scope="session", params=[name if name in FIRST else pytest.param(name, marks=pytest.mark.long) for name in FAMILIES]
)
def tiny_family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A random model of every supported family in turn, float32, CPU."""
    from tiny_models import load_tiny

    return load_tiny(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def float64_on_cpu(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Fails where a tensor becomes float64 that was not brought to the CPU before: MPS has no float64."""
    import torch

    moved: list[Tensor] = []
    to_cpu, to_double = torch.Tensor.cpu, torch.Tensor.double

    def cpu(tensor: Tensor) -> Tensor:
        moved.append(to_cpu(tensor))
        return moved[-1]

    def double(tensor: Tensor) -> Tensor:
        assert any(tensor is one for one in moved), "float64 before .cpu()"
        return to_double(tensor)

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    monkeypatch.setattr(torch.Tensor, "double", double)
    return moved


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    """Options of a short measurement: two pairs in each of two domains, and a store of its own."""
    lines = [
        {"risk": f"The {word} {number}", "base": f"A {word} {number}", "domain": domain, "split": "heldout"}
        for domain, word in (("hate", "cat"), ("crime", "dog"))
        for number in (1, 2)
    ]
    lines += [
        {**line, "risk": f"{line['risk']} sat", "base": f"{line['base']} sat", "split": "calibration"} for line in lines
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return ["--pairs", str(file), "--reply-tokens", "4", "--store", str(tmp_path / "store")]


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file of our own, documents separated by blank lines."""
    from tiny_models import text

    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(text(), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_windows(tiny_llama: LoadedModel, tiny_text: Path) -> Windows:
    """Six windows of 16 tokens of `tiny_text`; all tiny models share the tokenizer."""
    from engine.data.corpora import windows

    return windows(str(tiny_text), tiny_llama.tokenizer, role="calibration", samples=6, length=16)
