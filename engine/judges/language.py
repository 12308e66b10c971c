"""Is a text English? By the script of its letters and by the commonest words of some languages; no download.

Only a text that is clearly in another language is named. Short and degenerate ones pass as English: the rules of
English find nothing in them either way, and a wrong mark would take a reply out of the count.
"""

from __future__ import annotations

import re
from collections import Counter

# Letters of one script, in the order in which a text is asked: kana decide that it is not Chinese.
SCRIPTS = {
    "Japanese": "\u3040-\u30ff",
    "Korean": "\uac00-\ud7af\u1100-\u11ff",
    "Chinese": "\u3400-\u4dbf\u4e00-\u9fff",
    "a language in Cyrillic letters": "\u0400-\u052f",
    "Greek": "\u0370-\u03ff",
    "a language in Arabic letters": "\u0600-\u06ff\u0750-\u077f",
    "Hebrew": "\u0590-\u05ff",
    "Hindi or another language in Devanagari": "\u0900-\u097f",
    "Bengali": "\u0980-\u09ff",
    "Tamil": "\u0b80-\u0bff",
    "Telugu": "\u0c00-\u0c7f",
    "Thai": "\u0e00-\u0e7f",
}
_IN_SCRIPT = {name: re.compile(f"[{letters}]") for name, letters in SCRIPTS.items()}
_MANY_KANA = 0.1  # of the letters: Chinese has none, Japanese mixes them with Chinese characters
_FEW_LETTERS = 4
ENGLISH = "English"
# The commonest words (function words) of each language; those that are common in English as well stand in neither.
WORDS = {
    ENGLISH: "the of and to in is it you that was for on are with as they be this have from or had by but not what all "
    "were we when your can there an which she do how their if will up other about out many then them these some her "
    "would make like him into has two more my than been who its now did get may i'm can't don't it's cannot i",
    "German": "der die das den dem des ein eine einem einer und oder aber nicht ich du er sie es wir ihr mich dich "
    "mir dir ist sind war wird werden wurde hat haben kann können soll auf aus bei mit nach von zu zum zur für über "
    "auch nur noch sich wenn dass daß weil wie dabei leider kein keine sehr mehr diese dieser dieses im lass nimm",
    "French": "le la les un une des du de et ou mais ne pas je tu il elle nous vous ils est sont suis être avoir peux "
    "peut dans sur avec pour par que qui ce cette ces au aux mon ton son votre plus très en y quand donc comme "
    "désolé parce qu' l' d' j' n' c' s'",
    "Spanish": "el la los las un una unos unas de del y o pero no yo tú él ella nosotros es son está están ser puedo "
    "puede en con para por que qué quien se su sus lo le les al mi tu más muy como cuando porque sobre este esta "
    "esto nadie siento voy hay si sí",
    "Italian": "il lo la i gli le un uno una di del della dei delle e o ma non io tu lui lei noi è sono era posso può "
    "in con per su che chi si mi ti ci come quando perché questo questa più molto anche dispiace al alla nel nella",
    "Portuguese": "o a os as um uma de do da dos das e ou mas não eu tu ele ela nós é são está posso pode em no na "
    "nos nas com para por que quem se seu sua lhe ao à mais muito como quando porque sobre este esta isso desculpe",
    "Dutch": "de het een en of maar niet ik jij je hij zij wij is zijn was wordt worden kan kunnen in op uit bij met "
    "naar van voor over ook nog wel geen dat die dit deze als dan er om te aan spijt mij iemand veel",
    "Swedish": "och att det som en ett är av för på den med inte jag du han hon vi kan till om men har från var eller "
    "så ska mig dig detta denna",
    "Danish or Norwegian": "og at det som en et er af av for på den med ikke jeg du han hun vi kan til om men har fra "
    "var eller så skal mig meg dig deg dette denne",
    "Polish": "i w na z do nie się jest to że jak ale o po co tak za od czy przez dla mogę są był była jego jej ja ty",
    "Turkish": "ve bir bu da de için ile ne var çok ama ben sen o daha gibi kadar değil mi olarak veya yok bana",
    "Indonesian": "yang dan di ke dari untuk tidak ini itu dengan adalah saya kamu anda bisa dapat pada akan atau "
    "juga oleh karena maaf tentang",
    "Vietnamese": "và của là có không được cho một những tôi bạn này với các trong để khi người đã thể xin lỗi về",
}
_SETS = {language: frozenset(words.split()) for language, words in WORDS.items()}
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]*)?")
# What stands between two words, with the letter behind it: every match goes on where the last one ended.
_LETTER_AFTER = re.compile(r"([\W\d_]++)([^\W\d_]|\Z)|\A[^\W\d_]")
_SENTENCE_END = re.compile(r"[.!?¿¡:\n]")
_ELIDED = re.compile(r"\b(qu|[ldjnsc])'(?=\w)")
_DISTINCT = 3  # different function words that a language has to show
_SHARE = 0.2  # of all words
_LEAD = 2  # times as many as in English


def other_language(text: str) -> str | None:
    """The name of the language of a text, where that is clearly not English; None for English or unclear.

    text: in `plain` typography.

    By script: more than half of at least 4 letters are of one other script. By words, in Latin letters: at least 3
    different function words of a language, a fifth of all words but not all of them, and more than twice as many as
    English ones. Words that begin with a capital inside a sentence are names ("El Paso").
    """
    letters = sum(character.isalpha() for character in text)
    counts = {name: len(pattern.findall(text)) for name, pattern in _IN_SCRIPT.items()}
    if letters >= _FEW_LETTERS and 2 * sum(counts.values()) > letters:
        if counts["Japanese"] > _MANY_KANA * letters:
            return "Japanese"
        return max((name for name in counts if name != "Japanese"), key=counts.__getitem__)
    text = text.lower() if text.isupper() else _LETTER_AFTER.sub(_small_at_start, text)
    words = _WORD.findall(_ELIDED.sub(r"\1' ", text))
    return _by_words(Counter(words)) if words else None


def _small_at_start(found: re.Match[str]) -> str:
    between = found[1]
    starts = not found.start() or _SENTENCE_END.search(between)
    return found[0].lower() if starts else found[0]


def _by_words(words: Counter[str]) -> str | None:
    found = {language: words.keys() & common for language, common in _SETS.items()}
    tokens = {language: sum(words[word] for word in some) for language, some in found.items()}
    best = max((one for one in WORDS if one != ENGLISH), key=tokens.__getitem__)
    clear = (
        len(found[best]) >= _DISTINCT
        and _SHARE * words.total() <= tokens[best] < words.total()
        and tokens[best] > _LEAD * tokens[ENGLISH]
        and len(found[best]) > len(found[ENGLISH])
    )
    return best if clear else None
