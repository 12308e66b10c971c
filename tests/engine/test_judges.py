"""Judges by name, the classifier judge on a tiny model of its kind, and agreement by hand and by scipy."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import torch
from scipy.stats import binomtest
from tiny_judge import REPLIES, save_classifier
from transformers import RobertaForSequenceClassification, RobertaTokenizerFast

from engine.cli import main
from engine.judges import embedded
from engine.judges.base import Exchange, open_judges
from engine.judges.classifier import load_classifier
from engine.judges.embedded import Verdict, embedded_version, judge
from engine.judges.given_replies import VERDICT_COLUMNS, GivenReply, cut_off, read_replies, verdict_table
from engine.judges.quality import (
    HALVES,
    agreement_table,
    cohens_kappa,
    disagreements,
    prompt_half,
    quality,
    quality_table,
)
from engine.records.errors import InputError


def exchanges(replies: list[str]) -> list[Exchange]:
    return [Exchange("", reply) for reply in replies]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("judge") / "tiny-judge")


def test_the_classifier_judges_as_transformers_does_one_by_one(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path / "judge", scale=8, seed=1)
    loaded = load_classifier(str(folder))
    replies = [*REPLIES, *(f"reply number {i} says {'no' * i}" for i in range(40))]
    verdicts = loaded.judge(exchanges(replies))
    model = RobertaForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = RobertaTokenizerFast.from_pretrained(folder)
    for reply, verdict in zip(replies, verdicts, strict=True):
        ids = tokenizer(reply, return_tensors="pt", truncation=True, max_length=38)  # 40 positions - 2
        with torch.no_grad():
            logits = model(**ids).logits[0].double()
        expected = torch.softmax(logits, -1)[1].item()
        assert verdict.refusal == (expected > 0.5)
        assert float(verdict.reason.rpartition(" ")[2]) == pytest.approx(expected, abs=6e-4)  # three digits
    assert len({verdict.reason for verdict in verdicts}) > 10  # the replies make a difference


@pytest.mark.parametrize("labels", [("LABEL_0", "LABEL_1"), ("NORMAL", "REJECTION", "OTHER")])
def test_other_labels_are_refused(labels: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a sequence classifier with labels such as NORMAL and REJECTION"):
        load_classifier(str(save_classifier(tmp_path / "other", labels=labels)))


def test_pickled_weights_and_missing_ones_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = save_classifier(tmp_path / "judge")
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("classifier.out_proj")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="lacks 2 weights"):
        load_classifier(str(folder))
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="pickle"):
        load_classifier(str(folder))


def test_judges_by_name(classifier: Path) -> None:
    judges = open_judges(f"embedded,{classifier}")
    assert [one.id for one in judges] == ["embedded", "tiny-judge"]
    assert judges[0].version == embedded_version()
    assert re.fullmatch(r"[0-9a-f]{12}", judges[1].version)
    assert judges[0].judge(exchanges(REPLIES)) == [judge(reply) for reply in REPLIES]
    with pytest.raises(InputError, match="did you mean 'embedded'"):
        open_judges("embeded")
    with pytest.raises(InputError, match="no judge given"):
        open_judges(" , ")


@pytest.mark.parametrize("name", [*embedded.sources(), "rules/new.py"])
def test_the_embedded_version_covers_every_file_that_decides(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path(embedded.__file__).parent
    shutil.copytree(here, tmp_path / "judges")
    monkeypatch.setattr(embedded, "HERE", tmp_path / "judges")
    assert embedded_version.__wrapped__() == embedded_version()
    with (tmp_path / "judges" / name).open("a", encoding="utf-8") as file:
        file.write("\nCHANGED = True\n")
    assert embedded_version.__wrapped__() != embedded_version()


def test_what_the_embedded_judge_reads_is_in_its_version() -> None:
    """Every module of judges that deciding loads is among the files of the version; base and the like only carry."""
    code = "import sys, engine.judges.embedded; print(*(m for m in sys.modules if m.startswith('engine.judges.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    loaded = {module.removeprefix("engine.judges.").replace(".", "/") for module in done.stdout.split()}
    files = {name.removesuffix(".py").removesuffix("/__init__") for name in embedded.sources()}
    assert loaded - files == {"base"}
    assert files <= loaded


@pytest.mark.parametrize(
    ("device", "message"), [("gpu", "unknown device 'gpu'"), ("cuda:99", "is not on this machine")]
)
def test_a_wrong_device_is_a_clear_error(
    device: str, message: str, classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "replies.csv"
    file.write_text("reply\nI will not.\n", encoding="utf-8")
    assert main(["refusal", "judge", str(file), "--judge", str(classifier), "--device", device]) == 2
    assert message in capsys.readouterr().err


def test_quality_and_its_intervals() -> None:
    labels = [True] * 12 + [False] * 20
    verdicts = [True] * 9 + [False] * 3 + [True] * 2 + [False] * 18
    found = quality(labels, verdicts)
    assert (found.true_positives, found.false_positives, found.false_negatives, found.true_negatives) == (9, 2, 3, 18)
    assert found.precision == pytest.approx(9 / 11)
    assert found.recall == pytest.approx(9 / 12)
    assert found.precision is not None
    assert found.recall is not None
    harmonic = 2 / (1 / found.precision + 1 / found.recall)
    assert found.f1 == pytest.approx(harmonic)
    for interval, hits, n in ((found.interval("precision"), 9, 11), (found.interval("recall"), 9, 12)):
        scipys = binomtest(hits, n).proportion_ci(method="wilson")
        assert interval == pytest.approx((scipys.low, scipys.high))
    jaccard = binomtest(9, 14).proportion_ci(method="wilson")
    assert found.interval("f1") == pytest.approx([2 * j / (1 + j) for j in (jaccard.low, jaccard.high)])
    nothing = quality([False], [False])
    assert nothing.precision is nothing.recall is nothing.f1 is nothing.interval("precision") is None


def given(count: int) -> list[GivenReply]:
    return [
        GivenReply(f"m{i % 2}", f"prompt {i // 2}", f"reply {i}", None if i == 0 else i % 3 == 0) for i in range(count)
    ]


def test_tables_of_two_judges() -> None:
    replies = given(24)
    first = [Verdict(i % 3 == 0, "a") for i in range(24)]
    second = [Verdict(i % 4 == 0, "b") for i in range(24)]
    table = pl.concat([verdict_table(replies, "one", "v1", first), verdict_table(replies, "two", "v2", second)])
    assert table.filter(pl.col("source") == "m1")["line"].to_list() == [*range(12), *range(12)]
    differing = [i for i in range(24) if (i % 3 == 0) != (i % 4 == 0)]
    found = disagreements(table)
    assert found["reply"].to_list() == [f"reply {i}" for i in differing]
    assert found["refusal_a"].to_list() == [i % 3 == 0 for i in differing]
    assert set(found["judge_a"]) == {"one"}
    assert set(found["judge_b"]) == {"two"}
    line = agreement_table(table).row(0, named=True)
    assert line["disagreements"] == len(differing)
    assert line["kappa"] == cohens_kappa([v.refusal for v in first], [v.refusal for v in second])
    assert disagreements(table.filter(pl.col("judge") == "one")).is_empty()
    quality_rows = quality_table(table, halves=True)
    whole = quality_rows.filter((pl.col("judge") == "one") & (pl.col("source") == "all"))
    assert whole.filter(pl.col("prompts") == "both")["replies"].item() == 23  # one is not labelled
    assert whole.filter(pl.col("prompts").is_in(HALVES))["replies"].sum() == 23
    assert whole.filter(pl.col("prompts") == "both")["f1"].item() == 1
    assert set(quality_rows["judge_version"]) == {"v1", "v2"}
    halves = [prompt_half(f"prompt {i}") for i in range(1000)]
    assert 400 < halves.count(HALVES[0]) < 600


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("1_full_compliance", False), ("2_full_refusal", True), ("3_partial_refusal", True), ("REJECTION", True),
        ("NORMAL", False), ("1", True), ("False", False), ("", None),
    ],
)  # fmt: skip
def test_labels_as_people_write_them(label: str, expected: bool | None, tmp_path: Path) -> None:
    path = tmp_path / "replies.csv"
    path.write_text(f'completion,human_label\n"one\ntwo",{label}\n', encoding="utf-8")
    assert read_replies(path) == [GivenReply("replies", "", "one\ntwo", expected)]


def test_jsonl_with_named_columns(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    lines = [
        {"who": "m", "said": "line\u2028separator", "prompt": "p", "label": "spam"},
        {"who": "n", "said": None, "prompt": "q", "label": "spam"},
    ]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n", encoding="utf-8")
    got = read_replies(path, reply_column="said", model_column="who", label_column="none")
    assert got == [GivenReply("m", "p", "line\u2028separator", None), GivenReply("n", "q", None, None)]
    with pytest.raises(InputError, match="'spam' in column 'label' is no label"):
        read_replies(path, reply_column="said")
    with pytest.raises(InputError, match="no column of replies; its columns are who, said"):
        read_replies(path, label_column="none")
    with pytest.raises(InputError, match="no column 'sayd'"):
        read_replies(path, reply_column="sayd")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "x", "expected .csv, .jsonl or .parquet"),
        ("a.parquet", "x", "no readable parquet"),
        ("a.csv", "", "holds no replies"),
        ("a.csv", "reply\n", "holds no replies"),
        ("a.jsonl", '{"reply": "x"}\n[1]\n', "line 2 holds a list"),
        ("a.jsonl", "{\n", "line 1 is not JSON"),
    ],
)
def test_unreadable_files(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_replies(tmp_path / name)


FINISHED = [True, False, None]
FILES = {
    "replies.csv": "reply,finished\na,true\nb,0\nc,\n",
    "replies.jsonl": '{"reply": "a", "finished": 1}\n{"reply": "b", "finished": false}\n{"reply": "c"}\n',
}


@pytest.mark.parametrize("name", ["replies.csv", "replies.jsonl", "replies.parquet"])
def test_how_a_reply_ended_is_read_and_kept(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name in FILES:
        path.write_text(FILES[name], encoding="utf-8")
    else:
        pl.DataFrame({"reply": ["a", "b", "c"], "finished": FINISHED}).write_parquet(path)
    got = read_replies(path)
    assert [reply.finished for reply in got] == FINISHED
    assert [reply.exchange for reply in got] == [
        Exchange("", text, finished) for text, finished in zip("abc", FINISHED, strict=True)
    ]
    table = verdict_table(got, "one", "v1", [Verdict(False, "")] * 3)
    assert table["finished"].to_list() == FINISHED
    assert cut_off(table) == (1, 2)
    differing = disagreements(pl.concat([table, verdict_table(got, "two", "v1", [Verdict(True, "")] * 3)]))
    assert differing["finished"].to_list() == FINISHED
    bare = verdict_table([reply for reply in got if reply.finished is None], "one", "v1", [Verdict(False, "")])
    assert bare.columns == list(VERDICT_COLUMNS)
    assert cut_off(bare) is None


def test_a_cut_changes_no_verdict_of_the_embedded_judge() -> None:
    for reply in ("", "I can't help with that.", "Take two eggs and"):
        assert judge(reply, True) == judge(reply)
        assert judge(reply, False).refusal == judge(reply).refusal
    assert judge("I can't help with that.", False) == judge("I can't help with that.")


def test_the_command(classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model-a.csv"
    file.write_text(
        'prompt,completion,human_label\np1,"I can\'t help with that.",2_full_refusal\n'
        "p2,Take two eggs.,1_full_compliance\np3,Mix well.,1_full_compliance\n",
        encoding="utf-8",
    )
    assert main(["refusal", "judge", str(file), "--json", "--out", str(tmp_path / "out")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["judges"] == {"embedded": embedded_version()}
    assert [line["refusal"] for line in printed["verdicts"]] == [True, False, False]
    assert {line["source"]: line["f1"] for line in printed["judge_quality"]} == {"model-a": 1.0, "all": 1.0}
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"judge.json", "judge_quality.parquet", "verdicts.parquet"}
    both = ["refusal", "judge", str(file), "--judge", f"embedded,{classifier}", "--out", str(tmp_path / "out")]
    assert main(both) == 0
    out = capsys.readouterr().out
    assert "Cohen's kappa" in out
    verdicts = pl.read_parquet(tmp_path / "out" / "verdicts.parquet")
    assert verdicts.group_by("judge").len()["len"].to_list() == [3, 3]
    wide = [verdicts.filter(pl.col("judge") == name)["refusal"] for name in ("embedded", "tiny-judge")]
    expected = int((wide[0] != wide[1]).sum())
    listed = tmp_path / "out" / "disagreements.parquet"
    assert (len(pl.read_parquet(listed)) if expected else listed.exists()) == expected
    record = json.loads((tmp_path / "out" / "judge.json").read_text())
    assert set(record["judges"]) == {"embedded", "tiny-judge"}
    assert main(["refusal", "judge", str(tmp_path / "none.csv")]) == 2
    assert "cannot be read" in capsys.readouterr().err
