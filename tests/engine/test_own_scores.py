"""Scores of one's own: every kind of file gives the same rows, what does not fit is one line, commands take a NAME."""

import hashlib
import io
import json
import pickle
import random
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch
from scipy.stats import spearmanr
from tiny_audits import lowest

from engine import ScorePlan, audit_scores, zeroed
from engine.cli import main
from engine.edits.contrasts import read_mask, spec_of
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.run.audit_plan import AuditPlan
from engine.selectors import own_scores
from engine.selectors.base import REGISTRY, selector_ids
from engine.studies.audit.verdicts import ANSWERS
from engine.studies.estimate_words import GLOSSARY, glossary_line

TEXT = ["--samples", "4", "--max-length", "16", "--eval-samples", "5", "--eval-length", "16"]


@pytest.fixture(scope="module")
def rows(tiny_llama):
    return tiny_llama.rows


@pytest.fixture(scope="module")
def values(rows):
    """One score per row that float32, float16 and bfloat16 hold alike, no two equal."""
    return np.random.default_rng(0).permutation(rows.n_rows).astype(np.float32).clip(0, 255) + np.float32(1)


def hooks(**more):
    """A file under TransformerLens' names, [4, size] heads; more: shapes of others."""
    kinds = {"q_proj": "attn.hook_q", "k_proj": "attn.hook_k", "v_proj": "attn.hook_v", "o_proj": "hook_attn_out",
             "gate_proj": "mlp.hook_pre", "up_proj": "mlp.hook_pre_linear", "down_proj": "hook_mlp_out"}  # fmt: skip

    def write(path, rows, values):
        shapes = {f"blocks.{one.block}.{kinds[one.projection]}": (one.rows,) for one in rows.layers}
        shapes |= {"blocks.0.attn.hook_k": (2, 6)} | more
        np.savez(path, **{name: np.ones(shape) for name, shape in shapes.items()})

    return write


def by_module(rows, values):
    return {layer.name: values[layer.start : layer.start + layer.rows] for layer in rows.layers}


def read(path, rows, reduce=None):
    own_scores.register([f"mine={path}"], reduce)
    return own_scores.draws("mine", rows)[0]


@pytest.fixture
def call(capsys):
    def run(*words):
        code = main([*map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err.strip()

    return run


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.safetensors", lambda path, rows, values: save_file(by_module(rows, values), path)),
        ("b.safetensors", lambda path, rows, values: save_file({"anything": values.astype(np.float64)}, path)),
        (
            "c.safetensors",
            lambda path, rows, values: save_torch(
                {f"{name}.weight": torch.tensor(one).bfloat16() for name, one in by_module(rows, values).items()}, path
            ),
        ),
        ("d.npz", lambda path, rows, values: np.savez(path, **by_module(rows, values.astype(np.float16)))),
        ("e.npz", lambda path, rows, values: np.savez_compressed(path, values.astype(np.int64))),
        (
            "f.parquet",
            lambda path, rows, values: (
                rows.frame().with_columns(score=pl.Series(values)).sample(fraction=1, shuffle=True).write_parquet(path)
            ),
        ),
        (
            "g.csv",
            lambda path, rows, values: (
                rows.frame().reverse().with_columns(score=pl.Series(values[::-1])).drop("row_id").write_csv(path)
            ),
        ),
        (
            "h.csv",
            lambda path, rows, values: pl.DataFrame({"row_id": range(rows.n_rows), "score": values}).write_csv(path),
        ),
    ],
)
def test_every_kind_of_file_gives_the_same_scores(tmp_path, rows, values, name, write):
    write(tmp_path / name, rows, values)
    found = read(tmp_path / name, rows)
    assert found.dtype == np.float32
    assert np.array_equal(found, values)


NODES = {f"A{block}.{head}": 1.5 + block + 4 * head for block in (0, 1) for head in range(4)}
NODES |= {"MLP 0": 9, "MLP 1": 0.25}


def nodes(**changed):
    """Writes a `*_scores.json` as CircuitKIT's `CircuitScores.to_json` does. changed: scores, None for none."""
    scores = {name: one for name, one in (NODES | {n.replace("_", " "): s for n, s in changed.items()}).items() if one}
    about = {"task": "ioi", "model": "tiny", "algorithm": "eap-ig", "level": "node", "version": "1.0"}
    record = {**about, "timestamp": "2026-01-01T00:00:00Z", "node_scores": scores, "discovery_cfg": {"ig_steps": 5}}
    return lambda path, rows, values: path.write_text(json.dumps(record, indent=2))


