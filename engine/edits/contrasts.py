"""Contrasts and their masks: which rows promote complying with risk prompts but not with base prompts.

Removing those rows installs refusal. A checksum finds damage, not forgery: code that negates numbers is not stopped."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from engine.edits.masks import Mask, removed_count
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.files import FileKind, make_folder, same_bytes, tensors_metadata, write_atomic
from engine.records.manifest import is_listed
from engine.stats.removal_order import removal_order

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
