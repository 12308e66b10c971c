"""Our typeface, Inter (SIL Open Font License 1.1, `OFL.txt`): a file per weight, of the letters that the software uses.

What other letters a model writes are drawn in typefaces of the reader's machine. The files are Inter 3.19, cut to
Latin, Greek, arrows, signs of mathematics and raised numbers with fontTools' `pyftsubset`."""

import base64
from functools import cache
from hashlib import sha256
from pathlib import Path

NAME = "Inter"
FAMILY = f"{NAME}, Source Sans, sans-serif"  # where no file can be loaded, Streamlit's own or the browser's
WEIGHTS = (400, 600, 700)
FOLDER = Path(__file__).parent
MEDIA_TYPE = "font/woff2"


@cache
def data(weight: int) -> bytes:
    return (FOLDER / f"inter-{weight}.woff2").read_bytes()


@cache
def path(weight: int) -> str:
    """Where the app serves it: another file has another address, so that browsers may keep it for good."""
    return f"/typeface/inter-{weight}-{sha256(data(weight)).hexdigest()[:12]}.woff2"


def css() -> str:
    """The rules that bring it into a page of its own, without a request."""
    return "".join(
        f"@font-face{{font-family:{NAME};font-weight:{weight};font-display:swap;"
        f'src:url(data:{MEDIA_TYPE};base64,{base64.b64encode(data(weight)).decode()}) format("woff2")}}'
        for weight in WEIGHTS
    )
