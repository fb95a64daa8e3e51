"""Writes a page: one HTML file with its style, its script and its data inside, which opens without a network.

Every word of a user passes through `escape`; data is JSON in which nothing can end a script; and a content security policy
lets only the scripts run that were written here.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from rulax.files import jsonable, write_atomically
from rulax.files.reading import blamed
from rulax.report import blocks as b
from rulax.report import html

P = ParamSpec("P")
R = TypeVar("R")
SCRIPTS = ("scale.js", "frame.js", "curves.js", "charts.js", "page.js")
LIVE = (*SCRIPTS[:-1], "live.js", SCRIPTS[-1])  # before what draws: it keeps every section as it was sent
DIGITS = 6  # of a number in a chart: more cannot be seen and makes the file larger


def from_folder(make: Callable[P, R]) -> Callable[P, R]:
    """Around a function that makes a page of a folder, its first argument: whatever damaged files make it raise is one sentence."""

    @functools.wraps(make)
    def made(*arguments: P.args, **keywords: P.kwargs) -> R:
        with blamed(arguments[0], "; so there is no page of it"):
            return make(*arguments, **keywords)

    return made


class Page(NamedTuple):
    """What a page shows. `unfinished` says in one sentence what is missing, and is shown where nobody overlooks it."""

    title: str
    subtitle: str
    blocks: Sequence[b.Block]
    unfinished: str = ""


def write_page(path: str | Path, title: str, subtitle: str, blocks: Sequence[b.Block], unfinished: str = "") -> Path:
    """Write a page, given as the fields of `Page`."""
    path = Path(path)
    write_atomically(path, render(title, subtitle, blocks, unfinished))
    return path


def render(title: str, subtitle: str, blocks: Sequence[b.Block], unfinished: str = "", live: str = "") -> str:
    """The whole page as text. One that is served while its run goes on says how that stands: `live` is a word of live.js."""
    charts: list[dict[str, Any]] = []
    own: list[str] = []
    # First, because it fills `charts` and `own`, which the script and the data below are made of.
    body = "\n".join(html.section(block, number, charts, own) for number, block in enumerate(blocks))
    script = f"(() => {{\n'use strict';\n{scripts(LIVE if live else SCRIPTS)}\n{interactive(own)}\n}})();"
    # Scripts by their hash, so that not even text that slipped through `escape` could run; the page has no server that could send a
    # nonce.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src '{digest(HEAD_SCRIPT)}' '{digest(script)}'; img-src data:"
    # Only a page that follows its run asks for anything, and only where it came from.
    policy += "; connect-src 'self'" if live else ""
    following = f'<p id="live" class="{live}" role="status"></p>' if live else ""
    badge = '<span class="badge">unfinished</span>' if unfinished else ""
    notice = html.notice(b.Notice("This run is not finished", [unfinished])) if unfinished else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}{" (unfinished)" if unfinished else ""}</title>
<link rel="icon" href="{ICON}">
<style>
{asset("page.css")}
</style>
<script>{HEAD_SCRIPT}</script>
</head>
<body>
<header>
<div><h1>{escape(title)} {badge}</h1>
<p class="subtitle">{escape(subtitle)}</p>{following}</div>
<button id="theme" type="button" class="quiet" aria-label="Switch between light and dark">◐</button>
</header>
{contents(blocks)}
<main>
<noscript><p class="notice">The charts of this page are drawn by a script, and scripts are switched off.</p></noscript>
{notice}
{body}
</main>
<footer>Made by Rulax. Everything is in this one file: it needs no network and can be sent as it is.</footer>
<div id="said" class="unseen" role="status" aria-live="polite"></div>
<script type="application/json" id="data">{as_json(charts)}</script>
<script>{script}</script>
</body>
</html>
"""


# Runs before anything is drawn, so that a page in the other theme does not flash.
HEAD_SCRIPT = (
    "try { const t = localStorage.getItem('rulax-theme'); if (t === 'dark' || t === 'light') "
    "document.documentElement.dataset.theme = t; } catch (error) { /* a browser that stores nothing */ }"
)
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M1 13C6 13 6 3 15 3' "
    "fill='none' stroke='%230b62a8' stroke-width='2.5' stroke-linecap='round'/%3E%3C/svg%3E"
)


def contents(blocks: Sequence[b.Block]) -> str:
    """Links to the sections of a long page."""
    titles = [(number, getattr(block, "title", "")) for number, block in enumerate(blocks)]
    titles = [(number, title) for number, title in titles if title and not isinstance(blocks[number], b.Notice | b.KeyValues)]
    # A short page is seen at a glance, and links would only push its results down.
    if len(titles) < 4:
        return ""
    links = "".join(f'<a href="#s{number}">{escape(title)}</a>' for number, title in titles)
    return f'<nav aria-label="Contents">{links}</nav>'


def interactive(own: list[str]) -> str:
    """The scripts of interactive blocks, each in a function of its own, started after all else."""
    return "\n".join(f"startOwn({index}, function (root, data, charts) {{\n{script}\n}});" for index, script in enumerate(own))


def asset(name: str) -> str:
    """A file that comes with the package."""
    return (resources.files("rulax.report") / "assets" / name).read_text(encoding="utf-8")


def scripts(names: Sequence[str]) -> str:
    """Our own script, from its files."""
    return "\n".join(asset(name) for name in names)


def digest(script: str) -> str:
    """How a content security policy names one script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def as_json(value: Any) -> str:
    """JSON that may stand inside a script element: no character in it can end the element or begin another."""
    text = json.dumps(jsonable(value, DIGITS), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
