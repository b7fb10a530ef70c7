"""From audits to something that people read."""

from divscore.report.page import render

__all__ = ["render"]
