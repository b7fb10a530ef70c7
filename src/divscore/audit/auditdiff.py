"""AuditDiff: what changed between two audits of a data set."""

from __future__ import annotations

from dataclasses import dataclass

from divscore.audit.change import Change, change_between
from divscore.audit.document import AuditDocument
from divscore.errors import MismatchError
from divscore.text import brief, printable

__all__ = ["AuditDiff", "compare_documents"]


@dataclass(frozen=True)
class AuditDiff:
    """Two audits: the collections in both, those in one only, and in what else the audits differ."""

    before: AuditDocument
    after: AuditDocument
    changes: tuple[Change, ...]
    new: tuple[str, ...]
    vanished: tuple[str, ...]
    notes: tuple[str, ...]

    def gate(self, limit: float, *, allow_vanished: bool = False) -> str:
        """Whether no collection has become more uneven by over `limit`: "pass", "fail" or "inconclusive".

        Of one that has vanished that cannot be told, nor where parts of the later audit's source are missing. New ones
        are not judged: a data set that grows has them, and they were not there before.
        """
        found = {change.gate(limit) for change in self.changes}
        if "fail" in found:
            return "fail"
        hidden = bool(self.vanished and not allow_vanished) or bool(self.after.missing.count)
        return "inconclusive" if "inconclusive" in found or hidden else "pass"


def compare_documents(before: AuditDocument, after: AuditDocument) -> AuditDiff:
    """Compare two audits of a data set, collection by collection, matched by name."""
    _check_same(before, after)
    found = {entry.name: entry for entry in before.collections}
    notes = _differences(before, after)
    notes += [f"{when}: {said}" for when, audit in _named(before, after) for said in audit.missing.warning]
    pairs = [(found[entry.name], entry) for entry in after.collections if entry.name in found]
    if not pairs and len(before.collections) == len(after.collections) == 1:
        pairs = [(before.collections[0], after.collections[0])]
        names = (f"'{brief(entry.name)}'" for entry in pairs[0])
        notes.append(f"the only collection of each is compared, though named {' and '.join(names)}")
    if not pairs:
        raise MismatchError(
            f"no collection has the same name in both audits: {_listed(before)} before, {_listed(after)} after; "
            "there is nothing to compare"
        )
    alike = not _unlike(before, after)
    if alike and any(e.refits is None and e.told for pair in pairs for e in pair):
        notes.append(
            "where the JSON holds no replicates of a collection ('likelihood' alone makes them, and what was saved "
            "from a report has none), its two intervals are added up: wider than need be"
        )
    if any(b.on_shared_sample != a.on_shared_sample for b, a in pairs):
        notes.append(
            "some intervals rest on a sample that many collections shared in one audit, and on their own in the other: "
            "part of the width of a change comes of that; make both with '--samples own' to be rid of it"
        )
    changes = tuple(change_between(b, a, after.groups, paired=alike) for b, a in pairs)
    matched = {id(entry) for pair in pairs for entry in pair}
    return AuditDiff(
        before,
        after,
        changes,
        new=tuple(e.name for e in after.collections if id(e) not in matched),
        vanished=tuple(e.name for e in before.collections if id(e) not in matched),
        notes=tuple(notes),
    )


def _named(before: AuditDocument, after: AuditDocument) -> list[tuple[str, AuditDocument]]:
    return [("the earlier audit", before), ("the later audit", after)]


def _check_same(before: AuditDocument, after: AuditDocument) -> None:
    if before.attribute != after.attribute:
        raise MismatchError(
            f"the audits are about different things: '{printable(before.attribute)}' before, "
            f"'{printable(after.attribute)}' after; compare audits of one attribute"
        )
    if before.groups != after.groups:
        order = set(before.groups) == set(after.groups)
        todo = "give both audits the same --groups" if order else "compare audits of the same groups"
        named = [", ".join(map(printable, document.groups)) for document in (before, after)]
        what = "the groups in another order" if order else "different groups"
        raise MismatchError(f"the audits have {what}: {named[0]} before, {named[1]} after; {todo}")


def _unlike(before: AuditDocument, after: AuditDocument) -> list[str]:
    """In what two audits differ, so that it is not known what errors they share."""
    facts: list[tuple[str, object, object]] = [
        ("control set", _digest(before.control), _digest(after.control)),
        ("estimator", before.estimator, after.estimator),
        ("encoder", before.encoder or "none", after.encoder or "none"),
        ("seed", before.seed, after.seed),
        ("version of divscore", before.version, after.version),
    ]
    unlike = [
        f"{what} ({printable(str(old))} before, {printable(str(new))} after)"
        for what, old, new in facts
        if old != new
    ]
    return unlike if before.control else ["control set (unknown)"]


def _differences(before: AuditDocument, after: AuditDocument) -> list[str]:
    notes = []
    unlike = _unlike(before, after)
    if unlike:
        notes.append(
            f"the audits differ in {', '.join(unlike)}: part of a change may come of that, and their two intervals are "
            "added up, which is wider than need be"
        )
    if before.confidence != after.confidence:
        lower = min(before.confidence, after.confidence)
        notes.append(
            f"confidence {before.confidence:g} before, {after.confidence:g} after: changes are given at {lower:g}"
        )
    return notes


def _digest(control: str | None) -> str:
    return control[:12] if control else "unknown"


def _listed(document: AuditDocument) -> str:
    names = [f"'{brief(entry.name)}'" for entry in document.collections]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