def test_names_of_other_tools_are_their_rows(tmp_path, rows, values, tiny_llama, tiny_windows):
    """TransformerLens' hooks and CircuitKIT's nodes: a row has the score of what stops where the row is removed."""
    hooks, named = {}, by_module(rows, values)
    for block in (0, 1):
        of, at = f"model.layers.{block}", f"blocks.{block}"
        hooks |= {f"{at}.attn.hook_{one}": named[f"{of}.self_attn.{one}_proj"].reshape(-1, 6) for one in "qkv"}
        hooks |= {f"{at}.hook_attn_out": named[f"{of}.self_attn.o_proj"]}
        hooks |= {f"{at}.mlp.hook_post": named[f"{of}.mlp.up_proj"], f"{at}.hook_mlp_out": named[f"{of}.mlp.down_proj"]}
    save_file(hooks, tmp_path / "lens.safetensors")
    expected = [named[one.name.replace("gate_proj", "up_proj")] for one in rows.layers]
    assert np.array_equal(read(tmp_path / "lens.safetensors", rows), np.concatenate(expected))
    starts = {layer.projection: layer.start for layer in rows.layers if layer.block == 1}
    neuron, logits = 5, []  # a neuron is dead without its gate row, and without its up row
    for start in (starts["gate_proj"], starts["up_proj"], rows.n_rows - 1 - neuron):
        with torch.no_grad(), zeroed(tiny_llama, np.array([start + neuron])):
            logits.append(tiny_llama.model(input_ids=tiny_windows.input_ids).logits)
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])

    nodes()(tmp_path / "ioi_scores.json", rows, values)
    (tmp_path / "bare_scores.json").write_text(json.dumps({"node_scores": NODES}))
    scores = read(tmp_path / "ioi_scores.json", rows)
    assert np.array_equal(scores, read(tmp_path / "bare_scores.json", rows))
    for layer in rows.layers:
        mine = scores[layer.start : layer.start + layer.rows]
        if layer.sublayer == "mlp":
            assert set(mine) == {np.float32(NODES[f"MLP {layer.block}"])}
        elif layer.projection == "o_proj":
            assert set(mine) == {np.float32(NODES[f"A{layer.block}.3"])}
        else:
            for row in range(layer.rows):
                heads = heads_changed(tiny_llama.model, tiny_windows.input_ids[:2], layer, row)
                assert mine[row] == max(NODES[f"A{layer.block}.{head}"] for head in heads)


def heads_changed(model, tokens, layer, row):
    """Heads of the block whose output in transformers' own pass is another one without this row."""
    seen, output, linear = [], model.model.layers[layer.block].self_attn.o_proj, model.get_submodule(layer.name)
    with torch.no_grad(), output.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone())):
        model(input_ids=tokens)
        with linear.register_forward_hook(lambda _, __, out: out.index_fill(-1, torch.tensor([row]), 0)):
            model(input_ids=tokens)
    moved = (seen[0] != seen[1]).unflatten(-1, (4, 6)).any(-1).flatten(0, 1).any(0)
    return moved.nonzero().flatten().tolist()


def pickled(path, rows, values):
    np.savez(path, np.array([{}], dtype=object))


