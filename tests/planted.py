"""Text that would be a link, an image, a script, a colour, a formula or a terminal's command wherever it is obeyed."""

HOST = "evil.example"
LINK = f"\x1b]8;;https://{HOST}\x07click\x1b]8;;\x07"  # what a terminal makes a link of
CONTROL = f"{LINK}\x1b[31m\x1b[2J\x9b1m\r\x08\u202e\u2066"
RICH = f"[link=https://{HOST}]y[/link][bold red]z[/bold red]"
HTML = f'<img src="https://{HOST}/p.png" onerror="alert(1)"><script>alert(1)</script><a href="https://{HOST}">a</a>'
MARKDOWN = (
    f"![p](https://{HOST}/p.png) [q](https://{HOST}) <https://{HOST}> https://{HOST}/bare www.{HOST} me@{HOST} "
    "**fat** `code` ~~gone~~ :red[red] :material/home: :smile: $x^2$ &lt;"
)
BROWSER = f"{HTML} {MARKDOWN}"
EVERYTHING = f"{CONTROL} {RICH} {BROWSER}"
