"""Can it be believed: the verdicts with their evidence, and all that could explain a good result without them."""

from dashboard.pages.believed import calibration_texts, controls, evidence, exact, protocol_orders, single_units
from dashboard.state import parts
from dashboard.state.parts import Part
from dashboard.state.tabs import tabs_of

PARTS = {
    "Verdict": evidence.PART,
    "Stability": calibration_texts.STABILITY,
    "Second domain": calibration_texts.DOMAIN,
    "Explained by depth": controls.OWN_LAYERS,
    "Controls": controls.CONSENSUS,
    "Dangerous groups": controls.DANGEROUS_GROUPS,
    "Single units": single_units.PART,
    "Exact controls": exact.PART,
    "Protocols": protocol_orders.PART,
}
LINE = "Is it these rows, or would any rows of the same layers do? Would another text give the same rows?"
_STEMS = tuple(stem for part in PARTS.values() for stem in part.stems)


def render() -> None:
    plug_ins = {title: Part(show, _STEMS) for title, show in tabs_of("believed").items()}
    parts.page("Can it be believed", LINE, PARTS | plug_ins)
