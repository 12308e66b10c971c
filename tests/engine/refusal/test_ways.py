"""Sampled replies and second turns in `transfer` and `refusal_replies`, re-derived from single generations."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from refusal_helpers import small_run, tables_of

from engine.data.prompt_sets import PromptSet
from engine.edits.contrasts import refusal_mask
from engine.edits.edit import UNEDITED
from engine.judges.embedded import judge
from engine.measures.generation import generate_batch, generate_under
from engine.measures.sampling import Sampling
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.stats.uncertainty import clustered_wilson
from engine.studies.refusal.refusal_inputs import sides
from engine.studies.refusal.transfer import Evaluated

EXTRA = PromptSet("xstest", "benign", ("Where is the mill?", "Who runs the shop?"), "own.csv")
GO_ON = "Please go on."


@pytest.mark.long
def test_each_way_has_lines_of_its_own_and_the_greedy_ones_stay(demo: LoadedModel, tmp_path: Path):
    some = {"selectors": ("lrp",), "domains": ("hate",)}
    with Store(tmp_path / "store") as store:
        plain = tables_of(Evaluated(small_run(demo, store, **some), [EXTRA]), small_run(demo, store, **some))
        run = small_run(demo, store, **some, reply_samples=3, temperature=1.5, sampling_seed=5, follow_up=GO_ON)
        tables = tables_of(Evaluated(run, [EXTRA]), run)
    transfer, replies = tables["transfer"], tables["refusal_replies"]
    greedy = transfer.filter(pl.col("prompts").is_in(["heldout", "xstest"]))
    assert greedy.drop("samples", "temperature").equals(plain["transfer"])
    assert greedy.select("samples", "temperature").null_count().row(0) == (3, 3)
    own = replies.filter(pl.col("prompts").is_in(["heldout", "xstest"]))
    assert own.sort("prompt", "selector").equals(plain["refusal_replies"].sort("prompt", "selector"))
    assert transfer.height == 9
    assert transfer["prompts"].unique().sort().to_list() == [
        "heldout", "heldout, follow-up", "heldout, sampled", "xstest", "xstest, follow-up", "xstest, sampled"
    ]  # fmt: skip

    [contrast] = run.contrasts
    point = transfer.row(0, named=True)
    edits = [UNEDITED, run.edit(refusal_mask(contrast, point["lambda"], point["k"]))]
    prompts = sides(run.heldout["hate"])
    risk = len(prompts) // 2
    line = transfer.filter(prompts="heldout, sampled", kind="malign").row(0, named=True)
    drawn = [
        generate_under(demo, edits, prompts, run.plan.reply_tokens, sampling=Sampling(1.5, 5, number))
        for number in range(3)
    ]
    for edit, side in enumerate(("before", "after")):
        verdicts = [[judge(one.text).refusal for one in sample[edit][:risk]] for sample in drawn]
        assert line[side] == pytest.approx(sum(map(sum, verdicts)) / (3 * risk))
        interval = clustered_wilson([sum(each) for each in zip(*verdicts, strict=True)], 3)
        assert (line[f"{side}_low"], line[f"{side}_high"]) == interval
        cut = sum(not one.finished for sample in drawn for one in sample[edit][:risk])
        assert line[f"{side}_unfinished"] == cut
    assert (line["n"], line["samples"], line["temperature"]) == (risk, 3, 1.5)
    second = replies.filter(prompts="heldout, sampled 2", selector="lrp", kind="malign")
    assert second["reply"].to_list() == [one.text for one in drawn[1][1][:risk]]

    line = transfer.filter(prompts="heldout, follow-up", kind="benign").row(0, named=True)
    first = generate_under(demo, edits, prompts, run.plan.reply_tokens)
    for edit, (side, selector) in enumerate((("before", "none"), ("after", "lrp"))):
        turns = [(prompt, one.text, GO_ON) for prompt, one in zip(prompts, first[edit], strict=True)]
        [said] = generate_under(demo, [edits[edit]], turns, run.plan.reply_tokens)
        assert line[side] == pytest.approx(sum(judge(one.text).refusal for one in said[risk:]) / risk)
        shown = replies.filter(prompts="heldout, follow-up", selector=selector, kind="benign")
        assert shown["reply"].to_list() == [one.text for one in said[risk:]]
        assert shown["prompt"].to_list() == list(prompts[risk:])


def test_a_second_turn_is_asked_after_the_first_reply(tiny_llama: LoadedModel):
    prompt = "The cat sat"
    first = generate_batch(tiny_llama, [prompt], 6)[0].text
    turns = [
        {"role": role, "content": text} for role, text in (("user", prompt), ("assistant", first), ("user", "No way."))
    ]
    ids = tiny_llama.tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    out = tiny_llama.model.generate(**ids, do_sample=False, max_new_tokens=6, pad_token_id=2)
    expected = tiny_llama.tokenizer.decode(
        out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    assert generate_batch(tiny_llama, [(prompt, first, "No way.")], 6)[0].text == expected
    with pytest.raises(InputError, match="ends with the user's turn"):
        generate_batch(tiny_llama, [(prompt, first)], 6)
    with pytest.raises(InputError, match="empty"):
        generate_batch(tiny_llama, [(prompt, first, " ")], 6)
