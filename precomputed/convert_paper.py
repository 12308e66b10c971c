"""Makes `precomputed/paper/` from a folder of CSV files that hold the numbers of the paper's tables.

    python -m precomputed.convert_paper FOLDER [--out DIR]

Figures and own wording only. Sentences of the paper (captions, quotations, descriptions in LaTeX) are dropped
here; what `inconsistencies` says is written in our words in `paper/inconsistencies.jsonl`. The same input gives
the same bytes.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import sys
from pathlib import Path

import polars as pl

from engine.records.errors import InputError
from engine.records.files import write_atomic
from precomputed import paper_dir
from precomputed.paper_schema import PAPER, TABLES, Table

log = logging.getLogger(__name__)

# Column names of the CSV files that differ from the contract's words: table -> ours -> theirs.
RENAMED = {
    "models": {"rows": "neurons"},
    "models_public_config": {"rows": "neurons"},
    "consensus_controls": {"control": "mask"},
    "false_negatives": {"n_danger_rows": "n_neurons", "pct_danger_rows": "pct_neurons"},
    "refusal_operating_points": {"delta_mmlu": "dMMLU", "delta_gsm8k": "dGSM8K", "delta_ifeval": "dIFEval"},
    "wilson": {"refusal_rate": "rate"},
    "table_inventory": {"files": "csv", "observations": "csv_rows"},
}
# Score and cost of each selector in our words.
SELECTOR_WORDS = {
    "random": ("uniform on (0, 1), three seeds", "no data"),
    "magnitude": ("mean_j abs(W_ij)", "no data"),
    "wanda": ("sum_j abs(W_ij) * RMS(X_j)", "1 forward"),
    "mean_activation": ("mean over tokens of abs(h_i)", "1 forward"),
    "lrp": ("relevance under the AttnLRP rules of lxt", "1 forward and backward"),
    "ig": ("integrated gradients, 16 steps", "16 forward and backward"),
    "consensus2": ("(rank_lrp + rank_ig) / 2N", "those of lrp and ig"),
}
README_MARK = "<!-- The tables below are written by precomputed.convert_paper. -->\n"


def _own_words(name: str, frame: pl.DataFrame, own_text: Path) -> pl.DataFrame:
    """Values that need more than a type: the contract's words, and our text where the paper's stood."""
    if "order" in frame.columns:
        frame = frame.with_columns(pl.col("order").str.to_lowercase())
    if name == "selectors":
        score = {selector: words[0] for selector, words in SELECTOR_WORDS.items()}
        passes = {selector: words[1] for selector, words in SELECTOR_WORDS.items()}
        frame = frame.with_columns(
            score=pl.col("selector").replace_strict(score), passes=pl.col("selector").replace_strict(passes)
        )
    if name == "table_inventory":
        listed = pl.col("files").str.replace_all(".csv", "", literal=True).str.replace_all(" + ", ", ", literal=True)
        frame = frame.with_columns(files=pl.when(pl.col("commented_out") == "False").then(listed))
    if name == "prose_values":
        # One quantity carries its selectors in its name.
        grouped = pl.col("quantity") == "malign_after_range_lrp_ig_consensus2"
        frame = frame.with_columns(
            selector=pl.when(grouped).then(pl.lit("lrp/ig/consensus2")).otherwise("selector"),
            quantity=pl.when(grouped).then(pl.lit("malign_after_range")).otherwise("quantity"),
        )
    if name == "inconsistencies":
        own = pl.DataFrame([json.loads(line) for line in own_text.read_text("utf-8").splitlines()])
        # An id that only one side has drops out here and fails the row count.
        frame = own.join(frame.select("id", "line"), on="id", validate="1:1", maintain_order="left")
    return frame


def _typed(table: Table, frame: pl.DataFrame) -> pl.DataFrame:
    """Casts the text columns of a CSV file; a cell that does not fit its type is an error."""
    columns = []
    for column in table.columns:
        text = pl.col(column.name)
        if column.dtype == pl.Boolean:
            text = text.replace_strict({"True": True, "False": False}, return_dtype=pl.Boolean)
        elif column.dtype == pl.Int64:
            # Whole numbers are printed as "42" or, in columns with gaps, as "42.0".
            text = text.str.replace(r"\.0$", "").cast(pl.Int64)
        else:
            text = text.cast(column.dtype)
        columns.append(text.alias(column.name))
    return frame.select(columns)


def convert_table(name: str, source: Path, own_text: Path) -> pl.DataFrame:
    """One published table, typed and in our words, from the CSV file of the same name in `source`."""
    table = TABLES[name]
    path = source / f"{name}.csv"
    if not path.is_file():
        raise InputError(f"{path.name} is missing in {source}; expected a folder with the {len(TABLES)} CSV files")
    frame = pl.read_csv(path, infer_schema=False)
    frame = frame.with_columns(pl.when(pl.all() != "").then(pl.all()))  # an empty cell is a missing number
    theirs = RENAMED.get(name, {})
    frame = frame.rename({old: new for new, old in theirs.items()})
    frame = _typed(table, _own_words(name, frame, own_text))
    if frame.height != table.rows:
        raise InputError(f"{path.name} has {frame.height} rows, expected {table.rows}; compare it with the paper")
    return frame


def reference() -> str:
    """The README's part that the schema determines: every table with its sources and columns."""
    lines = [README_MARK]
    for table in TABLES.values():
        sources = ", ".join(f"`{label}`" for label in table.sources) or "own compilation"
        lines += [
            f"### {table.name}.parquet",
            "",
            f"{table.title}. {table.rows:,} rows. Source: {sources}.",
            "",
        ]
        lines += ["| column | type | unit | meaning |", "|---|---|---|---|"]
        for column in table.columns:
            lines.append(f"| `{column.name}` | {column.dtype} | {column.unit} | {column.meaning} |")
        lines.append("")
    return "\n".join(lines)


def convert(source: Path, out: Path) -> None:
    """Writes every table (parquet, zstd) and the generated part of the README to `out`."""
    if not source.is_dir():
        raise InputError(f"{source} is not a folder; give the folder that holds the CSV files")
    own_text = paper_dir() / "inconsistencies.jsonl"
    frames = {name: convert_table(name, source, own_text) for name in TABLES}
    out.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        buffer = io.BytesIO()
        frame.write_parquet(buffer, compression="zstd", compression_level=19, statistics=True)
        write_atomic(out / f"{name}.parquet", buffer.getvalue())
    readme = out / "README.md"
    written = readme.read_text("utf-8") if readme.exists() else f"# {PAPER}\n\n"
    readme.write_text(written.split(README_MARK)[0] + reference(), "utf-8")
    log.info("wrote %d tables to %s", len(frames), out)


def main(arguments: list[str] | None = None) -> int:
    """Command line; exit code 0 done, 2 wrong input."""
    parser = argparse.ArgumentParser(prog="python -m precomputed.convert_paper", description=__doc__)
    parser.add_argument("source", type=Path, help="folder with the CSV files")
    parser.add_argument("--out", type=Path, default=paper_dir(), help="folder to write (default: shipped)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        convert(options.source, options.out)
    except InputError as error:
        log.error("%s", error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
