"""Pairs of a risk and a base prompt: the shipped ones, IBM's CAST from its file, or any JSONL."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.data.corpora import CALIBRATION, HELDOUT, Pair, check_pairs, contrast_pairs, splits_of
from engine.data.texts import check_characters, json_lines
from engine.records import bounds
from engine.records.domain_names import domain_ids, find_domain
from engine.records.errors import InputError
from engine.records.hashing import Json

# CAST's names for the five domains, `condition_multiple.json` of IBM/activation-steering (Lee et al. 2025).
CAST_DOMAINS = {
    "hate_speech": "hate", "crime_planning": "crime", "sexual_content": "adult", "health_consultation": "medical",
    "legal_opinion": "legal",
}  # fmt: skip
_CAST_SPLITS = {CALIBRATION: "train", HELDOUT: "test"}


def read_pairs(
    source: str, split: str, domains: Sequence[str] | None = None, per_domain: int | None = None
) -> dict[str, list[Pair]]:
    """Domain -> its first `per_domain` pairs of a split, in the order of the file; domains in the order wanted.

    source: `demo`; a JSONL file with `risk` and `base` and optionally `domain` and `split`; or a .json file of
    CAST's layout, where every entry of `train` (calibration) and `test` (held out) is a base prompt with one
    risk prompt per domain. Splits may have their other names (`engine.data.corpora`). Domains have their ids here
    (`engine.records.domain_names`). domains: names or ids, None for all there are."""
    if per_domain is not None and per_domain < 1:
        raise InputError(f"pairs per domain must be at least 1, got {per_domain}")
    if Path(source).suffix == ".json":
        pairs = [pair for pair in _cast_pairs(Path(source).expanduser()) if pair.split == split]
    else:
        pairs = contrast_pairs(source, split=split)
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        members = found.setdefault(pair.domain, [])
        if per_domain is None or len(members) < per_domain:
            members.append(pair)
    wanted = found if not domains else [find_domain(domain, found) for domain in domains]
    return {domain: found[domain] for domain in wanted}


def domain_spellings(source: str) -> dict[str, list[str]]:
    """Id -> how its name is spelled in the file, of every domain that is spelled in several ways."""
    if source == "demo" or Path(source).suffix == ".json":
        return {}
    names = [str(entry.get("domain", "")) for _, entry in json_lines(Path(source).expanduser())]
    spellings: dict[str, list[str]] = {}
    for name, domain in domain_ids(filter(None, names)).items():
        spellings.setdefault(domain, []).append(name)
    return {domain: spelled for domain, spelled in spellings.items() if len(spelled) > 1}


def has_split(source: str, split: str) -> bool:
    if Path(source).suffix == ".json":
        return True  # both are part of CAST's layout
    return any(pair.split == split for pair in contrast_pairs(source))


def pairs_record(source: str, pairs: Iterable[Pair]) -> Json:
    """What a manifest says about pairs: where they are from, how many, and the hash of their texts."""
    members = list(pairs)
    text = json.dumps([list(pair) for pair in members], ensure_ascii=True)
    return {
        "source": "demo" if source == "demo" else Path(source).name,
        "pairs": len(members),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def _cast_pairs(path: Path) -> list[Pair]:
    try:
        written = bounds.text_of(path, "utf-8-sig", bounds.MAX_JSON_BYTES)
        content = bounds.parsed(written)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read ({error}); give CAST's condition_multiple.json") from None
    check_characters(written, content, path.name)
    splits = content if isinstance(content, dict) else {}
    meant = splits_of(path.name, splits)
    names = [
        name for split, cast in _CAST_SPLITS.items() for name in ([n for n in meant if meant[n] == split] or [cast])
    ]
    pairs = []
    for name in names:
        entries = splits.get(name)
        if not isinstance(entries, list) or not entries:
            raise InputError(
                f"{path.name} has no list of prompts under {name!r}; expected the layout of CAST's "
                "condition_multiple.json, or a .jsonl file with risk and base"
            )
        for number, entry in enumerate(entries):
            for key, domain in CAST_DOMAINS.items():
                texts = [entry.get(field) if isinstance(entry, dict) else None for field in (key, "base")]
                if not all(isinstance(text, str) and text.strip() for text in texts):
                    raise InputError(
                        f"{path.name}: entry {number} of {name!r} has no text in {key!r} or 'base'; expected "
                        f"'base' and {', '.join(map(repr, CAST_DOMAINS))}"
                    )
                pairs.append(Pair(domain, str(texts[0]), str(texts[1]), meant[name]))
    check_pairs(path.name, pairs)
    return pairs
