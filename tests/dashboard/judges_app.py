"""The part Judges of the page Refusal as an AppTest."""

from app_pages import run_page, warnings_of  # noqa: F401


def page(**parameters):
    return run_page("refusal", **{"section": "Judges", "source": "My results", "more": "true", **parameters})
