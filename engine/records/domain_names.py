"""Names of domains: free text for people, and an id for each in files, keys and addresses.

A name that is an id already (letters, digits and . _ - only) is its own id. Any other is written as `domain--` and its
punycode, in which what is no letter, digit, full stop or hyphen is `_` and its code: `hate speech` is
`domain--hate_20speech-`, from which the name can be read again. Two spellings of one name (case, blanks, Unicode form)
are one domain."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from engine.records.errors import InputError, unknown

_ENCODED = "domain--"
_LONGEST = 200  # characters of an id
_VERBATIM = re.compile(r"(?!domain--)[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESERVED = {"none", "all"}  # what tables write where there is no domain, or every one
_IN_TEXT = re.compile(r"\bdomain--[A-Za-z0-9._-]*[A-Za-z0-9-]")
_MARKUP = str.maketrans({one: chr(ord(one) + 0xFEE0) for one in r"<>*`[]$\|"})  # the wide form of each
_JOINERS = "\u200c\u200d"  # invisible, but part of a word or of an emoji


def domain_id(name: str) -> str:
    """The id of a name. Errors: InputError for a name that is blank, too long, or holds what is no text."""
    text = _written(name)
    if _VERBATIM.fullmatch(text) and text not in _RESERVED:
        return text
    if not text or any(unicodedata.category(one) in ("Cc", "Cs") for one in text):
        problem = "holds a character that is no text" if text else "is blank"
        raise InputError(f"the name of a domain {problem}, got {name[:80]!r}; write it in letters, digits and signs")
    code = text.encode("punycode").decode("ascii")
    encoded = _ENCODED + re.sub(r"[^A-Za-z0-9.-]", lambda one: f"_{ord(one[0]):02x}", code)
    if len(encoded) > _LONGEST:
        raise InputError(
            f"the name of a domain is too long: {text[:40]!r}… has {len(text):,} characters, and its id in files would "
            f"have {len(encoded):,} of at most {_LONGEST}; give it a shorter one"
        )
    return encoded


def domain_name(identifier: str) -> str:
    """The name of an id; an id that stands for no other name is the name."""
    if not identifier.startswith(_ENCODED):
        return identifier
    code = re.sub(r"_([0-9a-f]{2})", lambda one: chr(int(one[1], 16)), identifier.removeprefix(_ENCODED))
    try:
        name = code.encode("ascii").decode("punycode")
        return name if domain_id(name) == identifier else identifier
    except (UnicodeError, InputError, OverflowError, ValueError):
        return identifier


def is_domain_id(text: str) -> bool:
    """Can this be the id of a domain?"""
    return _VERBATIM.fullmatch(text) is not None or domain_name(text) != text


def with_names(text: str) -> str:
    """A text in which every id of a domain is its name."""
    return _IN_TEXT.sub(lambda found: domain_name(found[0]), text) if _ENCODED in text else text


def without_markup(name: str) -> str:
    """A name that Markdown and charts show as it is: signs that mean something there in their wide form, which
    `find_domain` does not tell from the plain one."""
    return name.translate(_MARKUP)


def domain_ids(names: Iterable[str]) -> dict[str, str]:
    """Name as written -> id; all spellings of one name have the id of the most frequent, of equally frequent ones the
    one in small letters, or the first."""
    counts = Counter(names)
    best: dict[str, str] = {}
    for name in counts:
        before = best.setdefault(_folded(name), name)
        small = [_written(one) == _folded(one) for one in (name, before)]
        if (counts[name], small[0]) > (counts[before], small[1]):
            best[_folded(name)] = name
    return {name: domain_id(best[_folded(name)]) for name in counts}


def find_domain(wanted: str, there: Iterable[str], what: str = "domain") -> str:
    """The id among `there` that this is, or is a name of. Errors: InputError where none is."""
    ids = list(there)
    found = (
        wanted if wanted in ids else next((one for one in ids if _folded(domain_name(one)) == _folded(wanted)), None)
    )
    if found is None:
        raise unknown(what, wanted, map(domain_name, ids))
    return found


def _written(name: str) -> str:
    """The name without what nobody sees: blanks around it, several for one, marks without a width."""
    visible = "".join(one for one in name if unicodedata.category(one) != "Cf" or one in _JOINERS)
    return " ".join(unicodedata.normalize("NFC", visible).split())


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", _written(name)).casefold()
