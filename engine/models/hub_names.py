"""A hub model as people paste it: an id, an id with its revision, the address of a page, hf://…"""

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
_PARTS_OF_A_PAGE = ("tree", "blob", "resolve", "commit")  # a revision comes after these


class HubName(NamedTuple):
    """An id, as `org/name` or `org/name/file.gguf`, and the revision that was pasted with it."""

    id: str
    revision: str | None = None


def hub_name(pasted: str) -> HubName:
    """The id and the revision in what was pasted; the text as it is where it is neither address nor `id@revision`.
    https://huggingface.co/org/name/tree/v1, hf://org/name@v1, org/name@v1; of addresses only the hub's own."""
    from huggingface_hub import constants

    text = pasted.strip()
    address = urlsplit(text)
    if address.scheme in ("http", "https"):
        if address.netloc not in (*_HOSTS, urlsplit(constants.ENDPOINT).netloc):
            return HubName(pasted)
        parts = [unquote(part) for part in address.path.split("/") if part]
        at = next((n for n, part in enumerate(parts) if n in (1, 2) and part in _PARTS_OF_A_PAGE), None)
        if at is None:
            return HubName("/".join(parts))
        file = parts[at + 2 :] if parts[-1].endswith(".gguf") else []
        return HubName("/".join([*parts[:at], *file]), parts[at + 1] if len(parts) > at + 1 else None)
    text = re.sub(r"^hf://(models/)?", "", text)
    id, _, revision = text.partition("@")
    return HubName(id.rstrip("/"), revision) if revision else HubName(text)
