"""`divscore verify`."""

from __future__ import annotations

from dataclasses import asdict

import click

from divscore.cli import options as opt
from divscore.cli.console import say, write_json
from divscore.jobs.evidence import verify_evidence
from divscore.text import as_json, printable

EXAMPLES = """
\b
Examples:
  divscore verify evidence-7.zip
  divscore verify evidence-7.zip --control gender-control
"""


@click.command(epilog=EXAMPLES)
@click.argument("evidence", metavar="EVIDENCE.zip", type=opt.PATH)
@opt.path(
    "--control",
    "C",
    "The control set that must have been used: a folder that 'divscore control select' wrote.",
)
@opt.json
def verify(evidence: str, control: str | None, json_path: str | None) -> None:
    """Check the evidence of a page audit that the browser extension saved.

    Every file must have its digest, the audit must be valid and belong to the items and the control set that are named,
    and no byte of the zip may differ. This shows that the file is whole, not who made it: keep the SHA-256 that is
    printed in a second place.
    """
    digest = None
    if control is not None:
        from divscore.control.controlfile import load_control

        digest = load_control(control).digest
    checked = verify_evidence(evidence, control=digest)
    if json_path:
        write_json(json_path, as_json(asdict(checked)))
    if json_path != "-":
        rows = {
            "SHA-256": checked.sha256,
            "page": checked.url,
            "saved": checked.saved,
            "run": checked.run or "–",
            "items": f"{checked.items:,} seen, {checked.used:,} used, {checked.pictures:,} pictures inside",
            "control set": f"{checked.control}{' (as given)' if digest else ''}",
            "divscore": checked.version,
            "result": checked.headline,
        }
        lines = [f"{name + ':':<13}{printable(value)}" for name, value in rows.items()]
        say("\n".join(["The evidence is whole and agrees with itself.", *lines]))
