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
    return TASK_TITLES.get(task, task.replace("_", " "))
