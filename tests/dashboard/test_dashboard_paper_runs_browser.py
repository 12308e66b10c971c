"""Paper and Runs in a real Chromium: tables, a run started and cancelled, one that finishes, import and deletion."""

import re
import zipfile

import pytest
from browser_pages import MODEL_TIMEOUT_MS, button, has_count, press, settled
from synthetic import write_run

from engine.records.manifest import read_manifest

pytestmark = pytest.mark.browser


def jobs_of(page):
    return page.locator("[class*=st-key-job-]")


@pytest.mark.long
def test_a_run_is_cancelled_resumed_and_survives_a_reload(new_page, server, store, tiny_folder, tiny_text):
    settings = {
        "runs_view": "Start", "start_model": tiny_folder, "start_corpus": tiny_text, "start_samples": 4,
        "start_length": 16, "start_eval_samples": 8, "start_eval_length": 16,
        "start_selectors": ["random", "magnitude"],
    }  # fmt: skip
    page = new_page("/runs", **settings)
    button(page, "Start").wait_for()
    settled(page)
    press(page, button(page, "Start"))
    jobs_of(page).get_by_text("under way").wait_for()
    page.reload()  # the job belongs to the server, not to the page
    jobs_of(page).get_by_text("under way").wait_for()
    press(page, jobs_of(page).get_by_role("button", name="Cancel"))
    jobs_of(page).get_by_text("was cancelled").wait_for(timeout=MODEL_TIMEOUT_MS)
    press(page, jobs_of(page).get_by_role("button", name="Resume"))
    jobs_of(page).get_by_text("is done").wait_for(timeout=MODEL_TIMEOUT_MS)
    settled(page)
    press(page, jobs_of(page).get_by_role("button", name="Dismiss"))
    has_count(jobs_of(page), 0)
    folder = store / "results" / tiny_folder.name
    assert "sweep.parquet" in read_manifest(folder)["files"]
    page = new_page("/runs", kept_run=tiny_folder.name)
    page.get_by_text("Provenance").wait_for()
    page.goto(f"{server}/curves?source=My+results&run={folder.relative_to(store)}&selectors=Magnitude")
    page.locator("[data-testid=stPlotlyChart][aria-label*='Magnitude']").first.wait_for()


@pytest.mark.long
def test_a_zip_is_imported_and_deleted_after_asking(new_page, store, tmp_path):
    source = write_run(tmp_path / "elsewhere")
    with zipfile.ZipFile(tmp_path / "from afar.zip", "w") as archive:
        for path in source.iterdir():
            archive.write(path, f"elsewhere/{path.name}")
    page = new_page("/runs", runs_view="Import", import_from="A zip file")
    page.locator("[data-testid=stFileUploader] input").set_input_files(str(tmp_path / "from afar.zip"))
    press(page, button(page, "Import").and_(page.locator(":enabled")))
    page.get_by_text("Imported as from-afar").wait_for()
    assert (store / "results" / "from-afar" / "sweep.parquet").is_file()

    page = new_page("/runs", kept_run="from-afar")
    press(page, button(page, "Delete this run"))
    page.get_by_text("Delete from-afar?").wait_for()
    assert (store / "results" / "from-afar").is_dir()
    press(page, button(page, "Yes, delete it"))
    page.get_by_text(re.compile("Deleted from-afar")).wait_for()
    assert not (store / "results" / "from-afar").exists()
