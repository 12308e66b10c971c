"""Names and values in Markdown files: text, whatever they hold."""

import re

from engine.records.domain_names import with_names

# What begins a link, an image, HTML, code, a formula or an emphasis; `_` only outside of words, where it would.
_MARKUP = re.compile(r"([\\`*\[\]<>~$|])|(?<!\w)(_)|(_)(?!\w)")
# An address would be a link without any markup: an invisible joiner keeps it text.
_ADDRESS = re.compile(r"(?<=http:)(?=//)|(?<=https:)(?=//)|(?<=www)(?=\.)|(?<=@)", re.IGNORECASE)
_LINE_ENDS = re.compile(r"[\r\n\u2028\u2029]+")


def as_text(text: str) -> str:
    """One line that Markdown shows as it is; domains by their names."""
    line = _ADDRESS.sub("\u2060", _LINE_ENDS.sub(" ", with_names(text))).replace("&", "&amp;")
    return _MARKUP.sub(lambda found: f"\\{found[0]}", line)
