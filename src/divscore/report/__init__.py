"""From audits to something people and programs read."""

from divscore.report.page import render

__all__ = ["render"]
