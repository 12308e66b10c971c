"""Where the shipped files are: the one place of the engine that knows the package `precomputed`."""

from precomputed import demo_dir, demo_model_dir, demo_tasks_dir, paper_runs_dir

__all__ = ["demo_dir", "demo_model_dir", "demo_tasks_dir", "paper_runs_dir"]
