"""Where numbers come from, in one line for the foot of a page."""

from typing import Any

from engine.data.window_starts import start_in_words
from engine.records.manifest import shortfalls
from engine.records.model_names import model_name


def describe_run(manifest: dict[str, Any], entry: dict[str, Any]) -> str:
    """One line: what was published; or model, revision, weights, dtype, what was measured, when, by which software."""
    if "published" in manifest:
        return str(entry.get("what", "Published values."))
    model = manifest.get("model") or {}
    environment = entry.get("environment") or {}
    spec = entry.get("spec") or {}
    corpus = spec.get("evaluation") or spec.get("corpus") or spec.get("eval_corpus")
    text = _text(spec)
    if isinstance(corpus, dict):
        corpus = corpus.get("corpus") or corpus.get("id")
    intervention = (spec.get("settings") or {}).get("intervention")
    scores = spec.get("scores")
    skipped = (scores if isinstance(scores, dict) else spec).get("skip_first")
    parts = [
        f"Model {model_name(model) if model.get('id') else 'unknown'}",
        f"revision {str(model['revision'])[:12]}" if model.get("revision") else None,
        f"weights {str(model['weights_hash'])[:12]}" if model.get("weights_hash") else None,
        f"{model['dtype']}" if model.get("dtype") else None,
        f"evaluated on {corpus}" if corpus else None,
        f"window start {start_in_words(text)}" if text else None,
        f"rows changed by {intervention}" if intervention not in (None, "zero") else None,
        f"thinking {spec['thinking_mode']}" if spec.get("thinking_mode") else None,
        f"scores without the first {skipped} positions of each window" if skipped else None,
        f"measured {str(entry['date'])[:10]}" if entry.get("date") else None,
        *software(environment),
        f"torch {environment['libraries']['torch']}" if (environment.get("libraries") or {}).get("torch") else None,
        *shortfalls(spec),
    ]
    return " · ".join(part for part in parts if part)


def software(environment: dict[str, Any]) -> list[str]:
    """`selector-audit 1.2`, `commit 0123456789+changes`; each where it is known."""
    version, commit = environment.get("selector-audit"), str(environment.get("git_commit") or "")
    changes = "+changes" if commit.endswith("+changes") else ""
    return [f"selector-audit {version}"] * bool(version) + [f"commit {commit[:10]}{changes}"] * bool(commit)


def before_windows(manifest: dict[str, Any], entry: dict[str, Any]) -> tuple[int, ...] | None:
    """The tokens before each window of the text behind a table, () for none; None where nobody knows."""
    text = _text(entry.get("spec") or {})
    return None if "published" in manifest or text is None else tuple(text.get("window_prefix", ()))


def _text(spec: dict[str, Any]) -> dict[str, Any] | None:
    """The record of the text that was measured, else of that behind the scores."""
    scores = spec.get("scores")
    found = spec.get("evaluation") or (scores if isinstance(scores, dict) else spec).get("calibration")
    return found if isinstance(found, dict) else None
