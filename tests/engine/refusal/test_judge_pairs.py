"""Several judges on the same replies: every rate, agreement and kappa from the single verdicts, and the command."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tiny_judge import divided, save_classifier

from engine.cli import main
from engine.judges.base import Exchange, open_judges
from engine.judges.quality import cohens_kappa, kappa_interval
from engine.judges.refusals import Refused
from engine.records.manifest import read_manifest
from engine.results.tables import checked
from engine.stats.uncertainty import wilson
from engine.studies.refusal.transfer import judge_pairs

SMALL = [
    "--selectors", "lrp", "--domains", "hate", "--pairs-per-domain", "4", "--samples", "4", "--max-length", "32",
    "--reply-tokens", "8", "--heldout-pairs", "3", "--lambdas", "0.5", "--ks", "0.03", "--eval-samples", "2",
    "--eval-length", "64",
]  # fmt: skip
SETS = [("none", "hate", None, None), ("lrp", "hate", 0.5, 0.03), ("ig", "crime", 0.2, 0.01)]


def drawn(seed: int, n: int, marks: bool) -> Refused:
    generator = np.random.default_rng(seed)
    refused, judged = generator.random((2, n)) < np.array([[0.4], [0.8]])
    return Refused(
        tuple(map(bool, refused & judged if marks else refused)), (True,) * n, tuple(map(bool, judged)) if marks else ()
    )


def test_every_pair_and_set_from_single_verdicts() -> None:
    names, sizes = ("a", "b", "c"), (9, 5, 14)
    said = {
        key: [drawn(10 * place + judge, n, marks=judge == 2) for judge in range(3)]
        for place, (key, n) in enumerate(zip(SETS, sizes, strict=True))
    }
    sets = (((*key, "heldout", "malign"), verdicts) for key, verdicts in said.items())
    table = checked("judge_pairs", judge_pairs("m", names, sets), "here")
    assert table.height == 3 * 3 + 3
    for row in table.to_dicts():
        places = [row["judge_a"], row["judge_b"]]
        sets = [key for key in SETS if row["selector"] in (key[0], "all")]
        assert len(sets) == (3 if row["selector"] == "all" else 1)
        pairs, left_out = [], 0
        for key in sets:
            one, other = (said[key][names.index(name)] for name in places)
            for i in range(len(one.refused)):
                if (one.judged and not one.judged[i]) or (other.judged and not other.judged[i]):
                    left_out += 1
                else:
                    pairs.append((one.refused[i], other.refused[i]))
        n = len(pairs)
        assert (row["replies"], row["unjudged"]) == (n, left_out)
        for side, letter in enumerate("ab"):
            count = sum(pair[side] for pair in pairs)
            ends = (row[f"rate_{letter}_low"], row[f"rate_{letter}_high"])
            assert (row[f"rate_{letter}"], *ends) == (count / n, *wilson(count, n))
        same = sum(one == other for one, other in pairs)
        assert (row["agreement"], row["disagreements"]) == (same / n, n - same)
        assert (row["agreement_low"], row["agreement_high"]) == wilson(same, n)
        first, second = zip(*pairs, strict=True)
        assert row["kappa"] == cohens_kappa(first, second)
        assert (row["kappa_low"], row["kappa_high"]) == kappa_interval(first, second)
    assert table.filter(selector="all", judge_b="c")["unjudged"].min() > 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--judges", "embedded"], "--judges compares two or more, got 'embedded'"),
        (["--judges", "embedded,embeded"], "did you mean 'embedded'"),
        (["--judges", "embedded,minos", "--judge", "minos"], "name different first judges; leave --judge out"),
    ],
)
def test_judges_that_cannot_be_compared(
    given: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["refusal", "evaluate", "demo", *given, "--store", str(tmp_path)]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


@pytest.mark.long
def test_the_command_compares_judges_on_the_replies_that_it_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    common = ["refusal", "evaluate", "demo", *SMALL, "--store", str(tmp_path / "store"), "--out", str(out)]
    assert main([*common, "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert not (out / "judge_pairs.parquet").exists()
    replies = pl.read_parquet(out / "refusal_replies.parquet")
    folder = divided(save_classifier(tmp_path / "tiny"), [reply for reply in replies["reply"] if reply])
    judges = f"embedded,{folder}"
    assert main([*common, "--judges", judges, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["transfer"] == alone["transfer"]  # the first judge's rates
    assert pl.read_parquet(out / "refusal_replies.parquet").equals(replies)
    table = pl.read_parquet(out / "judge_pairs.parquet")
    assert table.to_dicts() == found["judge_pairs"]
    opened = open_judges(judges)
    spec = read_manifest(out)["files"]["judge_pairs.parquet"]["spec"]
    assert spec["judges"] == {one.id: one.version for one in opened}
    asked = [Exchange(*row) for row in replies.select("prompt", "reply", "finished").iter_rows()]
    said = replies.with_columns(
        pl.Series(f"verdict_{side}", [one.refusal for one in judge.judge(asked)])
        for side, judge in zip("ab", opened, strict=True)
    )
    assert said["verdict_a"].to_list() == said["refused"].to_list()
    assert table.height == replies.select("selector", "domain", "prompts", "kind").n_unique() + 1
    for row in table.to_dicts():
        keys = {name: row[name] for name in ("selector", "domain", "prompts", "kind") if row[name] != "all"}
        part = said.filter(**keys)
        a, b = part["verdict_a"].to_list(), part["verdict_b"].to_list()
        assert row["replies"] == len(part)
        assert (row["rate_a"], row["rate_b"]) == (sum(a) / len(a), sum(b) / len(b))
        assert row["kappa"] == cohens_kappa(a, b)
    assert main([*common, "--judges", judges]) == 0
    assert "two judges on the same replies" in capsys.readouterr().out
