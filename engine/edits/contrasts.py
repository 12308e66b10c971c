"""Contrasts and their masks (which rows promote complying with risk prompts but not with base prompts; removing those
installs refusal), and mask files: the removed rows with their manifest, and the edit that a mask or a contrast holds.

A checksum finds damage, not forgery: code that negates numbers is not stopped."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from engine.edits.edit import Edit, Kind, edit_of
from engine.edits.masks import Mask, checked_mask, removed_count
from engine.records import bounds
from engine.records.domain_names import find_domain
from engine.records.errors import InputError, unknown
from engine.records.files import FileKind, make_folder, same_bytes, tensors_metadata, write_atomic
from engine.records.hashing import SCHEMA_VERSION, Json, canonical, environment
from engine.records.manifest import MANIFEST, is_listed, read_manifest
from engine.stats.removal_order import ORDERS, removal_order

CONTRASTS = FileKind(
    "a file of contrasts", lambda path: is_listed(path) or tensors_metadata(path).keys() == {"manifest", "sha256"}
)
INSTALLS_ONLY = "this software only installs refusal and never selects rows in order to remove it"


@dataclass(frozen=True, eq=False)
class Contrast:
    """What Algorithm 1 keeps of one variant (`selector`) on one domain, for every mask of the grid.

    c_comply: float32 [N] in [-1, 1], high where the row promotes complying with risk prompts only.
    lm_rank: float32 [N] in [0, 1], r(I_lm), high where the language model needs the row.
    Real numbers of any type are taken and kept as float32. `InputError` for other shapes, ranges, or NaN."""

    selector: str
    domain: str
    c_comply: npt.NDArray[np.float32]
    lm_rank: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        for name in ("c_comply", "lm_rank"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float32))
        if self.c_comply.ndim != 1 or self.c_comply.shape != self.lm_rank.shape:
            raise InputError(
                f"{self.selector}/{self.domain}: c_comply has shape {list(self.c_comply.shape)} and lm_rank "
                f"{list(self.lm_rank.shape)}; both need [rows]"
            )
        for name, values, lowest in (("c_comply", self.c_comply, -1), ("lm_rank", self.lm_rank, 0)):
            if not ((values >= lowest) & (values <= 1)).all():  # false for NaN as well
                raise InputError(
                    f"{self.selector}/{self.domain}: {name} must be finite and in [{lowest}, 1]; {INSTALLS_ONLY}: "
                    "calibrate again"
                )


def check_lambda(lam: float) -> None:
    """`InputError` unless lambda is in [0, 1]."""
    if not 0 <= lam <= 1:
        raise InputError(f"lambda must be in [0, 1], got {lam:g}; {INSTALLS_ONLY}: give 0.2 to 0.8")


def check_k(k: float) -> None:
    """`InputError` unless k is in (0, 1)."""
    if not 0 < k < 1:
        raise InputError(f"k must be in (0, 1), got {k:g}; {INSTALLS_ONLY}: give 0.005 to 0.1, or 2%")


def refusal_score(contrast: Contrast, lam: float) -> npt.NDArray[np.float64]:
    """S = C_comply - lambda * r(I_lm), float64 [N]; `InputError` unless lambda is in [0, 1]: a negative one would seek
    rows that the model needs, one far above 1 forget C_comply."""
    check_lambda(lam)
    return contrast.c_comply.astype(np.float64) - lam * contrast.lm_rank.astype(np.float64)


def refusal_masks(contrast: Contrast, lam: float, ks: Sequence[float]) -> list[Mask]:
    """The removed rows for every k in (0, 1): the `round(k * N)` rows with the largest S, ties by row id; ascending
    int64. Ranked once, so that the masks of one lambda are nested. `InputError` where k rounds to no row."""
    for k in ks:
        check_k(k)
        if not removed_count(k, contrast.c_comply.size):
            raise InputError(f"k = {k:g} of {contrast.c_comply.size} rows is less than one row; give a larger k")
    order = removal_order(refusal_score(contrast, lam), "morf")
    return [np.sort(order[: removed_count(k, order.size)]) for k in ks]


def refusal_mask(contrast: Contrast, lam: float, k: float) -> Mask:
    return refusal_masks(contrast, lam, (k,))[0]


def save_contrasts(path: Path, results: Sequence[Contrast], manifest: str) -> None:
    """`contrast.safetensors`: `SELECTOR/DOMAIN/c_comply` and `SELECTOR/lm_rank`; metadata: manifest, checksum."""
    tensors = {f"{one.selector}/{one.domain}/c_comply": one.c_comply for one in results}
    tensors |= {f"{one.selector}/lm_rank": one.lm_rank for one in results}
    make_folder(path.parent)
    metadata = {"manifest": manifest, "sha256": checksum(tensors)}
    write_atomic(path, same_bytes(save(tensors, metadata=metadata)), CONTRASTS)


def load_contrasts(path: Path) -> tuple[list[Contrast], str]:
    """What `save_contrasts` wrote: the contrasts and the manifest's JSON text. `InputError` where the numbers are no
    longer those that were saved."""
    try:
        bounds.tensors(path)
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata()
            manifest, expected = metadata["manifest"], metadata["sha256"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if checksum(tensors) != expected:
            raise InputError(
                f"{path} is damaged: its numbers do not fit its checksum, which finds damage, not forgery; "
                "write it again with `refusal calibrate`"
            )
        results = []
        for name in sorted(tensors):
            selector, *middle, last = name.split("/")
            if last == "c_comply":
                lm_rank = tensors[f"{selector}/lm_rank"]
                results.append(Contrast(selector, "/".join(middle), tensors[name], lm_rank))
    except (OSError, SafetensorError, bounds.BadFile, KeyError, TypeError) as error:
        raise InputError(f"{path} is no contrast file ({error}); write one with `refusal calibrate`") from None
    return results, manifest


def checksum(tensors: dict[str, npt.NDArray[np.float32]]) -> str:
    """SHA-256 over names, shapes and numbers, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].shape} ".encode())
        digest.update(np.ascontiguousarray(tensors[name], dtype="<f4").tobytes())
    return digest.hexdigest()


