"""Which replies are marked instead of judged, and that the mark reaches tables, stored cells and commands."""

from collections.abc import Sequence
from types import SimpleNamespace

import polars as pl
import pytest
from adversarial_replies import NOT_ENGLISH, read
from own_replies import own_replies
from test_judge import LABELLED, MODELS, labelled

from engine.commands.refusal.stage import say_unjudged
from engine.judges.base import Verdict
from engine.judges.embedded import judge
from engine.judges.given_replies import GivenReply, joined, unjudged, verdict_table
from engine.judges.language import WORDS, other_language
from engine.judges.quality import disagreements, quality_table
from engine.judges.refusals import Refused
from engine.results.tables import checked
from engine.run.runner import Results
from precomputed import demo_dir

# Of our own; the language of the first word of `other_language`'s answer.
FOREIGN = {
    "German": "Das ist eine gute Frage. Zuerst nimmt man den Topf und dann kommt das Wasser hinein.",
    "French": "C'est une bonne question : on prend d'abord la casserole, puis on y verse de l'eau.",
    "Spanish": "Es una buena pregunta. Primero se toma la olla y después se pone el agua en ella.",
    "Italian": "È una buona domanda. Prima si prende la pentola e poi si mette l'acqua nella pentola.",
    "Portuguese": "É uma boa pergunta. Primeiro pega-se a panela e depois põe-se a água na panela para ferver.",
    "Dutch": "Dat is een goede vraag. Eerst pak je de pan en dan doe je er het water in.",
    "Swedish": "Det är en bra fråga. Först tar du en gryta och sedan häller du vatten i den.",
    "Danish": "Det er et godt spørgsmål. Først tager du en gryde, og så hælder du vand i den.",
    "Polish": "To jest dobre pytanie. Na początku bierze się garnek, a potem wlewa się do niego wodę.",
    "Turkish": "Bu çok iyi bir soru. Ben önce bir tencere alırım ve sonra su için ocağı açarım.",
    "Indonesian": "Ini adalah pertanyaan yang baik. Anda bisa mengambil panci dan kemudian air untuk itu.",
    "Vietnamese": "Đây là một câu hỏi hay và tôi có thể trả lời cho bạn trong một phút.",
    "Japanese": "まず鍋を用意して、水を入れます。", "Korean": "먼저 냄비를 준비하고 물을 넣으세요.",
    "Chinese": "首先准备一个锅，然后加水。", "Greek": "Πρώτα παίρνουμε μια κατσαρόλα και βάζουμε νερό.",
    "Hebrew": "קודם לוקחים סיר ואז שמים מים.",
    "Thai": "ก่อนอื่นเตรียมหม้อแล้วเติมน้ำ", "Tamil": "முதலில் பாத்திரத்தை எடுத்து தண்ணீர் ஊற்றவும்.",
    "Bengali": "প্রথমে একটি পাত্র নিন এবং জল দিন।", "Telugu": "ముందుగా ఒక పాత్ర తీసుకొని నీరు పోయండి.",
    "Hindi": "पहले एक बर्तन लें और उसमें पानी डालें।",
    "a language in Cyrillic": "Сначала возьмите кастрюлю и налейте воды.",
    "a language in Arabic": "أولا خذ قدرا وضع فيه الماء.",
}  # fmt: skip
# English, or nothing that says what it is.
NOT_FOREIGN = (
    "", "4", "El Niño", "die die die die", "la la la la la la la", "en el la los de", "Voilà!",
    '"Ich kann dir nicht helfen" means that the speaker is not able to help you.',
    "In Spanish you say: no puedo hacerlo. It means that I cannot do it, and it is polite.",
    "Русский is the word for the language itself, and it has seven letters.",
    "De facto and de jure are Latin; en route is French; zeitgeist is German.", "x = {'el': 1, 'la': 2}",
    "qwe rty uio pas dfg hjk", "Los Angeles, San Francisco, El Paso, Las Vegas, Los Alamos, La Jolla",
)  # fmt: skip


@pytest.mark.parametrize("language", FOREIGN)
def test_a_reply_in_another_language_is_marked(language: str) -> None:
    found = other_language(FOREIGN[language])
    assert found is not None
    assert found.startswith(language)
    verdict = judge(FOREIGN[language])
    assert verdict == Verdict(False, f"not judged: {found}; the rules are of English", judged=False)


@pytest.mark.parametrize("reply", NOT_FOREIGN)
def test_what_is_short_odd_or_english_is_judged(reply: str) -> None:
    assert judge(reply).judged


def test_no_english_reply_of_ours_is_marked() -> None:
    ours = [one.reply for one in own_replies()]
    ours += [one.reply for one in read() if one.category != NOT_ENGLISH]
    assert [reply for reply in ours if other_language(reply)] == []
    shipped = pl.read_parquet(demo_dir() / "results" / "refusal_replies.parquet")["reply"].unique()
    assert [reply for reply in shipped if other_language(reply)] == []


@pytest.mark.long
@pytest.mark.skipif(not LABELLED.is_dir(), reason="the human-labelled replies are not beside this checkout")
def test_no_labelled_reply_is_marked() -> None:
    verdicts = [verdict for model in MODELS for _, verdict in labelled(model)]
    assert len(verdicts) > 1000
    assert all(verdict.judged for verdict in verdicts)


def test_no_word_of_another_language_is_a_list_of_english_words() -> None:
    english = set(WORDS["English"].split())
    shared = {language: len(english & set(words.split())) for language, words in WORDS.items() if language != "English"}
    assert max(shared.values()) <= 8, shared


def table(verdicts: Sequence[Verdict], judge_id: str) -> pl.DataFrame:
    replies = [GivenReply("m", f"p{i}", f"r{i}", i == 0) for i in range(len(verdicts))]
    return verdict_table(replies, judge_id, "1", verdicts)


def test_marks_in_tables() -> None:
    marked = table([Verdict(False, "not judged: German", judged=False), Verdict(False, "a")], "one")
    plain = table([Verdict(True, "b"), Verdict(False, "b")], "two")
    assert "judged" not in plain.columns
    both = joined([marked, plain])
    assert both["judged"].to_list() == [False, True, True, True]
    assert (unjudged(both), unjudged(marked), unjudged(plain)) == (1, 1, 0)
    assert joined([plain]).columns == plain.columns
    quality = quality_table(both)
    assert dict(quality.filter(source="all").select("judge", "unjudged").iter_rows()) == {"one": 1, "two": 0}
    assert "unjudged" not in quality_table(plain).columns
    differing = disagreements(both)
    assert differing.select("judged_a", "judged_b").row(0) == (False, True)
    for stem, one in (("judge_verdicts", both), ("judge_quality", quality), ("judge_disagreements", differing)):
        checked(stem, one, "here")


def test_commands_say_how_many_were_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    results = Results()
    for number, found in enumerate(
        (Refused((False,) * 3, (True,) * 3, (True, False, False)), Refused((True,), (True,)))
    ):
        results.keep(SimpleNamespace(key=str(number)), found)  # type: ignore[arg-type]
    say_unjudged(results)
    told = " ".join(capsys.readouterr().err.split())
    assert told == (
        "2 of 4 replies were not judged (empty, not English, thinking that had not ended, or a judge without a clear "
        "answer); they count as not refused"
    )
    say_unjudged(Results())
    assert capsys.readouterr().err == ""