def bomb(path, rows, values):
    """A header that names a terabyte, in a small entry, and an entry that unpacks to 70 MiB of zeros."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**38,)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", header.getvalue() + bytes(70 * 2**20))


def changed(change):
    """The scores by module, after `change(named)`."""

    def write(path, rows, values):
        named = by_module(rows, values.copy())
        change(named)
        save_file(named, path)

    return write


FIRST, LAST = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"


@pytest.mark.parametrize(
    ("name", "write", "said"),
    [
        ("a.safetensors", changed(lambda named: named.pop(LAST)), f"no scores of 1 of the model's 14 Linears ({LAST}"),
        ("b.safetensors", changed(lambda named: named.update(lm_head=np.ones(300, "f4"))), "'lm_head'"),
        ("c.safetensors", changed(lambda named: named[FIRST].__setitem__(3, np.nan)), f"1 numbers of {FIRST} are NaN"),
        ("d.safetensors", changed(lambda named: named.update({LAST: np.ones(9, "f4")})), "down_proj has 20 rows"),
        (
            "e.safetensors",
            changed(lambda named: named.update({f"{FIRST}.weight": np.ones(24, "f4")})),
            f"holds both {FIRST} and {FIRST}.weight",
        ),
        ("f.npz", lambda path, rows, values: np.savez(path, values[:-1]), "shape [287], the model 288 rows"),
        ("g.npz", lambda path, rows, values: np.savez(path, values + 0j), "holds complex64, expected real numbers"),
        ("h.npz", pickled, "holds object, expected real numbers"),
        ("i.npz", bomb, "unpack to"),
        ("j.npz", lambda path, rows, values: path.write_bytes(pickle.dumps(values)), "cannot be read as scores"),
        (
            "k.csv",
            lambda path, rows, values: pl.DataFrame({"row_id": [0, 0], "score": [1, 2]}).write_csv(path),
            "has 1 lines for a row that has one already",
        ),
        (
            "l.csv",
            lambda path, rows, values: pl.DataFrame({"row_id": range(289), "score": range(289)}).write_csv(path),
            "has 1 lines for rows that the model does not have (288)",
        ),
        (
            "m.parquet",
            lambda path, rows, values: rows.frame().head(280).with_columns(score=pl.lit(1)).write_parquet(path),
            "has 8 rows without a score, the first is row 280",
        ),
        ("q.json", lambda path, rows, values: path.write_text('{"heads": 1}'), "it has no node_scores"),
        ("r.json", nodes(**{"A0.0": True}), "'A0.0' is no number"),
        ("s.json", nodes(MLP_1=None), "has no score of MLP 1"),
        ("t.json", nodes(**{"A0.4": 1}), "5 heads in block 0"),
        ("u.json", nodes(**{"A2.0": 1}), "are already ('A2.0'"),
        (
            "v.safetensors",
            lambda path, rows, values: save_file({"blocks.0.attn.hook_q": values}, path),
            "blocks.0.attn.hook_q has 288 values, the model's model.layers.0.self_attn.q_proj has 24 rows",
        ),
        (
            "w.npz",
            lambda path, rows, values: np.savez(path, **{f"{name}.weight": 1.0 for name in by_module(rows, values)}),
            "has shape [], the model's model.layers.0.self_attn.q_proj has 24 rows",
        ),
        (
            "x.npz",
            lambda path, rows, values: np.savez(path, **{n[6:]: one for n, one in by_module(rows, values).items()}),
            "they differ by what stands before `layers`",
        ),
        (
            "y.npz",
            lambda path, rows, values: np.savez(path, values.astype(float) * 1e-60),
            "are too small for float32; multiply all",
        ),
        ("z.npz", hooks(**{"blocks.0.attn.hook_q": (6, 4)}), "heads of blocks.0 have sizes [4, 6]"),
        ("hooks.npz", hooks(**{"blocks.0.hook_embed": (5, 24)}), "are already ('blocks.0.hook_embed'"),
        ("n.csv", lambda path, rows, values: path.write_text("row,score\n1,2\n"), "its columns are row, score"),
        ("o.csv", lambda path, rows, values: path.write_text("row_id,score\n1,big\n"), "cannot be read as scores"),
        ("p.pt", lambda path, rows, values: torch.save(values, path), "ends with '.pt'; expected one of .safetensors"),
    ],
)
def test_what_does_not_fit_is_one_line(call, tmp_path, tiny_llama, rows, values, name, write, said):
    write(tmp_path / name, rows, values)
    code, _, err = call("score", tiny_llama.id, "--scores", f"mine={tmp_path / name}", "--selectors", "random",
                        "--store", tmp_path / "store")  # fmt: skip
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("given", ["mine", "=a.npz", "a b=a.npz", "lrp=a.npz", "mine=nowhere.npz"])
def test_names_and_places_are_checked(call, tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", np.ones(3))
    code, _, err = call("score", "demo", "--scores", given, "--store", tmp_path / "store")
    assert code == 2
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".parquet", ".csv"])
def test_damaged_files_are_told_or_read(tmp_path, rows, values, ending):
    """Whatever a file holds, it is scores or an InputError."""
    path, draw = tmp_path / f"a{ending}", random.Random(ending)
    {
        ".safetensors": lambda: save_file(by_module(rows, values), path),
        ".npz": lambda: np.savez_compressed(path, **by_module(rows, values)),
        ".parquet": lambda: rows.frame().with_columns(score=pl.Series(values)).write_parquet(path),
        ".csv": lambda: rows.frame().with_columns(score=pl.Series(values)).write_csv(path),
    }[ending]()
    whole = path.read_bytes()
    refused = list[str]()
    for number in range(150):
        content = bytearray(whole[: draw.randrange(len(whole))] if number % 3 == 0 else whole)
        for _ in range(draw.randint(1, 8)):
            if content:
                place = draw.randrange(len(content)) if number % 2 else draw.randrange(min(300, len(content)))
                content[place] = draw.randrange(256)
        path = tmp_path / f"{number}{ending}"
        path.write_bytes(content)
        try:
            assert np.isfinite(read(path, rows)).all()
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > 40
    assert "\n" not in "".join(refused)


def test_a_file_scores_as_the_selector_that_it_was_made_from(call, tmp_path, tiny_llama, tiny_text):
    """The curves of magnitude's scores, brought as a file under another name, are those of magnitude."""
    named = {
        layer.name: tiny_llama.model.get_submodule(layer.name).weight.abs().mean(1) for layer in tiny_llama.rows.layers
    }
    save_torch(named, tmp_path / "m.safetensors")
    words = ["--scores", f"mine={tmp_path / 'm.safetensors'}", "--rates", "0,30%,60%", "--corpus", tiny_text, *TEXT]
    code, _, err = call("sweep", tiny_llama.id, *words, "--out", tmp_path / "out", "--store", tmp_path / "s", "--json")
    assert code == 0, err
    sweep = pl.read_parquet(tmp_path / "out" / "sweep.parquet").drop("selector", "elapsed_s", strict=False)
    whole = pl.read_parquet(tmp_path / "out" / "sweep.parquet")
    assert whole["selector"].unique(maintain_order=True).to_list() == ["random", "magnitude", "wanda", "mine"]
    mine, ours = (sweep.filter(whole["selector"] == name) for name in ("mine", "magnitude"))
    assert mine.height == 6
    assert mine.equals(ours)
    assert "mine" not in selector_ids()  # afterwards


