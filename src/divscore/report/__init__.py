"""From audits to something people and programs read."""

from divscore.report.html import render_page as render

__all__ = ["render"]
