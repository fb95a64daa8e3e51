"""Callbacks for `rulax.train(..., callback=...)`; see `Point` for what they are called with."""

from __future__ import annotations

from rulax.commands.train.callbacks import Callback, EarlyStopping, Evaluate, Point, SaveBest

__all__ = ["Callback", "EarlyStopping", "Evaluate", "Point", "SaveBest"]