def test_masks_and_manifests(call, tmp_path, tiny_llama, rows, values):
    scores = np.random.default_rng(1).normal(size=rows.n_rows).astype(np.float32)  # below zero too
    files, mask = [tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "mask.safetensors"
    np.savez(files[0], scores)
    np.savez(files[1], np.sign(values - 9))
    words = ["mask", tiny_llama.id, "--scores", f"mine={files[0]}", "--scores", f"b={files[1]}", "--rate", "25%"]
    assert call(*words, "--selector", "mine", "--order", "lerf", "--out", mask, "--store", tmp_path / "s")[0] == 0
    removed, about = read_mask(mask, rows.n_rows)
    assert removed.tolist() == lowest(scores.tolist(), rows.n_rows // 4)
    recorded = spec_of(about)["scores"]["score_files"]
    assert recorded["mine"] == [{"file": "a.npz", "sha256": hashlib.sha256(files[0].read_bytes()).hexdigest()}]
    _, _, err = call("score", tiny_llama.id, "--scores", f"b={files[1]}", "--selectors", "b", "--store", tmp_path / "s")
    assert f"{rows.n_rows - 1} scores of b are equal to another one of them, and such rows go in the order of" in err


def test_one_ranking_per_seed(call, tmp_path, tiny_llama, rows):
    scores = np.random.default_rng(2).random((2, rows.n_rows)).astype(np.float32)
    np.savez(tmp_path / "a.npz", scores)
    words = ["score", tiny_llama.id, "--scores", f"mine={tmp_path / 'a.npz'}", "--selectors", "random"]
    words += ["--store", tmp_path / "s"]
    code, _, err = call(*words, "--out", tmp_path / "out")
    assert code == 2
    assert "has 2 rankings of mine, and the run has 3 seeds; give as many with --seeds 0,1" in err
    assert call(*words, "--seeds", "0,1", "--out", tmp_path / "out")[0] == 0
    assert np.array_equal(load_file(tmp_path / "out" / "scores.safetensors")["mine"], scores)


@pytest.fixture(scope="module")
def judged(tiny_llama, tiny_text, rows, tmp_path_factory):
    """`analyze verdict` on one file and on three, and the scores of the three."""
    folder = tmp_path_factory.mktemp("judged")
    draw = np.random.default_rng(3)
    base = draw.random(rows.n_rows)
    scores = [(base + 0.3 * draw.random(rows.n_rows)).astype(np.float32) for _ in range(3)]
    for number, one in enumerate(scores):
        np.savez(folder / f"{number}.npz", one)
    given = ["--scores", f"alone={folder}/0.npz", "--scores", f"three={folder}/0.npz,{folder}/1.npz,{folder}/2.npz"]
    words = [*given, "--corpus", str(tiny_text), *TEXT, *f"--sizes 2,4 --out {folder}/out --store {folder}/s".split()]
    assert main(["analyze", tiny_llama.id, *words, "verdict", "draws"]) == 0
    return folder, scores


@pytest.mark.long
def test_a_verdict_stands_beside_baselines(judged):
    folder, scores = judged
    verdicts = pl.read_parquet(folder / "out" / "verdicts.parquet")
    assert verdicts["selector"].to_list() == ["random", "magnitude", "wanda", "alone", "three"]
    alone, three = verdicts.filter(pl.col("selector").is_in(["alone", "three"])).iter_rows(named=True)
    assert alone["validity"] == three["validity"]  # the first file is what is judged
    assert (alone["stability"], three["stability"]) == ("unknown", "unknown")
    assert "stability between disjoint draws was not measured (one file" in alone["reasons"]
    assert "its 3 files agree by Spearman" in three["reasons"]
    assert "5 draws are asked for: give as many files" in three["reasons"]
    line = pl.read_parquet(folder / "out" / "draws.parquet").filter(selector="three", rate=0.3).row(0, named=True)
    pairs = [(0, 1), (0, 2), (1, 2)]
    assert line["spearman"] == pytest.approx(np.mean([spearmanr(scores[a], scores[b])[0] for a, b in pairs]))
    masks = [set(lowest(one.tolist(), round(0.3 * one.size))) for one in scores]
    assert line["jaccard"] == pytest.approx(
        np.mean([len(masks[a] & masks[b]) / len(masks[a] | masks[b]) for a, b in pairs])
    )
    assert (line["calibration_draws"], line["draw_size"], line["windows_available"]) == (3, None, None)
    drawn = pl.read_parquet(folder / "out" / "draw_sweep.parquet").filter(selector="three", order="lerf", rate=0.3)
    swept = pl.read_parquet(folder / "out" / "verdicts.parquet").filter(selector="three")["lerf_nll"][0]
    assert drawn.sort("draw")["nll"][0] == swept


@pytest.mark.long
def test_replay_wants_the_very_file(call, judged, tiny_text, tmp_path):
    folder, _ = judged
    words = ["replay", folder / "out", "--only", "scores", "--text", tiny_text]
    code, _, err = call(*words)
    assert code == 2
    assert "the scores alone were read from 0.npz (SHA-256 " in err
    assert call(*words, "--text", folder)[0] == 0  # where they lie
    (tmp_path / "0.npz").write_bytes((folder / "1.npz").read_bytes())
    code, _, err = call(*words, "--text", tmp_path / "0.npz")
    assert code == 2
    assert f"and {tmp_path / '0.npz'} has " in err


@pytest.mark.long
def test_a_score_that_is_nearly_one_of_ours_is_told_as_such(call, judged, tiny_llama, tiny_text, tmp_path):
    """By the table's Spearman; and the words of the reasons are explained below them."""
    modules = [tiny_llama.model.get_submodule(layer.name) for layer in tiny_llama.rows.layers]
    size = np.concatenate([module.weight.abs().mean(1).numpy() for module in modules])
    near = (size * (1 + 0.01 * np.random.default_rng(5).random(size.size))).astype(np.float32)
    np.savez(tmp_path / "0.npz", near)
    words = ["analyze", tiny_llama.id, "--scores", f"twin={tmp_path}/0.npz", "--corpus", tiny_text, *TEXT, "verdict"]
    _, out, _ = call(*words, *f"--sizes 2,4 --out {tmp_path}/o --store {judged[0]}/s".split())
    sentence = f"twin ranks the rows almost as magnitude does (Spearman {spearmanr(near, size)[0]:.3f})"
    assert f". {sentence}.\nLeRF: lowest scores go first; MoRF: highest scores go first; nats: " in out
    assert glossary_line("p after Holm, the masks' Jaccard").split("; ") == [GLOSSARY["Holm"], GLOSSARY["Jaccard"]]
    plan, given = AuditPlan(ScorePlan(corpus=str(tiny_text), samples=4, length=16)), {"twin": near, "far": -near}
    found = audit_scores(tiny_llama, given, ("agreement",), plan=plan, store=tmp_path / "s")
    opposed = (
        sentence.replace("twin", "far").replace("almost as", "almost in the reverse of how").replace("n 1", "n -1")
    )
    assert found.alike.pop("far") == f"{opposed}; if lower means more important in it, give its negative"
    assert found.alike == {"twin": sentence}
    assert f"<p>{sentence}.</p>" in found._repr_html_()


def test_another_file_is_another_key(call, tmp_path, tiny_llama, rows):
    """The same name and place with other bytes: what the store knows of the first is not taken for the second."""
    path, draw = tmp_path / "a.npz", np.random.default_rng(4)
    for _ in range(2):
        scores = draw.random(rows.n_rows).astype(np.float32)
        np.savez(path, scores)
        words = ["score", tiny_llama.id, "--scores", f"mine={path}", "--selectors", "random"]
        assert call(*words, "--out", tmp_path / "out", "--store", tmp_path / "s")[0] == 0
        assert np.array_equal(load_file(tmp_path / "out" / "scores.safetensors")["mine"], scores)


def test_a_name_belongs_to_the_thread_that_gave_it(tmp_path):
    """Two sessions of the app may call different files the same."""
    np.savez(tmp_path / "a.npz", np.ones(3))
    own_scores.register([f"mine={tmp_path / 'a.npz'}"])
    with ThreadPoolExecutor(1) as other:
        assert "mine" not in other.submit(selector_ids).result()
    assert "mine" in selector_ids()


@pytest.mark.long
def test_a_notebook_gets_what_the_command_says(tmp_path, judged, tiny_llama, tiny_text, capsys):
    folder, scores = judged
    scoring = ScorePlan(corpus=str(tiny_text), samples=4, length=16)
    plan = AuditPlan(scoring, eval_corpus=str(tiny_text), eval_samples=5, eval_length=16, stability_sizes=(2, 4))
    tensors = [torch.from_numpy(one) for one in scores]
    by_name = {name: torch.from_numpy(one) for name, one in by_module(tiny_llama.rows, scores[0]).items()}
    found = audit_scores(tiny_llama, {"alone": by_name, "three": tensors}, plan=plan, store=folder / "s")
    said = capsys.readouterr()
    assert said.out == ""
    assert "cells" in said.err  # a bar
    assert "three" in found._repr_html_()
    with pytest.raises(InputError, match="were not measured; ask for them"):
        found.plot()
    command = pl.read_parquet(folder / "out" / "verdicts.parquet")
    assert found.tables["verdicts"].drop("reasons").equals(command.drop("reasons"))
    first = command["reasons"][-1].split("; ")[0]
    assert repr(found).splitlines()[-2].startswith(f"three: {ANSWERS[command['validity'][-1]]}; {first}; specific: ")
    assert found.verdict.columns == ["selector", "validity", "specific", "stability", "reasons"]
    spec = read_manifest(found.folder)["files"]["scores.safetensors"]["spec"]
    assert spec["score_files"].keys() == {"alone", "three"}
    assert "three" not in REGISTRY.offered()
    for model, mine, refused in (
        (tiny_llama, {"mine": "what"}, "no tensors"), (tiny_llama, {"mine": [1.0, 2.0]}, "a list is one of draws"),
        (tiny_llama, {}, "got none"), (tiny_llama, {"mine": []}, "holds no tensor"),
        (tiny_llama.model, {"mine": by_name}, "what load_model gave, got LlamaForCausalLM"),
        (tiny_llama, {"mine": [by_name, tensors[0]]}, "hold the same scores; several files of one NAME are draws"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=refused):
            audit_scores(model, mine, "agreement", plan=plan, store=tmp_path / "other")
    assert len(list((folder / "s" / "score_files").iterdir())) == 4
    assert main(["replay", str(found.folder), "--only", "scores", "--text", str(tiny_text)]) == 0  # kept in the store
