"""Uploads are held while their session may come back, and freed when it is closed for good."""

import subprocess
import sys

import pytest

# A process of its own: Streamlit has one runtime in each. The app is the one that a server runs, with one uploader.
CODE = """
import sys, time
from contextlib import asynccontextmanager
from pathlib import Path
import streamlit as st
from starlette.testclient import TestClient
from streamlit import config, runtime
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.runtime.memory_session_storage import MemorySessionStorage
from dashboard import uploads

uploads.EVERY_S = 0.05
config.set_option("server.enableXsrfProtection", False)

@asynccontextmanager
async def serving(_app):
    async with uploads.freeing_uploads():
        yield

def until(true):
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)

with TestClient(st.App(Path(sys.argv[1]), lifespan=serving)) as client:
    server = runtime.get_instance()
    server._session_mgr._session_storage = MemorySessionStorage(ttl_seconds=1)
    held = lambda: sum(len(files) for files in server.uploaded_file_mgr.file_storage.values())
    with client.websocket_connect("/_stcore/stream", subprotocols=["streamlit"]) as page:
        page.send_bytes(BackMsg(rerun_script={"query_string": ""}).SerializeToString())
        until(server._session_mgr.list_active_sessions)
        session = server._session_mgr.list_active_sessions()[0].session.id
        sent = client.put(f"/_stcore/upload_file/{session}/one", files={"file": ("a.bin", b"x" * 1_000_000)})
        assert sent.status_code == 204, sent.text
        time.sleep(0.3)
        assert held() == 1  # the session is open
    until(lambda: not server._session_mgr.list_active_sessions())
    time.sleep(0.2)
    assert held() == 1  # it may come back
    until(lambda: held() == 0)
print("freed")
"""


@pytest.mark.long  # it takes a server
def test_uploads_of_a_closed_session_are_freed(tmp_path):
    script = tmp_path / "one.py"
    script.write_text("import streamlit as st\nst.file_uploader('x', key='x')\n")
    done = subprocess.run([sys.executable, "-c", CODE, str(script)], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().endswith("freed"), done.stderr
