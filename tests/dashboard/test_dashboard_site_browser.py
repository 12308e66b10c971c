"""The site in a real Chromium, opened from the disk: the engine's replies token by token, the gate, no request beyond."""

import json
import random
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from browser_pages import MODEL_TIMEOUT_MS, TIMEOUT_MS

from dashboard.chat.edits import DOMAINS
from dashboard.site import build as site_build, effects
from dashboard.state import results, shipped
from engine.edits.effect import BROKEN

pytestmark = [pytest.mark.browser, pytest.mark.long]
PROMPTS, REPLY_TOKENS, WATCH_TOKENS = 200, 40, 60
EDITS = (
    {"selector": "lrp", "order": "lerf", "rate": 0.3}, {"selector": "wanda", "order": "morf", "rate": 0.05},
    {"selector": "magnitude", "order": "lerf", "rate": 0.1}, {"selector": "random", "order": "lerf", "rate": 0.5},
    {"selector": "consensus2", "domain": "hate", "lambda": 0.8, "k": 0.02},
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "pages"
    site_build.build(site_build.runs_of(["demo", "smollm2", "paper"], Path), out, measure=False)
    return out


@pytest.fixture
def page_of(browser, site):
    """Opens a page of the site from the disk; whatever else is asked for, and whatever goes wrong there, is told."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(TIMEOUT_MS)
    asked, wrong = [], []
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)

    def opened(name, place=""):
        page.goto(f"{(site / name).as_uri()}{'#' if place else ''}{place}")
        return page

    yield opened
    context.close()
    assert [url for url in asked if not url.startswith((f"{site.as_uri()}/", "data:", "blob:"))] == []
    assert wrong == []


@pytest.fixture(scope="module")
def loaded():
    from engine.models.loading import load_model

    return load_model("demo", dtype="float32", device="cpu")


def ranked(edit):
    """The app's edit of the page's."""
    parts = effects.offered()
    name = " ".join(str(edit[key]) for key in ("selector", "domain", "lambda", "k", "order", "rate") if key in edit)
    return next(one for one in parts if effects.name_of(one) == name)


def texts():
    """Prompts, and strings of all kinds of letters, digits, blanks, marks and signs."""
    draw = random.Random(1)
    ranges = ((32, 127), (160, 0x2000), (0x2000, 0xD800), (0xE000, 0x1F900), (48, 58), (9, 14), (32, 33), (0x85, 0x86))
    made = ["Hello  world\n\n  x", "don't I'll you've 'S", "<|end|> inside <|user|>", "½ ② Ⅷ 12345", "\ufeffx", "👍🏽"]
    for _ in range(2000):
        letters = (draw.randrange(*draw.choice(ranges)) for _ in range(draw.randrange(1, 25)))
        made.append("".join(map(chr, letters)))
    return made


def test_the_tokenizer_is_the_models(page_of, loaded):
    from engine.data.prompts import prompt_ids

    page, asked = page_of("live.html"), texts()
    ids = [loaded.tokenizer(text, add_special_tokens=False)["input_ids"] for text in asked]
    read = [loaded.tokenizer.decode(one, skip_special_tokens=True, clean_up_tokenization_spaces=False) for one in ids]
    found = page.evaluate(
        "async (texts) => { const { tokenizer } = await loaded(); return texts.map((text) => { const ids ="
        " tokenizer.encode(text); return [ids, tokenizer.decode(ids)] }) }", asked
    )  # fmt: skip
    assert found == [[one, text] for one, text in zip(ids, read, strict=True)]
    some = [one.prompt for one in shipped.examples()]
    chats = page.evaluate("async (texts) => { const { tokenizer } = await loaded(); return texts.map((one) => tokenizer.chat(one)) }", some)  # fmt: skip
    assert chats == [prompt_ids(loaded.tokenizer, prompt) for prompt in some]


def test_replies_are_the_engines_token_by_token(page_of, loaded):
    from engine.edits.edit import edit_of
    from engine.measures.generation import generate_under
    from engine.measures.margin import margins_under

    prompts = [one.prompt for one in shipped.held_out(list(DOMAINS), PROMPTS // 10)]
    assert len(prompts) == PROMPTS
    masks = [effects.mask_of(ranked(edit)) for edit in EDITS]
    carried = [edit_of(mask, loaded.rows.n_rows) for mask in masks]
    expected = generate_under(loaded, carried, prompts, REPLY_TOKENS)
    leaned = margins_under(loaded, carried, prompts)
    page = page_of("live.html")
    seconds, tokens = 0.0, 0
    for edit, mask, wanted, margins in zip(EDITS, masks, expected, leaned, strict=True):
        removed, found, spent = page.evaluate(
            """async ([edit, prompts, most]) => {
              const live = await loaded();
              const removed = await rowsOf(edit);
              const found = [];
              const began = performance.now();
              for (const prompt of prompts) {
                let last = null;
                await replies(live, prompt, { one: removed }, most, (_, told) => (last = told));
                found.push([last.ids, last.text, last.finished, last.margin]);
              }
              return [[...removed], found, performance.now() - began];
            }""",
            [edit, prompts, REPLY_TOKENS],
        )
        assert np.flatnonzero(removed).tolist() == mask.tolist()
        assert [one[:3] for one in found] == [[list(one.ids), one.text, one.finished] for one in wanted]
        np.testing.assert_allclose([one[3] for one in found], margins, atol=1e-4)  # float32 sums in another order
        seconds, tokens = seconds + spent / 1000, tokens + sum(len(one[0]) for one in found)
    speed = f"{tokens / seconds:.0f} tokens a second, {PROMPTS} prompts x {len(EDITS)} edits, one reply at a time"
    print(speed)  # noqa: T201 # a number to read with -s; how fast this machine is now is nothing to assert


def test_watch_it_break_says_what_the_tables_hold(page_of):
    table = results.read_table(shipped.demo_results_dir(), "sweep_replies").frame
    page = page_of("index.html")
    for row in table.sample(6, seed=3).iter_rows(named=True):
        edit = {name: row[name] for name in ("selector", "order", "rate")}
        found = page.evaluate(
            """async ([edit, prompt, most]) => {
              let last = null;
              const removed = edit.rate ? await rowsOf(edit) : null;
              await replies(await loaded(), prompt, { one: removed }, most, (_, told) => (last = told));
              return [last.text, last.finished];
            }""",
            [edit, row["prompt"], WATCH_TOKENS],
        )
        assert found == [row["reply"], row["finished"]], edit
    page.locator(".race .reply .text").first.get_by_text(
        table.filter(rate=0.0)["reply"][0][:20]
    ).wait_for(timeout=MODEL_TIMEOUT_MS)  # fmt: skip


def test_an_edit_that_lowers_refusal_is_not_answered_and_a_broken_one_is_stamped(page_of):
    known = effects.recorded()["effects"]
    ranked = {effects.name_of(edit): edit for edit in effects.offered() if edit.order}
    lowered = next(name for name in ranked if known[name]["why"])
    broken = next(
        name for name in ranked
        if not known[name]["why"] and known[name]["nats"][1] - known[name]["nats"][0] > np.log(BROKEN)
    )  # fmt: skip
    for name in (lowered, broken):
        edit = ranked[name]
        settings = {"selector": edit.selector, "order": edit.order, "rate": f"{edit.rate:g}", "prompt": "<b>Hello</b>"}
        page_of("about.html")  # another address of the same page would not load it again
        page = page_of("live.html", urlencode(settings))
        page.locator("#before .facts", has_text="ended").or_(
            page.locator("#before .facts", has_text="cut off")
        ).wait_for(timeout=MODEL_TIMEOUT_MS)
        after, control = (page.locator(f"#{side} .said").inner_text() for side in ("after", "control"))
        if name == lowered:
            assert after == control == "Not answered."
            assert known[name]["why"] in page.locator("#ask .status").inner_text()
        else:
            assert "BROKEN" in page.locator("#after .stamp").inner_text()


def test_pages_fit_a_phone_and_the_search_leads_on(page_of):
    page = page_of("index.html")
    for name in ("index", "curves", "verdicts", "refusal", "paper", "live", "about", "reference-methods"):
        page = page_of(f"{name}.html")
        for width in (400, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.locator("#search").fill("wilson interval")
    hit = page.locator("#hits .hit").first
    hit.wait_for()
    assert "wilson" in hit.inner_text().lower()
    hit.click()
    page.wait_for_url("**/*.html#*")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert json.loads(page.evaluate("JSON.stringify(localStorage)"))
