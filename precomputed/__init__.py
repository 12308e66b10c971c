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


def paper_dir() -> Path:
    """Folder of the paper's published tables."""
    return _HERE / "paper"
