"""The page Judges as an AppTest."""

from __future__ import annotations

from functools import partial

from app_pages import run_page

page = partial(run_page, "judges")


def warnings_of(app):
    assert not app.exception
    return [warning.value.replace("\\", "") for warning in app.warning]
