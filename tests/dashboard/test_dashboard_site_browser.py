"""The site in a real Chromium, opened from the disk: the engine's replies, the gate, no request but its own files."""

import random
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from browser_pages import MODEL_TIMEOUT_MS, TIMEOUT_MS

from dashboard.chat import shipped_effects as effects
from dashboard.chat.edits import DOMAINS
from dashboard.site import build as site_build
from dashboard.state import results, shipped_models as shipped
from engine.edits.edit_effect import BROKEN

pytestmark = [pytest.mark.browser, pytest.mark.long]
PROMPTS, REPLY_TOKENS, WATCH_TOKENS = 200, 40, 60
EDITS = (
    {"selector": "lrp", "order": "lerf", "rate": 0.3}, {"selector": "wanda", "order": "morf", "rate": 0.05},
    {"selector": "magnitude", "order": "lerf", "rate": 0.1}, {"selector": "random", "order": "lerf", "rate": 0.5},
    {"selector": "consensus2", "domain": "hate", "lambda": 0.8, "k": 0.02},
)  # fmt: skip
CODE = (
    "(texts) => loaded().then(({ tokenizer: it }) => texts.map((one) => [it.encode(one), it.decode(it.encode(one))]))"
)
ASK = """async ([edit, prompts, most]) => {
  const live = await loaded();
  const removed = edit.rate === 0 ? null : await rowsOf(edit);
  const [began, found] = [performance.now(), []];
  for (const [i, prompt] of prompts.entries()) {
    const keep = (_, last) => (found[i] = [[...last.ids], last.text, last.finished, last.margin]);
    await replies(live, prompt, { one: removed }, most, keep);
  }
  return [found, [...(removed ?? [])], (performance.now() - began) / 1000];
}"""


@pytest.fixture(scope="module")
def loaded():
    from engine.models.loading import load_model

    return load_model("demo", dtype="float32", device="cpu")


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
        page.goto(f"{(site / name).as_uri()}{place and '#'}{place}")
        return page

    yield opened
    context.close()
    assert [url for url in asked if not url.startswith((f"{site.as_uri()}/", "data:", "blob:"))] == []
    assert wrong == []


def mask_of(edit):
    wanted = " ".join(str(value) for value in edit.values())
    return next(effects.mask_of(one) for one in effects.offered() if effects.name_of(one) == wanted)


def test_the_tokenizer_is_the_models(page_of, loaded):
    from engine.data.prompts import prompt_ids

    draw, page = random.Random(1), page_of("live.html")
    ranges = ((32, 127), (160, 0x2000), (0x2000, 0xD800), (0xE000, 0x1F900), (48, 58), (9, 14), (32, 33), (0x85, 0x86))
    texts = ["Hello  world\n\n  x", "don't I'll you've 'S", "<|end|> inside <|user|>", "½ ② Ⅷ 12345", "\ufeffx", "👍🏽"]
    for _ in range(2000):
        texts.append("".join(chr(draw.randrange(*draw.choice(ranges))) for _ in range(draw.randrange(1, 25))))
    ids = [loaded.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    read = [loaded.tokenizer.decode(one, skip_special_tokens=True, clean_up_tokenization_spaces=False) for one in ids]
    assert page.evaluate(CODE, texts) == [list(pair) for pair in zip(ids, read, strict=True)]
    prompts = [one.prompt for one in shipped.examples()]
    chats = page.evaluate("(some) => loaded().then(({ tokenizer }) => some.map((one) => tokenizer.chat(one)))", prompts)
    assert chats == [prompt_ids(loaded.tokenizer, prompt) for prompt in prompts]


def test_replies_are_the_engines_token_by_token(page_of, loaded):
    from engine.edits.edit import edit_of
    from engine.measures.generation import generate_under
    from engine.measures.margin import margins_under

    prompts = [one.prompt for one in shipped.held_out(list(DOMAINS), PROMPTS // 10)]
    assert len(set(prompts)) == PROMPTS
    masks = [mask_of(edit) for edit in EDITS]
    carried = [edit_of(mask, loaded.rows.n_rows) for mask in masks]
    expected, leaned = generate_under(loaded, carried, prompts, REPLY_TOKENS), margins_under(loaded, carried, prompts)
    page, seconds, tokens = page_of("live.html"), 0.0, 0
    for edit, mask, wanted, margins in zip(EDITS, masks, expected, leaned, strict=True):
        found, removed, spent = page.evaluate(ASK, [edit, prompts, REPLY_TOKENS])
        assert np.flatnonzero(removed).tolist() == mask.tolist()
        assert [one[:3] for one in found] == [[list(one.ids), one.text, one.finished] for one in wanted]
        np.testing.assert_allclose([one[3] for one in found], margins, atol=1e-4)  # float32 sums in another order
        seconds, tokens = seconds + spent, tokens + sum(len(one[0]) for one in found)
    print(f"{tokens} tokens, {tokens / seconds:.0f} a second, one reply at a time")  # noqa: T201 # read with -s


def test_watch_it_break_says_what_the_tables_hold(page_of):
    table, page = results.read_table(shipped.demo_results_dir(), "sweep_replies").frame, page_of("index.html")
    for row in table.sample(6, seed=3).iter_rows(named=True):
        edit = {name: row[name] for name in ("selector", "order", "rate")}
        found, *_ = page.evaluate(ASK, [edit, [row["prompt"]], WATCH_TOKENS])
        assert found[0][1:3] == [row["reply"], row["finished"]], edit
    page.locator(".race .rate").first.press("Home")
    first = table.filter(rate=0.0, prompt=page.locator(".race .prompt").first.input_value())["reply"][0]
    page.locator(".race .reply .text", has_text=first).first.wait_for(timeout=MODEL_TIMEOUT_MS)


def test_an_edit_that_lowers_refusal_is_not_answered_and_a_broken_one_is_stamped(page_of):
    known, ranked = effects.recorded()["effects"], {effects.name_of(one): one for one in effects.offered() if one.order}
    lowered = next(name for name in ranked if known[name]["why"])
    broken = next(name for name in ranked if not known[name]["why"] and np.diff(known[name]["nats"]) > np.log(BROKEN))
    for name in (lowered, broken):
        settings = {part: getattr(ranked[name], part) for part in ("selector", "order", "rate")}
        page_of("about.html")  # another address of one page would not load it again
        page = page_of("live.html", urlencode({**settings, "prompt": "<b>Hello</b>"}))
        page.locator("#before .facts").filter(has_not_text="writing").filter(has_text="tokens").wait_for()
        if name == broken:
            assert "BROKEN" in page.locator("#after .stamp").inner_text()
            continue
        assert {page.locator(f"#{side} .said").inner_text() for side in ("after", "control")} == {"Not answered."}
        assert known[name]["why"] in page.locator("#ask .status").inner_text()


def test_pages_fit_a_phone_and_a_wall_and_the_search_leads_on(page_of):
    for name in ("index", "curves", "verdicts", "refusal", "paper", "live", "about", "reference-methods"):
        for width in (400, 1920):
            page = page_of(f"{name}.html")
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
    page.locator("#search").fill("wilson interval")
    page.locator("#hits .hit", has_text="Wilson").first.click()
    page.wait_for_url("**/*.html#*")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_a_figures_button_has_no_box_of_its_own(page_of):
    group = page_of("curves.html").locator(".modebar-group").first  # always in sight where nothing hovers
    group.hover()
    assert group.evaluate("one => getComputedStyle(one).backgroundColor") == "rgba(0, 0, 0, 0)"