HAND_MADE: Kind = "hand-made"  # `kind` in the spec of a mask whose rows a person chose
UNTOLD = "from a file"  # `made` in masks that an earlier Rows page passed on without their spec
_TENSOR = "removed"
_MADE = re.compile(r"(?P<selector>.+), (?P<order>lerf|morf), rate (?P<rate>\d+(\.\d+)?(e-\d+)?)")


def write_mask(path: Path, removed: Mask, model: Json, spec: Json) -> None:
    make_folder(path.parent)
    write_atomic(path, mask_bytes(removed, model, spec), MASK)


def mask_bytes(removed: Mask, model: Json, spec: Json) -> bytes:
    """What a mask file holds. model: at least `id` and `weights_hash`, which readers compare."""
    manifest = {"schema_version": SCHEMA_VERSION, "model": model, "spec": spec, "environment": environment()}
    return save({_TENSOR: removed}, metadata={"manifest": canonical(manifest)})


def read_mask(path: Path, n_rows: int, weights_hash: str | None = None) -> tuple[Mask, Json]:
    """The row ids and the manifest of a mask file. `weights_hash`: of the model that will carry the mask; one made for
    other weights is an `InputError`, since its row ids mean other rows there."""
    try:
        bounds.tensors(path, 8 * n_rows)
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            removed = np.asarray(file.get_tensor(_TENSOR))
        manifest = bounds.parsed(metadata["manifest"])
    except (OSError, SafetensorError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a mask file ({error}); write one with `selector-audit mask`") from None
    made_for = manifest.get("model") if isinstance(manifest, dict) else None
    if not isinstance(made_for, dict) or not isinstance(made_for.get("weights_hash"), str):
        raise InputError(
            f"{path} is not a mask file: its manifest names no model; write one with `selector-audit mask`"
        )
    if weights_hash is not None and made_for["weights_hash"] != weights_hash:
        raise InputError(
            f"{path} was made for {made_for.get('id')} (weights {made_for['weights_hash'][:12]}), the loaded model has "
            f"weights {weights_hash[:12]}; make the mask again for this model"
        )
    return checked_mask(removed, n_rows), manifest


def read_spec(path: Path) -> Json:
    """The spec of a mask file, for whom it is looked for by it; empty for any other file."""
    return spec_of(_manifest(path))


def _manifest(path: Path) -> Json:
    """The manifest in a mask file, or of contrasts; empty for any other file."""
    try:
        manifest = bounds.parsed(tensors_metadata(path).get("manifest", ""))
    except (ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _is_mask(path: Path) -> bool:
    """By tensor and manifest; one that a results folder lists may be damaged."""
    if path.name.startswith("mask-") and is_listed(path):
        return True
    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
    except (OSError, SafetensorError):
        return False
    return names == [_TENSOR] and isinstance(_manifest(path).get("model"), dict)


MASK = FileKind("a mask file", _is_mask)


def spec_of(manifest: Json) -> Json:
    """How the rows were chosen: the manifest's spec, empty where there is none.
    Masks downloaded by an earlier Rows page have a `made` instead: `hand-made`, `lrp, lerf, rate 0.3` or `UNTOLD`."""
    spec = manifest.get("spec")
    if not isinstance(spec, dict):
        return {}
    made = spec.get("made")
    if not isinstance(made, str) or "kind" in spec:
        return spec
    if match := _MADE.fullmatch(made):
        return {**match.groupdict(), "rate": float(match["rate"])}
    return {"kind": HAND_MADE, **spec} if made in (HAND_MADE, UNTOLD) else spec


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
    contrasts, _ = load_contrasts(path)
    of_selector = {contrast.domain: contrast for contrast in contrasts if contrast.selector == selector}
    if not of_selector:
        raise unknown("selector of this contrast file", selector, {one.selector for one in contrasts})
    if domain is None:
        if len(of_selector) > 1:
            raise InputError(f"{path} has several domains; give --domain, one of {', '.join(sorted(of_selector))}")
        domain = next(iter(of_selector))
    domain = find_domain(domain, of_selector)
    made_for = _weights_hash(path)
    contrast = of_selector[domain]
    if weights_hash not in (None, made_for) or contrast.c_comply.size != n_rows:
        weights = f"weights {weights_hash[:12]} and " if weights_hash else ""
        raise InputError(
            f"{path} was calibrated on weights {made_for[:12]} with {contrast.c_comply.size} rows, the model has "
            f"{weights}{n_rows} rows; run `refusal calibrate` on this model"
        )
    spec = {"selector": selector, "domain": domain, "lambda": lam, "k": k, "weights_hash": made_for}
    return edit_of(refusal_mask(contrast, lam, k), n_rows, kind="refusal", spec=spec)


def _weights_hash(path: Path) -> str:
    """Whose contrast it is: its own manifest says so, or the one of its folder."""
    sources = [_manifest(path)]
    if (path.parent / MANIFEST).is_file():
        sources.append(read_manifest(path.parent))
    for source in sources:
        model = source.get("model")
        if isinstance(model, dict) and isinstance(model.get("weights_hash"), str):
            return str(model["weights_hash"])
    raise InputError(
        f"{path} does not say which weights it was calibrated on; keep it beside its {MANIFEST}, or run "
        "`refusal calibrate` again"
    )
