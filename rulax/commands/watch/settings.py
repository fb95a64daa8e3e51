"""What a user may choose for `rulax watch`. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses

from rulax.settings import setting

WHAT = "what to watch"


@dataclasses.dataclass(frozen=True)
class WatchConfig:
    """Show the page of a run, a discovery or a comparison in a browser while it goes on."""

    run: str = setting("", WHAT, positional=True, metavar="RUN")
    """Folder of a run, a discovery or a comparison [default: the one in runs/ that was written to last]."""
    port: int = setting(0, WHAT, at_least=0, at_most=65535)
    """Port to serve on, for this machine alone [default: the first free one from 8300 on]."""
    open: bool = setting(True, WHAT)
    """Whether to open the page in a browser, where there is a screen."""
