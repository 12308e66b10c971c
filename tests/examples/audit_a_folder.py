"""An audit from nothing: train a small model, score its rows, remove them, and draw the curves.

    uv run python tests/examples/audit_a_folder.py [FOLDER]

Every `# %%` begins a cell for editors that run scripts as notebooks. Nothing is downloaded; FOLDER (default
`audit-example`) gets the model, its text, `sweep.parquet` and `curves.html`. With a model folder of your own start at
"Load". A few seconds on one core; needs lxt for `lrp` (`pip install --no-deps lxt`).
"""

# %% Text: sentences whose words depend on each other, so that there is something to learn
from __future__ import annotations

import random
import sys
from pathlib import Path

import plotly.graph_objects as go
import polars as pl
import torch
from plotly.subplots import make_subplots
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine import Store, compute_scores, load_model, sweep_model, windows

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "audit-example")
folder.mkdir(parents=True, exist_ok=True)

FOOD = {"cat": "fish", "cow": "grass", "bee": "nectar", "owl": "mice", "goat": "leaves"}
HOME = {"cat": "house", "cow": "barn", "bee": "hive", "owl": "tree", "goat": "hill"}
draw = random.Random(0)


def story() -> str:
    animal = draw.choice(sorted(FOOD))
    first = f"the {draw.choice(['old', 'small', 'grey'])} {animal} eats {FOOD[animal]} ."
    second = f"then the {animal} sleeps in the {HOME[animal]} ."
    return " ".join([first, second] if draw.random() < 0.5 else [second, first])


text_file = folder / "text.txt"
text_file.write_text("\n\n".join(story() for _ in range(600)), encoding="utf-8")

# %% Model: two blocks of Llama's kind, trained here
words = sorted(set(text_file.read_text(encoding="utf-8").split()))
backend = Tokenizer(models.WordLevel({word: n for n, word in enumerate(["<unk>", *words])}, unk_token="<unk>"))
backend.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", pad_token="<unk>")

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(tokenizer),
    hidden_size=48,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=None,
    eos_token_id=None,
)
model = LlamaForCausalLM(config)
tokens = torch.tensor(tokenizer(text_file.read_text(encoding="utf-8"), verbose=False)["input_ids"])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(150):
    starts = torch.randint(len(tokens) - 32, (16,)).tolist()
    batch = torch.stack([tokens[start : start + 32] for start in starts])
    loss = model(input_ids=batch, labels=batch).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.save_pretrained(folder / "model")
tokenizer.save_pretrained(folder / "model")
print(f"trained: {loss.item():.2f} nats per token on the last batch, {len(tokenizer)} words")

# %% Load: as any other checkpoint
loaded = load_model(str(folder / "model"))
print(f"{loaded.rows.n_rows:,} rows in {len(loaded.rows.layers)} Linear layers")

# %% Score every row on the first part of the text
samples, length = 32, 32
calibration = windows(str(text_file), loaded.tokenizer, role="calibration", samples=samples, length=length)
scores = compute_scores(loaded, ["random", "magnitude", "wanda", "lrp"], calibration)

# %% Remove more and more rows, least and most relevant first, and measure on text that scoring did not see
evaluation = windows(
    str(text_file), loaded.tokenizer, role="evaluation", samples=32, length=length, skip_tokens=samples * length
)
rates = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
with Store(folder / "store") as store:
    sweep = sweep_model(loaded, scores, evaluation, store=store, rates=rates)
sweep.write_parquet(folder / "sweep.parquet")

# %% Draw: a selector that knows what matters stays low on the left and shoots up on the right
curves = sweep.group_by("selector", "order", "rate", maintain_order=True).agg(pl.col("nll").mean())  # over seeds
figure = make_subplots(cols=2, subplot_titles=("least relevant first", "most relevant first"), shared_yaxes=True)
for column, order in enumerate(("lerf", "morf"), start=1):
    for (selector,), points in curves.filter(order=order).group_by("selector", maintain_order=True):
        line = go.Scatter(x=points["rate"], y=points["nll"], name=str(selector), legendgroup=str(selector))
        figure.add_trace(line.update(showlegend=column == 1), row=1, col=column)
figure.update_xaxes(title="share of rows removed", tickformat=".0%")
figure.update_yaxes(title="NLL, nats per token", col=1)
figure.write_html(folder / "curves.html")

# %% One number for each: how much worse it is to lose what a selector calls important
at = curves.filter(rate=0.2).pivot("order", index="selector", values="nll")
gaps = at.select("selector", log_gap=pl.col("morf") - pl.col("lerf")).sort("log_gap", descending=True)
for selector, gap in gaps.iter_rows():
    print(f"{selector:<10} NLL_MoRF - NLL_LeRF at 20%: {gap:+.2f} nats per token")
print(f"curves: {folder / 'curves.html'}")
