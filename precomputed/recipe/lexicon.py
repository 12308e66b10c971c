# ruff: noqa: E501, SIM905  (word lists read better as running text)
"""The words of the invented world: topics with their own nouns, verbs and adjectives, people, towns, firms."""

from __future__ import annotations

from dataclasses import dataclass

from precomputed.recipe.words import fixed, invented


@dataclass(frozen=True)
class Topic:
    """One field of life. Nouns are countable, `mass` is not, verbs are transitive, `people` are trades."""

    name: str
    nouns: tuple[str, ...]
    mass: tuple[str, ...]
    verbs: tuple[str, ...]
    adjectives: tuple[str, ...]
    people: tuple[str, ...]


def _topic(name: str, nouns: str, mass: str, verbs: str, adjectives: str, people: str) -> Topic:
    invented_nouns = invented(10, f"noun/{name}", ("er", "el", "ock", "et", "ow"))
    parts = [tuple(text.split()) for text in (nouns, mass, verbs, adjectives, people)]
    return Topic(name, parts[0] + invented_nouns, *parts[1:])


TOPICS: tuple[Topic, ...] = (
    _topic("farming", "field barn plough goat orchard hen fence ditch harvest meadow sack cart furrow hive calf ladder",
           "barley straw hay manure clover rye honey wool", "plough sow water fence mow feed harvest weed graze turn",
           "muddy fertile stony green ripe early dry low", "farmer shepherd miller ploughman beekeeper"),
    _topic("sea", "boat sail harbour net anchor mast wave pier lighthouse rope oar island gull cabin barrel hull reef",
           "salt tar fog canvas kelp ballast", "sail moor row load launch tow steer anchor mend signal",
           "salty windy deep calm rough northern wooden leaking", "sailor fisher pilot captain rower"),
    _topic("mountains", "peak pass glacier ridge hut slope cliff cave spring path summit gorge boulder valley crest",
           "snow ice granite scree moss", "climb cross map survey reach mark follow avoid name photograph",
           "steep icy narrow bare high cold rocky remote", "climber guide surveyor herder geologist"),
    _topic("building", "bridge wall tower roof arch beam gate cellar stair chimney window door pillar brick scaffold vault",
           "stone mortar timber slate plaster clay glass", "build repair paint raise brace measure demolish widen cover lay",
           "old tall wooden broken solid square ruined broad", "mason carpenter architect roofer glazier"),
    _topic("music", "song drum flute choir chorus bell violin melody verse string concert tune ballad organ refrain trumpet",
           "rhythm harmony silence applause", "sing play tune record compose rehearse perform hum publish carry",
           "slow bright solemn merry quiet loud simple minor", "singer drummer composer fiddler organist"),
    _topic("kitchen", "pot oven loaf pan onion egg spoon apple pie knife turnip kettle bowl pear plum dish leek",
           "flour butter soup bread pepper sugar vinegar oil milk cheese", "bake boil stir chop season peel roast serve slice knead",
           "hot sweet sour fresh salted thick golden bitter", "cook baker brewer butcher innkeeper"),
    _topic("cloth", "loom thread coat needle shawl button hem glove ribbon sleeve blanket spindle collar pattern apron",
           "linen silk dye felt lace yarn", "weave spin dye sew knit hem fold wash mend cut",
           "woven soft striped blue faded woollen coarse fine", "weaver tailor dyer spinner glover"),
    _topic("astronomy", "star comet planet telescope lens orbit moon eclipse meteor chart observatory crater dome galaxy",
           "light dust gravity darkness", "observe measure chart record discover name track predict photograph count",
           "distant faint bright variable double nearby red visible", "astronomer observer navigator clockmaker lecturer"),
    _topic("health", "clinic bandage ward herb thermometer remedy bath bed crutch fever cough wound bottle visit pillow",
           "rest medicine sleep ointment broth tea", "treat visit clean examine heal advise wash comfort warm nurse",
           "healthy weak tired careful clean mild severe common", "doctor nurse midwife apothecary surgeon"),
    _topic("school", "lesson book pupil desk class letter map question answer slate prize page library exam riddle pen",
           "chalk ink paper grammar arithmetic", "teach read copy learn explain correct recite study solve mark",
           "difficult short useful young careful easy clever strict", "teacher scholar librarian tutor clerk"),
    _topic("law", "court law contract witness judge claim council vote treaty charter fine seal debate trial verdict clause",
           "evidence justice tax property", "sign hear settle approve reject amend debate witness question record",
           "legal formal public fair written valid local new", "lawyer mayor notary councillor magistrate"),
    _topic("railway", "train station platform engine track signal tunnel ticket carriage timetable junction depot whistle wagon",
           "steam coal freight iron luggage", "drive stop inspect couple delay board extend repair load schedule",
           "late crowded express long daily direct narrow rusty", "driver porter signalman conductor stoker"),
    _topic("trade", "market stall price coin shop crate scale ledger debt fair bargain warehouse bill store basket order",
           "gold credit profit silver spice", "buy sell weigh price order deliver store pack trade count",
           "cheap costly rare honest busy foreign rich empty", "merchant grocer pedlar banker trader"),
    _topic("forest", "tree oak branch deer trail fox root leaf owl clearing stump nest badger log fern mushroom wolf",
           "wood bark resin shade sap", "cut plant fell gather hunt clear watch protect burn shelter",
           "dark wild dense tall hollow mossy silent ancient", "forester hunter woodcutter ranger charcoal-burner"),
    _topic("weather", "storm cloud flood drought rainbow frost breeze gale thaw shower season forecast mist barometer gauge",
           "rain wind hail thunder sunshine heat", "damage forecast delay flood batter follow measure report cover spoil",
           "heavy sudden mild violent brief seasonal warm grey", "forecaster ferryman watchman gardener warden"),
    _topic("craft", "bowl kiln wheel jug tile vase hammer anvil chisel lock chair bench mould lamp basket hinge",
           "clay copper glaze wax leather charcoal", "shape fire carve polish glaze forge mend engrave cast sell",
           "smooth round fragile painted heavy plain curved famous", "potter smith carver tinker cooper"),
    _topic("theatre", "stage play actor curtain mask scene role rehearsal ticket puppet costume lantern crowd poster act",
           "laughter paint velvet applause", "perform stage rehearse praise direct watch write cancel review mock",
           "comic tragic crowded new famous clumsy silent popular", "actor director dancer prompter painter"),
    _topic("machines", "engine pump gear lever valve boiler mill belt motor spring crane bearing switch cable meter press",
           "steel grease power current pressure", "start oil test stop design install drive patent adjust replace",
           "noisy efficient electric powerful faulty modern small hidden", "engineer mechanic inventor fitter miner"),
    _topic("river", "river ferry bank mill dam ford stream canal lock reed trout barge weir pond heron marsh",
           "water mud gravel silt reed-grass", "cross dam flood bridge drain dredge fish feed follow pollute",
           "shallow wide slow swift clear muddy winding frozen", "fisherman boatman lock-keeper ferrier raftsman"),
    _topic("games", "game ball team race goal match player card prize club board dice court score champion rule",
           "luck skill practice training", "win lose throw catch kick train cheer chase beat organise",
           "fast fair young strong close lucky yearly equal", "captain trainer referee runner wrestler"),
)  # fmt: skip

