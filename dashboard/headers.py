"""Response headers: the browser may talk to this server only, and fetches chart code and typeface early."""

from pathlib import Path

import streamlit
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.charts import typeface

# Streamlit needs inline styles and its one inline script, and hands the script of a component of ours over as a blob;
# plotly writes images to data and blob addresses.
POLICY = "; ".join((
    "default-src 'self'", "script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval' blob:",
    "style-src 'self' 'unsafe-inline'", "img-src 'self' data: blob:", "font-src 'self' data:",
    "connect-src 'self' data: blob:", "worker-src 'self' blob:", "object-src 'none'", "base-uri 'self'",
    "form-action 'self'", "frame-ancestors ",
))  # fmt: skip


class LocalOnlyHeaders:
    """ASGI middleware. A page cannot make the browser call another server, whatever text it shows.
    The pages also name plotly's code and our typeface in a `Link` header, so that the browser loads them while the
    first script run is under way instead of after it. framed_by: whose pages may show the app inside them."""

    def __init__(self, app: ASGIApp, *, framed_by: str = "'none'") -> None:
        self.app, self.policy = app, POLICY + framed_by
        self.preload = _preload_links()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = self.policy
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                if headers.get("content-type", "").startswith("text/html"):
                    headers.append("Link", self.preload)
            await send(message)

        await self.app(scope, receive, send_with_headers)


def _preload_links() -> str:
    """A `Link` header value for our typeface and, where it is found, plotly's part of Streamlit's own files."""
    folder = Path(streamlit.__file__).parent / "static" / "static" / "js"
    charts = sorted(folder.glob("PlotlyChart.*.js"))
    early = [f"</static/js/{path.name}>; rel=modulepreload; crossorigin" for path in charts]
    kind = f"rel=preload; as=font; type={typeface.MEDIA_TYPE}; crossorigin"
    return ", ".join([*early, *(f"<{typeface.path(weight)}>; {kind}" for weight in typeface.WEIGHTS)])
