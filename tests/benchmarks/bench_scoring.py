"""How many calibration windows go through the model while an audit is scored, forward and backward, and forward only?

    uv run python tests/benchmarks/bench_scoring.py [MODEL] [--preset NAME] [--analyses stability,domain,draws]

Counted at the model itself, over the scores of these analyses and of the audit, from an empty store; what they measure
afterwards is left out. Prints the counts of each and CPU seconds so far.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from typing import Any

from engine import Store, load_model
from engine.run.audit_plan import default_preset, preset
from engine.run.runner import Results
from engine.selectors import get_selector
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.audit.domain import draw_lines
from engine.studies.base import ANALYSES

SCORING = ("stability", "domain", "draws", "invariance")  # analyses that score text


class Windows:
    """Counts windows of scoring passes, which embed their tokens themselves."""

    def __init__(self, model: Any) -> None:
        self.backward = self.forward = 0
        model.register_forward_hook(self._count, with_kwargs=True)

    def _count(self, _: Any, __: Any, given: dict[str, Any], output: Any) -> None:
        if given.get("inputs_embeds") is None:
            return
        if output.logits.requires_grad:
            self.backward += len(given["inputs_embeds"])
        else:
            self.forward += len(given["inputs_embeds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--preset")
    parser.add_argument("--analyses", default=",".join(SCORING))
    args = parser.parse_args()
    loaded = load_model(args.model)
    seen = Windows(loaded.model)
    start = time.process_time()
    done = [0, 0]

    def tell(what: str) -> None:
        backward, forward = seen.backward - done[0], seen.forward - done[1]
        sys.stdout.write(f"{what:16} {backward:8,} {forward:8,} {time.process_time() - start:10.1f}\n")
        sys.stdout.flush()
        done[:] = seen.backward, seen.forward

    sys.stdout.write(f"{'':16} {'back':>8} {'forward':>8} {'CPU s':>10}\n")
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        audit = AuditInputs(loaded, preset(args.preset or default_preset(args.model)), store)
        studies = {name: ANALYSES.get(name).make(audit) for name in args.analyses.split(",")}
        for name, study in studies.items():
            if hasattr(study, "before_scores"):
                study.before_scores(audit)
                tell(f"before {name}")
        audit.scored  # noqa: B018 - computed here
        tell("scores")
        for name, study in studies.items():
            list(study.cells(audit, Results()))
            tell(name)
            if name == "domain":
                reads_text = [one for one in audit.scores if not get_selector(one).data_free]
                list(draw_lines(audit, reads_text, ("a", "b")))
                tell("domain, draws")
    sys.stdout.write(f"{'all':16} {seen.backward:8,} {seen.forward:8,}\n")


if __name__ == "__main__":
    main()
