"""Is a tokenizer the one of its files, and does the model have a row for every id that it gives?"""

from typing import Any

from engine.models import untrusted
from engine.models.checkpoints import Checkpoint
from engine.records.errors import InputError

FILE = "tokenizer.json"
_FIRST = 3  # tokens at the beginning that may differ: a class may put a blank before a text
# Digits, blanks, lines, code, accents, other scripts, contractions. No combining marks: classes may compose them.
PROBE = """In 1998 it sold 123456 units, at 3.14 each; it's theirs, they'll SAY, aren't they?

\n  def area(width, height_m2=7):\n\t\treturn {"x_y": width**2, 'n': [1, 2]}  # naïve
Émigré café, ÅNGSTRÖM, Größe, señor   and  more    blanks.
HelloWorld camelCase snake_case CAPITALS http://example.org/a?b=c&d=%20 <b>bold</b>\r
👍🏽 ☃ 日本語の文です。 한국어 문장 Привет, мир! مرحبا नमस्ते … “quoted” – end"""


def probed(checkpoint: Checkpoint) -> untrusted.Encoded | None:
    """`PROBE` by tokenizer.json itself; None where there is none that can be read.
    `InputError` where trying it out takes more than it may: nothing else has read the file until then."""
    file = checkpoint.folder / FILE
    if not file.is_file():
        return None
    try:
        return untrusted.encoded(str(file.resolve()), PROBE)
    except untrusted.OverLimit as error:
        raise InputError(
            f"{checkpoint.id}: the tokenizer of {FILE} {error} for a page of text; expected one that grows a text by "
            "little, save the model's own beside it"
        ) from None


def check_class(tokenizer: Any, wanted: untrusted.Encoded | None, model_id: str) -> None:
    """`InputError` where the class that transformers chose, which rebuilds normalizer, pre-tokenizer and decoder by its
    own rules, cuts a text otherwise than tokenizer.json does; but for a blank at its beginning, which is a setting."""
    if wanted is None or not getattr(tokenizer, "is_fast", False):
        return
    ids = list(tokenizer(PROBE, add_special_tokens=False, verbose=False)["input_ids"])
    others = [token for token, number in wanted.added.items() if tokenizer.convert_tokens_to_ids(token) != number]
    what = ""
    if _differ(wanted.ids, ids):
        what = f"cuts a page of text into {len(ids)} tokens, its {FILE} into {len(wanted.ids)} other ones"
    elif others:
        what = f"gives {others[0]!r} another id than its {FILE}"
    if what:
        raise InputError(
            f"{model_id}: the class {type(tokenizer).__name__}, which transformers takes here, {what}; set "
            '"tokenizer_class": "PreTrainedTokenizerFast" in tokenizer_config.json, or save the model\'s own tokenizer'
        )


def _differ(ids: list[int], others: list[int]) -> bool:
    """Do they differ behind the first tokens?"""
    same = 0
    for one, other in zip(reversed(ids), reversed(others), strict=False):
        if one != other:
            break
        same += 1
    return max(len(ids), len(others)) - same > _FIRST


def check_vocabulary(tokenizer: Any, embeddings: Any, model_id: str) -> None:
    """`InputError` where the tokenizer gives ids that the embeddings do not have: not for special tokens that no text
    gives, of other modalities or a pad, but for those that begin or end a text or that the chat template mentions."""
    rows = int(embeddings.weight.shape[0])
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    beyond = {token: number for token, number in vocabulary.items() if number >= rows}
    if not beyond:
        return
    unread = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    template = str(tokenizer.chat_template or "")
    unread -= {tokenizer.bos_token, tokenizer.eos_token}
    wrong = sorted((number, token) for token, number in beyond.items() if token not in unread or token in template)
    if wrong:
        raise InputError(
            f"{model_id}: its tokenizer has {len(wrong):,} tokens with ids up to {wrong[-1][0]:,} ({wrong[-1][1]!r}), "
            f"its embeddings have {rows:,} rows; the tokenizer is another model's, or the embeddings were not resized "
            "for the tokens that were added: save the model's own beside it"
        )
