"""Writes a site: pages, their figures, the model's files and what runs them, into a folder of its own.

What the live parts need of the shipped model are scripts: weights, tokenizer, scores, contrasts, edits and their
effects, and what Watch it break plays."""

import base64
import html
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
import polars as pl
from markdown_it import MarkdownIt
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from dashboard.charts import formats, palette, typeface, watch
from dashboard.charts.series import ORDER_TITLES
from dashboard.chat import edits, opening, record_effects, shipped_effects as effects, stamps
from dashboard.chat.effects import in_words
from dashboard.pages.overview import watch_it
from dashboard.pages.reference import documents
from dashboard.show import shown_tables as tables
from dashboard.site import pages
from dashboard.site.site_blocks import Block, Page, Run, Section, as_json, script, table
from dashboard.state import results, scores, shipped_models as shipped
from engine.commands.outputs import SITE_FILE, SITE_MARK, check_site, site_files
from engine.data.onsets import ONSET_PHRASES
from engine.records.errors import InputError
from engine.records.files import PLAIN, make_folder, remove, write_atomic
from engine.records.hashing import file_sha256, installed_version
from engine.run.refusal_plan import RefusalPlan
from precomputed import demo_model_dir, paper_runs_dir

EVERY = "Every command"  # of the document of commands: all helps stand there
PAPER, VERSION = "paper", installed_version("selector-audit")
ASSETS = Path(__file__).parent / "assets"
WATCH = Path(__file__).parents[1] / "show" / "watch"
MODEL = ("tokenizer", "model", "edits", "live")  # what runs the model
SCRIPTS = {"": ("site",), "index": (*MODEL, "watch", "site", "watch-page"), "live": (*MODEL, "site", "live-page")}
# Nothing is asked of any server but the site's own files, and those only as scripts, styles and images.
POLICY = "; ".join((
    "default-src 'none'", "script-src 'self'", "style-src 'self' 'unsafe-inline'", "img-src 'self' data: blob:",
    "font-src data:", "connect-src 'none'", "base-uri 'none'", "form-action 'none'",
))  # fmt: skip
LIVE_LINE = (
    "The same prompt answered by the model as it is, with the chosen rows zeroed, and with random rows of the same "
    "layers zeroed; computed in this browser."
)
_FORMULA = re.compile(r"^\$\$\s*(.*?)\s*\$\$$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r'<a href="([^"]*)">(.*?)</a>', re.DOTALL)
LOWERED, BROKEN, SHOWN = "lowered", "broken", "shown"  # what becomes of an edit
WEIGHTS = "model.safetensors"
Progress = Callable[[str, int, int], None]


def runs_of(names: Sequence[str], find: Callable[[str], Path]) -> list[Run]:
    """The runs that are named: shipped ones, `paper` for all models of the paper, others by `find`."""
    titles = {model: title for title, model in shipped.IDS.items()}
    known = {shipped.IDS[title]: folder for title, folder in shipped.folders().items()}
    runs = []
    for name in names:
        if name == PAPER:
            for folder in sorted(paper_runs_dir().iterdir()):
                if (folder / "manifest.json").is_file():
                    runs.append(Run(folder, f"{formats.model_title(folder.name)} (paper)", folder.name, True))
            continue
        folder = known.get(name) or find(name)
        models = results.read_run(folder).models
        if not models:
            needs = "which a site begins with; run `selector-audit analyze MODEL all`"
            raise InputError(f"{folder} holds no sweep, {needs}")
        runs.append(Run(folder, titles.get(name, formats.model_title(models[0])), models[0]))
    return runs


def build(runs: Sequence[Run], out: Path, progress: Progress = lambda *_: None, *, measure: bool = True) -> Path:
    """The site of these runs in `out`, which is new or holds an earlier one; its first page.
    measure: edits whose effect the shipped record lacks are measured first; else they are not offered. Errors:
    InputError as `check_site`, and for results that cannot be read."""
    check_site(out)
    record = effects.recorded()
    if measure:
        record = record_effects.measured(record, effects.offered(), progress)
    content = _files(runs, record, progress)
    before = site_files(out)
    check_site(out, [SITE_FILE, *content])
    make_folder(out)
    for number, (name, body) in enumerate(content.items()):
        progress("files", number, len(content))
        make_folder((out / name).parent)
        write_atomic(out / name, body)
    hashes = {name: sha256(body).hexdigest() for name, body in content.items()}
    about = {"generator": SITE_MARK, "version": VERSION, "runs": [run.title for run in runs], "files": hashes}
    write_atomic(out / SITE_FILE, json.dumps(about, indent=1).encode())
    for name in before.keys() - {SITE_FILE, *content}:
        path = out / name
        if path.is_file() and file_sha256(path) == before[name]:  # as it was written
            remove(path, PLAIN)
    progress("files", len(content), len(content))
    return out / "index.html"


def _files(runs: Sequence[Run], record: effects.Record, progress: Progress) -> dict[str, bytes]:
    """Name -> content of every file but the list of them."""
    progress("pages", 0, 3)
    shown = pages.pages(runs)
    results_pages = [(page.name, page.title if page.name != "index" else "Overview") for page in shown]
    menu = [*results_pages, ("live", "Live edit"), (_file(documents.METHODS), "Reference"), ("about", "About")]
    shown.append(Page("live", "Live edit", LIVE_LINE))
    shown += [Page(_file(title), title, "Reference", _document(title)) for title in documents.FILES]
    shown.append(Page("about", "About this site", "Where every number and file comes from.", _about(runs, record)))
    progress("pages", 1, 3)
    races, made = dict[str, dict[str, Any]](), dict[str, bytes]()  # what Watch it break plays, by section
    for number, run in enumerate(runs):
        if not run.published and watch_it.scored(run.folder):
            live = run.folder == shipped.demo_results_dir()
            body, legend = _race(run, f"watch-{number}", every=live)
            made[f"data/watch-{number}.js"] = body
            races[f"run-{number}"] = {"data": f"watch-{number}", "legend": legend, "live": live}
    progress("pages", 2, 3)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["worded"] = _worded
    template = environment.get_template("page.html.jinja")
    for page in shown:
        text = template.render(
            page=page, menu=menu, policy=POLICY, scripts=SCRIPTS, races=races, version=VERSION,
            watch=Markup((WATCH / "watch.html").read_text("utf-8")),  # nosec B704 # a file of ours
            documents=[(_file(title), title) for title in documents.FILES],
        )  # fmt: skip
        made[f"{page.name}.html"] = text.encode()
        if page.figures:
            made[f"data/figures-{page.name}.js"] = script(f"figures-{page.name}", f"[{','.join(page.figures)}]")
    made["data/live.js"] = _live(record)
    made |= {f"data/{name}.js": body for name, body in _model_files()}
    made["data/search.js"] = script("search", as_json(_search(shown)))
    progress("pages", 3, 3)
    return made | _assets()


def _model_files() -> Iterator[tuple[str, bytes]]:
    """Name and content of the scripts with the model's files as they are, binary ones in base64."""
    results = shipped.demo_results_dir()
    for folder, name in ((demo_model_dir(), WEIGHTS), (results, scores.SCORES), (results, edits.CONTRASTS)):
        content = base64.b64encode((folder / name).read_bytes()).decode()
        yield name, f"SelectorAudit.files[{json.dumps(name)}] = {json.dumps(content)};\n".encode()
    tokenizer = json.loads((demo_model_dir() / "tokenizer.json").read_text("utf-8"))
    yield "tokenizer", script("tokenizer", as_json(tokenizer))


def _live(record: effects.Record) -> bytes:
    """The script `live`: configuration, layers, edits that are offered with what was measured of them, examples."""
    config, generation = (
        json.loads((demo_model_dir() / f"{name}.json").read_text("utf-8")) for name in ("config", "generation_config")
    )
    rows = scores.read_rows(shipped.demo_results_dir())
    layers = rows.group_by("block", "projection", maintain_order=True).agg(pl.col("row_id").min(), pl.len())
    first = opening.request(shipped.DEMO)
    offered = [edit for edit in effects.offered() if effects.is_known(record, edit)]
    known = {effects.name_of(edit): _told(record["effects"][effects.name_of(edit)]) for edit in offered}
    return script("live", as_json({
        "config": config, "layers": [list(row) for row in layers.rows()], "rows": rows.height,
        "ends": [generation["eos_token_id"]], "phrases": ONSET_PHRASES._asdict(),
        "effects": known, "opening": None if first is None else effects.name_of(first.edit),
        "titles": {name: palette.title(name) for name in {edit.selector for edit in offered}},
        "selectors": palette.in_order([edit.selector for edit in offered]), "domains": list(edits.DOMAINS),
        "orders": ORDER_TITLES, "seeds": list(RefusalPlan.control_seeds),
        "examples": [[one.domain, one.kind, one.prompt] for one in shipped.examples(shipped.DEMO)],
        "looks": {name: [look.icon, look.colour] for name, look in stamps.LOOKS.items()},
    }))  # fmt: skip


def _told(known: effects.Record) -> tuple[str, str]:
    if known["why"]:
        return LOWERED, f"Not answered: {known['why']}."
    effect = effects.effect(known)
    return BROKEN if effect.broken else SHOWN, in_words(effect)


def _race(run: Run, name: str, *, every: bool) -> tuple[bytes, str]:
    """The script `name` of what Watch it break plays, and its legend. every: all rankings, to choose from; else two."""
    sweep, replies = run.sweep, run.table(watch_it.REPLIES)
    racers = watch_it.racers_of(sweep)
    pair = watch_it.defaults(racers, sweep)
    chosen = racers if every else list(pair)
    lanes = [watch_it.lane(run.folder, sweep, replies, *racer.split()) for racer in chosen]
    picture = watch_it.picture_of(run.folder)
    played: dict[str, Any] = watch.payload(picture, lanes) | {"racers": chosen, "pair": list(pair)}
    legend = watch.legend(picture, [lanes[chosen.index(racer)] for racer in pair])
    return script(name, as_json(played)), legend


def _assets() -> dict[str, bytes]:
    """Scripts, the style with our typeface in it, and plotly as it is installed."""
    files = {f"assets/{path.name}": path.read_bytes() for path in sorted(ASSETS.glob("*.js"))}
    played, style = ((WATCH / name).read_text("utf-8") for name in ("watch.js", "watch.css"))
    # A module is not loaded from a disk: what it exports becomes what a function returns.
    plain = re.sub(r"^export (default function )?", lambda one: "function mount" if one[1] else "", played, flags=re.M)
    files["assets/watch.js"] = f"const Watch = (() => {{\n{plain}\nreturn {{ mount }};\n}})();\n".encode()
    css = f"{typeface.css()}{(ASSETS / 'site.css').read_text('utf-8')}.race {{\n{style}}}\n"
    files |= {"assets/site.css": css.encode(), "assets/plotly.js": get_plotlyjs().encode()}
    files["assets/favicon.svg"] = (Path(__file__).parents[1] / "favicon.svg").read_bytes()
    return files | {".nojekyll": b""}  # which hosts that run Jekyll look for


def _file(title: str) -> str:
    return f"reference-{documents.FILES[title].removesuffix('.md')}"


def _document(title: str) -> list[Section]:
    made = []
    for name, text in documents.sections(title).items():
        blocks = [Block("html", _markdown(text))]
        if (title, name) == (documents.METHODS, "Tables"):
            blocks += [table(tables.registered()), table(tables.columns())]
        elif (title, name) == (documents.COMMANDS, EVERY):
            blocks += [Block("helps", documents.helps())]
        made.append(Section(documents.anchor(name) or "top", name, blocks))
    return made


def _markdown(text: str) -> Markup:
    """Markdown without HTML in it; links between documents lead to their pages, those to files of the repository name
    them, and a notebook opens in Colab where a workflow of GitHub, which says so, makes the site."""
    document = MarkdownIt("commonmark", {"html": False}).enable("table").render(_FORMULA.sub(r"```tex\n\1\n```", text))

    def link(found: re.Match[str]) -> str:
        target, label = found[1], found[2]
        name, _, place = target.partition("#")
        if target.startswith(("https://", "http://")):
            return f'<a href="{target}" rel="noreferrer">{label}</a>'
        if name.endswith(".ipynb") and (home := os.environ.get("GITHUB_REPOSITORY")):
            address = f"https://colab.research.google.com/github/{home}/blob/main/{name.lstrip('./')}"
            return f'{label} (<a href="{html.escape(address)}" rel="noreferrer">open in Colab</a>)'
        if not name or name in documents.FILES.values():
            page = f"reference-{name.removesuffix('.md')}.html" if name else ""
            return f'<a href="{page}{"#" if place else ""}{place}">{label}</a>'
        return label

    document = re.sub(r'<img [^>]*alt="([^"]*)"[^>]*>', r"<i>\1</i>", document).replace("<pre>", '<pre tabindex="0">')
    return Markup(_LINK.sub(link, document))  # nosec B704 # markdown-it has escaped what is no markup of its own


def _about(runs: Sequence[Run], record: effects.Record) -> list[Section]:
    names = " · ".join(f"{name} {value}" for name, value in record["about"].items())
    sentences = [
        "Figures and sentences are those of the app on the same tables. The model on the live pages is the shipped "
        "one: its weights come with the site, bit for bit; tokenizer, forward pass and edits run in this browser. No "
        "page asks any server for anything but the site's own files: its content security policy forbids connections.",
        f"Before an edit answers here, what it does to text and to refusal was measured: {len(record['effects'])} "
        f"edits ({names}). Others are not offered, and those that lower refusal are not answered.",
        f"Written by selector-audit {VERSION}; {SITE_FILE} lists every file with its SHA-256.",
    ]  # fmt: skip
    return [Section("site", "This site", [Block("text", one) for one in sentences]), *pages.provenance(runs)]


def _search(shown: Sequence[Page]) -> list[list[str]]:
    """[page, section's place, title, text] of everything that the search reads."""
    entries = []
    for page in (one for one in shown if not one.name.startswith("reference-")):
        for section in page.sections:
            where = [f"{page.name}.html#{section.name}", page.title, section.title]
            entries += [[*where, text] for block in section.blocks for text in block.texts()]
    for passage in documents.passages():
        if passage.document in documents.FILES:
            heading = EVERY if passage.name in documents.helps() else passage.name
            address = f"{_file(passage.document)}.html#{documents.anchor(heading) or 'top'}"
            entries.append([address, passage.document, passage.name, passage.text])
    return entries


def _worded(text: Any) -> Markup:
    """A sentence with `code` and **bold** as such, all else as it stands."""
    marked_up = re.sub(r"`([^`\n]+)`", r"<code>\1</code>", html.escape(str(text)))
    return Markup(re.sub(r"\*\*([^*\n]+)\*\*", r"<b>\1</b>", marked_up))  # nosec B704 # escaped above
