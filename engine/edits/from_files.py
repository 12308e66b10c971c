"""Edits from files: a mask file, or one cell of a contrast file."""

from pathlib import Path

from engine.edits.contrasts import INSTALLS_ONLY, load_contrasts, refusal_mask
from engine.edits.edit import Edit, edit_of
from engine.edits.mask_files import HAND_MADE, read_mask, spec_of
from engine.records import bounds
from engine.records.domain_names import find_domain
from engine.records.errors import InputError, unknown
from engine.records.manifest import MANIFEST, read_manifest
from engine.stats.removal_order import ORDERS


def edit_from_mask(path: Path, n_rows: int, weights_hash: str | None) -> Edit:
    """The edit in a mask file. `InputError` where the file does not say how its rows were chosen: by an `order` (a mask
    of the language model), by `lambda` and `k` in the ranges that install, or by a person (`hand-made`). weights_hash:
    None before the weights are there; all else is checked."""
    mask, manifest = read_mask(path, n_rows, weights_hash)
    if not 0 < len(mask) < n_rows:
        raise InputError(f"{path} removes {len(mask)} of {n_rows} rows; expected some of them, and not all")
    spec = spec_of(manifest)
    if spec.get("order") in ORDERS:
        return edit_of(mask, n_rows, kind="language model", spec=spec)
    if {"selector", "domain", "lambda", "k"} <= spec.keys():
        lam, k = spec["lambda"], spec["k"]
        if not (isinstance(lam, int | float) and 0 <= lam <= 1 and isinstance(k, int | float) and 0 < k < 1):
            raise InputError(f"{path} was made with lambda {lam} and k {k}; {INSTALLS_ONLY}: make it again")
        return edit_of(mask, n_rows, kind="refusal", spec=spec)
    if spec.get("kind") == HAND_MADE:
        return edit_of(mask, n_rows, kind=HAND_MADE, spec=spec)
    raise InputError(
        f"{path} does not say how its rows were chosen; write it with `selector-audit mask`, or give --contrast"
    )


def edit_from_contrast(
    path: Path, selector: str, domain: str | None, lam: float, k: float, n_rows: int, weights_hash: str | None
) -> Edit:
    """The refusal mask of one cell of a contrast file; `domain` may be None where the file has only one. weights_hash:
    as of `edit_from_mask`."""
    contrasts, manifest = load_contrasts(path)
    of_selector = {contrast.domain: contrast for contrast in contrasts if contrast.selector == selector}
    if not of_selector:
        raise unknown("selector of this contrast file", selector, {one.selector for one in contrasts})
    if domain is None:
        if len(of_selector) > 1:
            raise InputError(f"{path} has several domains; give --domain, one of {', '.join(sorted(of_selector))}")
        domain = next(iter(of_selector))
    domain = find_domain(domain, of_selector)
    made_for = _weights_hash(path, manifest)
    contrast = of_selector[domain]
    if weights_hash not in (None, made_for) or contrast.c_comply.size != n_rows:
        weights = f"weights {weights_hash[:12]} and " if weights_hash else ""
        raise InputError(
            f"{path} was calibrated on weights {made_for[:12]} with {contrast.c_comply.size} rows, the model has "
            f"{weights}{n_rows} rows; run `refusal calibrate` on this model"
        )
    spec = {"selector": selector, "domain": domain, "lambda": lam, "k": k, "weights_hash": made_for}
    return edit_of(refusal_mask(contrast, lam, k), n_rows, kind="refusal", spec=spec)


def _weights_hash(path: Path, manifest: str) -> str:
    """Whose contrast it is: its own manifest says so, or the one of its folder."""
    try:
        own = bounds.parsed(manifest)
    except (ValueError, RecursionError):
        own = {}
    sources = [own]
    if (path.parent / MANIFEST).is_file():
        sources.append(read_manifest(path.parent))
    for source in sources:
        model = source.get("model") if isinstance(source, dict) else None
        if isinstance(model, dict) and isinstance(model.get("weights_hash"), str):
            return str(model["weights_hash"])
    raise InputError(
        f"{path} does not say which weights it was calibrated on; keep it beside its {MANIFEST}, or run "
        "`refusal calibrate` again"
    )
