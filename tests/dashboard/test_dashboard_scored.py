"""Scores per cell and per row, and masks made by hand, against loops over rows."""

import json
import math

import numpy as np
import pytest
from safetensors import safe_open
from scored_runs import SELECTORS, write_scored

from dashboard.pages.rows import row_cell as row_sets, scored
from dashboard.pages.rows.row_cell import Kept
from engine.edits.contrasts import edit_from_mask, mask_bytes
from engine.edits.masks import removed_rows
from engine.records.errors import InputError


@pytest.fixture
def found(folder):
    return scored.read(folder)


@pytest.fixture
def arrays(folder):
    with safe_open(folder / "scores.safetensors", framework="numpy") as tensors:
        read = {name: tensors.get_tensor(name) for name in SELECTORS}
    return {name: values if values.ndim == 1 else values[0] for name, values in read.items()}


def test_a_folder_is_found_below_and_read(folder, found, tiny_folder):
    assert scored.find(folder) == [folder]
    assert scored.find(folder.parent) == [folder]
    assert found.selectors == ["lrp", "magnitude", "random"]
    assert found.blocks == [0, 1]
    assert found.projections[0] == "q_proj"
    assert len(found.projections) == 7
    assert found.load_from == str(tiny_folder)
    assert "Model" in found.provenance


def test_ranks_and_percentiles_are_those_of_a_sort(found, arrays):
    values = arrays["lrp"].tolist()
    order = sorted(range(len(values)), key=lambda row: (values[row], row))
    ranks = {row: place for place, row in enumerate(order)}
    assert found.ranks("lrp").tolist() == [ranks[row] for row in range(len(values))]
    expected = [100 * ranks[row] / (len(values) - 1) for row in range(len(values))]
    assert found.percentiles("lrp").tolist() == pytest.approx(expected)


def cells_by_hand(found, values):
    cells = {}
    for row_id, block, _, projection, _ in found.rows.iter_rows():
        cells.setdefault((block, projection), []).append(values[row_id])
    return cells


def test_cells_are_means_over_their_rows(found, arrays):
    by_hand = cells_by_hand(found, arrays["random"].tolist())
    cells = scored.mean_scores(found, "random")
    assert cells.height == len(by_hand) == 14
    for row in cells.iter_rows(named=True):
        mine = by_hand[row["block"], row["projection"]]
        assert row["rows"] == len(mine)
        assert row["value"] == pytest.approx(math.fsum(mine) / len(mine))


@pytest.mark.parametrize("order", ["lerf", "morf"])
def test_shares_count_the_rows_of_the_mask(found, arrays, order):
    inside = set(removed_rows(arrays["lrp"], order, 0.3).tolist())
    by_hand = cells_by_hand(found, [row in inside for row in range(found.n_rows)])
    cells = scored.mask_shares(found, "lrp", order, 0.3)
    assert cells["removed"].sum() == round(0.3 * found.n_rows)
    for row in cells.iter_rows(named=True):
        mine = by_hand[row["block"], row["projection"]]
        assert row["removed"] == sum(mine)
        assert row["value"] == pytest.approx(sum(mine) / len(mine))


def test_differences_in_rank_are_signed_and_vanish_for_a_selector_itself(found):
    a, b = found.percentiles("lrp"), found.percentiles("magnitude")
    signed, apart = cells_by_hand(found, a - b), cells_by_hand(found, abs(a - b))
    for row in scored.rank_differences(found, "lrp", "magnitude").iter_rows(named=True):
        cell = row["block"], row["projection"]
        assert row["value"] == pytest.approx(sum(signed[cell]) / row["rows"])
        assert row["apart"] == pytest.approx(sum(apart[cell]) / row["rows"])
    assert scored.rank_differences(found, "lrp", "lrp")["value"].to_list() == [0.0] * 14


def test_the_rows_of_a_cell_have_score_rank_and_percentile_of_every_selector(found, arrays):
    frame = scored.cell_rows(found, 1, "v_proj")
    ids = [row_id for row_id, block, _, projection, _ in found.rows.iter_rows() if (block, projection) == (1, "v_proj")]
    assert frame["row_id"].to_list() == ids
    assert frame["row"].to_list() == list(range(len(ids)))
    for name in SELECTORS:
        assert frame[f"{name} score"].to_list() == [arrays[name][row] for row in ids]
        assert frame[f"{name} rank"].to_list() == [found.ranks(name)[row] for row in ids]
        assert frame[f"{name} percentile"].to_list() == [found.percentiles(name)[row] for row in ids]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: (folder / "scores.safetensors").unlink(), "holds no scores"),
        (lambda folder: (folder / "scores.safetensors").write_bytes(b"nothing"), "not readable|checksum"),
        (lambda folder: (folder / "rows.parquet").write_bytes(b"nothing"), "checksum"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest"),
    ],
)
def test_damaged_folders_are_one_clear_line(tmp_path, tiny_folder, harm, said):
    folder = write_scored(tmp_path / "run", tiny_folder)
    scored.read(folder)
    harm(folder)
    with pytest.raises(InputError, match=said) as caught:
        scored.read(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "rows"), [("", []), ("3", [3]), ("8-10, 3", [3, 8, 9, 10]), ("1 2,2-3", [1, 2, 3]), ("4 – 6", [4, 5, 6])]
)
def test_row_ids_as_text(text, rows):
    assert row_sets.parse(text, 20).tolist() == rows


