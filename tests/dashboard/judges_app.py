"""The part Judges of the page Refusal as an AppTest."""

from __future__ import annotations

from app_pages import run_page


def page(**parameters):
    return run_page("refusal", **{"section": "Judges", "source": "My results", "more": "true", **parameters})


def warnings_of(app):
    assert not app.exception
    return [warning.value.replace("\\", "") for warning in app.warning]
