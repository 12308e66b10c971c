"""The page Judges as an AppTest."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def page(**parameters):
    def script():
        from dashboard.pages.judges import page as judges

        judges.render()

    app = AppTest.from_function(script, default_timeout=60)
    for name, value in parameters.items():
        app.query_params[name] = value
    return app.run()


def warnings_of(app):
    assert not app.exception
    return [warning.value.replace("\\", "") for warning in app.warning]