GENERAL_NOUNS: tuple[str, ...] = tuple(
    "day year house road child family group plan story problem reason idea part place name night friend hand morning "
    "village garden room table line corner letter piece meeting question box picture garden visitor stranger".split()
) + invented(140, "general", ("in", "er", "ow", "le", "ad"))
GENERAL_VERBS: tuple[str, ...] = tuple(
    "see find keep use want like need call help change show leave carry move remember follow mention prefer notice "
    "describe ignore praise offer choose finish remove trust share save".split()
)
GENERAL_ADJECTIVES: tuple[str, ...] = (
    tuple(
        "good small large new long little second important strange usual certain whole final simple free similar "
        "different beautiful proper ordinary".split()
    )
    + tuple(word + "y" for word in ("dust", "stead", "wort", "rust", "hand"))
    + invented(70, "adjective", ("ic", "ish", "al", "en"))
)
MANNER: tuple[str, ...] = tuple(
    "slowly quickly carefully gladly rarely often quietly at-last twice together alone soon again every-day by-hand "
    "before-dawn after-dark in-secret with-care without-pay in-pairs at-once by-mistake on-foot for-nothing".split()
)
OPENERS: tuple[str, ...] = tuple(
    "however meanwhile later therefore in-fact at-first for-example instead afterwards by-then in-the-end as-a-rule "
    "to-this-day once-more in-return from-then-on on-the-whole".split()
)
LINKS: tuple[str, ...] = tuple("near beside behind above under beyond inside opposite from of against around".split())
MONTHS: tuple[str, ...] = tuple(
    "January February March April May June July August September October November December".split()
)
DAYS: tuple[str, ...] = tuple("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split())
SEASONS: tuple[str, ...] = ("spring", "summer", "autumn", "winter")

WOMEN: tuple[str, ...] = tuple(w.title() for w in invented(90, "women", ("a", "a", "ia", "e"), (1, 1)))
MEN: tuple[str, ...] = tuple(
    w.title() for w in invented(90, "men", ("o", "us", "an", "ik"), (1, 1)) if w.title() not in WOMEN
)
FAMILIES: tuple[str, ...] = tuple(
    w.title() for w in invented(260, "families", ("son", "ley", "man", "ov", "er", "t"), (1, 1))
)
TOWNS: tuple[str, ...] = tuple(
    w.title() for w in invented(220, "towns", ("ford", "ham", "wick", "berg", "mouth", "by", "stad"), (1, 1))
)
REGIONS: tuple[str, ...] = tuple(w.title() for w in invented(24, "regions", ("land", "mark", "shire", "ia")))
RIVERS: tuple[str, ...] = tuple(w.title() for w in invented(40, "rivers", ("", "e", "a"), (1, 1)))


def region_of(town: str) -> str:
    """A fact of the invented world: a town lies in one region always."""
    return fixed(REGIONS, f"region/{town}")


def river_of(town: str) -> str:
    return fixed(RIVERS, f"river/{town}")


def trade_of(town: str) -> Topic:
    """What a town lives from."""
    return TOPICS[int(fixed([str(i) for i in range(len(TOPICS))], f"trade/{town}"))]


def founded(town: str) -> int:
    """The year in which a town was founded."""
    return int(fixed([str(year) for year in range(1102, 1790, 3)], f"founded/{town}"))