@pytest.mark.parametrize("text", ["x", "3-", "-3", "1.5", "20", "5-3", "0-20", "1;2"])
def test_what_is_no_row_id_is_said(text):
    with pytest.raises(InputError, match="row ids"):
        row_sets.parse(text, 20)


def test_an_exported_mask_comes_back_and_says_that_it_was_made_by_hand(tmp_path, found):
    kept = Kept("my *mask* / 1", np.array([1, 5, 7]))
    content = row_sets.export(kept, found.model)
    (tmp_path / "mask.safetensors").write_bytes(content)
    with safe_open(tmp_path / "mask.safetensors", framework="numpy") as file:
        manifest = json.loads(file.metadata()["manifest"])
        assert file.get_tensor("removed").tolist() == [1, 5, 7]
    assert manifest["spec"] == {"kind": "hand-made", "name": "my *mask* / 1"}
    back = row_sets.load(content, "file.safetensors", found)
    assert back.rows.tolist() == [1, 5, 7]
    assert back.spec == {"kind": "hand-made", "name": "my *mask* / 1"}
    assert row_sets.file_name(kept.name) == "my-mask-1.safetensors"


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({"selector": "lrp", "order": "lerf", "rate": 0.3}, "language model"),
        ({"selector": "lrp", "domain": "hate", "lambda": 0.5, "k": 0.05}, "refusal"),
        ({"made": "hand-made", "name": "old", "rows": 2}, "hand-made"),
        ({"made": "ig, morf, rate 1e-05", "name": "old", "rows": 2}, "language model"),
        ({"made": "from a file", "name": "old", "rows": 2}, "hand-made"),
        ({"note": "of another program"}, "hand-made"),
        (None, "hand-made"),
    ],
)
def test_what_is_uploaded_says_how_it_was_made_when_it_is_downloaded_again(tmp_path, found, spec, kind):
    """Masks of the commands, of this page as it was before, and foreign ones: the download is the edit it was."""
    kept = row_sets.load(mask_bytes(np.array([2, 3]), found.model, spec), "a.safetensors", found)
    path = tmp_path / "mask.safetensors"
    path.write_bytes(row_sets.export(kept, found.model))
    edit = edit_from_mask(path, found.n_rows, found.model["weights_hash"])
    assert (edit.units.tolist(), edit.kind) == ([2, 3], kind)
    assert row_sets.load(path.read_bytes(), "b.safetensors", found).spec == kept.spec


def test_a_mask_that_would_remove_refusal_stays_one_in_a_download(tmp_path, found):
    spec = {"selector": "lrp", "domain": "hate", "lambda": -0.5, "k": 0.05}
    kept = row_sets.load(mask_bytes(np.array([2, 3]), found.model, spec), "a.safetensors", found)
    (tmp_path / "mask.safetensors").write_bytes(row_sets.export(kept, found.model))
    with pytest.raises(InputError, match="installs"):
        edit_from_mask(tmp_path / "mask.safetensors", found.n_rows, found.model["weights_hash"])


def test_files_that_do_not_belong_here_are_refused(found):
    other = {**found.model, "weights_hash": "ab" * 32}
    with pytest.raises(InputError, match="made for"):
        row_sets.load(row_sets.export(Kept("a", np.array([1])), other), "a.safetensors", found)
    with pytest.raises(InputError, match=r"a\.safetensors is not a mask file") as caught:
        row_sets.load(b"nothing", "a.safetensors", found)
    assert "/tmp" not in str(caught.value)
    with pytest.raises(InputError, match="is not a mask file"):
        row_sets.load(row_sets.export(Kept("a", np.array([1])), {}), "a.safetensors", found)
    with pytest.raises(InputError, match="outside"):
        row_sets.load(row_sets.export(Kept("a", np.array([10**6])), found.model), "a.safetensors", found)
