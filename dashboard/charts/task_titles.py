"""Names of downstream tasks for people."""

TASK_TITLES = {
    "arc_easy": "ARC-Easy",
    "arc_challenge": "ARC-Challenge",
    "hellaswag": "HellaSwag",
    "winogrande": "WinoGrande",
    "piqa": "PIQA",
    "boolq": "BoolQ",
    "lambada_openai": "LAMBADA (OpenAI)",
    "openbookqa": "OpenBookQA",
}


def task_title(task: str) -> str:
    """A task's name for people; one's own task is called as its file, without underscores."""
    return TASK_TITLES.get(task, task.replace("_", " "))
