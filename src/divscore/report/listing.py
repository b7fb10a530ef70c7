"""Tables of collections: for the terminal, and as cells for the page."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from divscore.audit.result import Audit
from divscore.audit.target import judge
from divscore.estimators.interval import Interval, bounds
from divscore.text import brief, exact_percent, level, named, p_value, percent, percent_ends, signed, unsigned

ALL = 50  # a terminal shows up to so many collections
FEW = 60  # the page lists single attributes and technical numbers of up to so many collections
NAME, TOOLTIP = 60, 300  # characters of a name in a table, and in its tooltip
NARROWEST, WRAPPED = (
    8,
    24,
)  # characters that a narrow terminal leaves of a name, and of a last column of prose
MINUS = "−"
INCONCLUSIVE = "inconclusive"


def interval_title(interval: Interval, none: str = "interval") -> str:
    """Heading for intervals; `none` where the method gives none."""
    return none if interval.is_none else f"{level(interval.level)} interval"


def share_range(interval: Interval) -> str:
    """The interval of a share."""
    return "none" if interval.is_none else "–".join(percent_ends(interval.low, interval.high))


def disparity_text(value: float, groups: int) -> str:
    """A disparity; with more than two groups it has no sign."""
    return (signed(value) if groups == 2 else unsigned(value)).replace("-", MINUS)


def disparity_range(interval: Interval, groups: int) -> str:
    """The interval of a disparity."""
    if interval.is_none:
        return "none"
    return f"{disparity_text(interval.low, groups)} to {disparity_text(interval.high, groups)}"


def wanted(audit: Audit, group: str) -> str:
    """The share that a group is held to: a target as it was given, an even split in whole per cent."""
    share = audit.wanted[group]
    return percent(share) if audit.target is None else exact_percent(share)


def uninformative(audit: Audit) -> bool:
    """Whether there is no interval, or it is the whole range."""
    low, high = bounds(len(audit.control.groups))
    return audit.interval.is_none or (audit.interval.low <= low and audit.interval.high >= high)


def has_numbers(audit: Audit) -> bool:
    """Whether there is any number to show; one that cannot be trusted has none, unless somebody asked for them."""
    return math.isfinite(audit.disparity) or bool(audit.merged)


def share_limits(audit: Audit, group: str, limit: float) -> tuple[float, float]:
    """The shares of one group that a limit for the disparity allows: outside them, this group alone exceeds it.

    The differences e from the shares wanted add up to 0, so max e − min e ≤ L needs every |e| ≤ L (k − 1) / k. For two
    groups this is the limit itself. The sum of m groups may be off by L m (k − m) / k.
    """
    k, m = len(audit.control.groups), len(audit.members[group])
    reach, wanted = limit * m * (1 - m / k), audit.wanted[group]
    return max(0.0, wanted - reach), min(1.0, wanted + reach)


def listed_groups(audits: Sequence[Audit]) -> tuple[str, ...]:
    """The groups that have a share: those of the control set, or sums of some that cannot be distinguished."""
    known = (audit for audit in audits if audit.has_shares)
    return tuple(next(known, audits[0]).shares)


def scarcest_of(audits: Sequence[Audit]) -> str:
    """The group that is smallest, or farthest below its target, over all collections; the first of two groups."""
    groups = listed_groups(audits)
    known = [audit for audit in audits if audit.conclusive and audit.has_shares and groups[0] in audit.shares]
    if len(audits[0].control.groups) == 2 or not known:
        return groups[0]
    return min(groups, key=lambda name: sum(audit.shares[name] - audit.wanted[name] for audit in known))


def in_order(audits: Sequence[Audit]) -> list[Audit]:
    """Collections by the share of the group that is smallest over all, inconclusive ones last."""
    group = scarcest_of(audits)

    def key(audit: Audit) -> tuple[bool, float, str]:
        share = audit.shares.get(group, 1.0) if audit.has_shares else audit.disparity
        return (False, share, audit.name) if audit.conclusive else (True, 0.0, audit.name)

    return sorted(audits, key=key)


def shortened(name: str) -> str:
    """A name as long as a table shows it."""
    return brief(name, NAME)


def tooltip(name: str) -> str:
    """More of a name that `shortened` cuts, else an empty string."""
    return "" if shortened(name) == named(name) else brief(name, TOOLTIP)


def noise_note(audit: Audit) -> str:
    """Why the DivScore is in brackets; empty where it is not, or where a warning explains it."""
    if not audit.noisy_groups or audit.estimator == "divscore" or not math.isfinite(audit.divscore):
        return ""
    names = " and ".join(map(shortened, audit.noisy_groups))
    return (
        f"The DivScore, in brackets, is mostly noise here: the representatives of {names} are hardly more similar to "
        "their own group than to others. The estimate does not depend on it."
    )


# Cells


@dataclass(frozen=True)
class Column:
    """A heading, and the kind of cells below it: text, number, verdict or trust."""

    label: str
    kind: str = "number"


@dataclass(frozen=True)
class Line:
    """A row: its name, a tooltip where the name is cut, its cells, and the verdict of a gate, if there is one."""

    name: str
    title: str
    cells: tuple[str, ...]
    verdict: str = ""


@dataclass(frozen=True)
class Listing:
    """Headings and lines; `sorted_by` is the index of the column that the lines are sorted by, if they are."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    sorted_by: int | None = None


def listing(audits: Sequence[Audit], limit: float | None = None) -> Listing | None:
    """The groups of one collection, or all collections; None where there is nothing to list."""
    first = audits[0]
    if len(audits) == 1 and first.has_shares:
        return _groups_of(first)
    if len(audits) == 1 and not has_numbers(first):
        return None
    groups, range_title = listed_groups(audits), interval_title(first.interval)
    two = len(first.control.groups) == 2
    heads = [Column("collection", "text"), Column("items")]
    if two:
        heads += [Column(brief(groups[0], 40)), Column(range_title)]
        heads += [Column("target")] * (first.target is not None)
    else:
        if any(audit.has_shares for audit in audits):
            known = next(audit for audit in audits if audit.has_shares)
            targets = {name: f" (target {exact_percent(share)})" for name, share in known.wanted.items()}
            targets = {} if first.target is None else targets
            heads += [Column(brief(name, 40) + targets.get(name, "")) for name in groups]
        heads.append(Column("largest − smallest" if first.target is None else "distance from target"))
    if limit is not None:
        low, high = map(percent, share_limits(first, groups[0], limit))
        heads.append(Column(f"limit {low}–{high}" if two else "limit", "verdict"))
    heads.append(Column("trust", "trust"))
    at = 2 + groups.index(scarcest_of(audits)) if any(audit.has_shares for audit in audits) else 2
    lines = [_line(audit, groups, limit, len(heads) - 1) for audit in in_order(audits)]
    return Listing(tuple(heads), tuple(lines), at)


def _groups_of(audit: Audit) -> Listing:
    heads = [Column("group", "text"), Column("share"), Column(interval_title(audit.interval))]
    heads.append(Column("even split" if audit.target is None else "target"))
    lines = []
    for name, share in audit.shares.items():
        figures = [percent(share), share_range(audit.share_intervals[name])]
        if audit.trust == "poor":
            figures = list(map(_bracketed, figures))
        lines.append(Line(shortened(name), tooltip(name), (*figures, wanted(audit, name))))
    return Listing(tuple(heads), tuple(lines))


def _line(audit: Audit, groups: Sequence[str], limit: float | None, width: int) -> Line:
    cells, two = [f"{audit.count:,}"], len(audit.control.groups) == 2
    if not has_numbers(audit):
        cells.append(INCONCLUSIVE)
    elif two:
        cells += [percent(audit.shares[groups[0]]), share_range(audit.share_intervals[groups[0]])]
    else:
        for name in groups if audit.has_shares else ():
            if name not in audit.shares:  # another seed may merge other groups
                cells.append("?")
                continue
            between = share_range(audit.share_intervals[name])
            cells.append(percent(audit.shares[name]) + (f" ({between})" if between != "none" else ""))
        cells.append(gap_text(audit))
    if audit.trust == "poor":  # the answer is "cannot tell", so no number stands alone
        cells[1:] = [text if text == INCONCLUSIVE else _bracketed(text) for text in cells[1:]]
    if two and audit.target is not None and has_numbers(audit):
        cells.append(wanted(audit, groups[0]))
    verdict = "" if limit is None else judge(audit, limit).word
    end = [verdict, audit.trust] if verdict else [audit.trust]
    cells += [""] * (width - len(cells) - len(end)) + end
    return Line(shortened(audit.name), tooltip(audit.name), tuple(cells), verdict)


def gap_text(audit: Audit) -> str:
    """The distance of three groups or more: in percentage points, or as a score where there are no shares."""
    ends = audit.distance_interval
    if not audit.has_shares:
        return f"{unsigned(audit.disparity)} ({disparity_range(ends, len(audit.shares))})"
    if audit.merged:
        return f"{100 * ends.low:.0f}–{100 * ends.high:.0f} points"
    points = f"{100 * audit.distance:.0f} points"
    return points if ends.is_none else f"{points} ({100 * ends.low:.0f}–{100 * ends.high:.0f})"


def marginal_listing(audits: Sequence[Audit]) -> Listing | None:
    """The single attributes of intersections, unless there are too many collections or no numbers."""
    if len(audits) > FEW:
        return None
    lines = []
    for audit in filter(has_numbers, audits):
        for part in audit.marginals:
            between, shares = part.interval, [f"{brief(g, 40)} {percent(s)}" for g, s in part.shares.items()]
            if len(shares) == 2:  # a share is (1 + d) / 2
                ends = percent_ends((1 + between.low) / 2, (1 + between.high) / 2)
                shares[0] += f" ({'–'.join(ends)})"
            text = ", ".join(shares)
            cells = (brief(part.attribute, 40), f"({text})" if audit.trust == "poor" else text)
            lines.append(Line(shortened(audit.name), tooltip(audit.name), cells))
    heads = [Column(label, "text") for label in ("collection", "attribute", "shares")]
    return Listing(tuple(heads), tuple(lines)) if lines else None


def technical_listing(audits: Sequence[Audit]) -> Listing | None:
    """Disparity, DivScore and the statistics of the checks, unless there are too many collections."""
    if len(audits) > FEW:
        return None
    lines = []
    labelled = audits[0].labels is not None  # the result does not depend on the control set
    alone = audits[0].control.incomplete  # and there is none
    for audit in in_order(audits):
        checks, k = audit.diagnostics, len(audit.control.groups)
        divscore = signed(audit.divscore).replace("-", MINUS)
        figures = [disparity_text(audit.disparity, k), disparity_range(audit.interval, k)]
        if not labelled:
            figures.append(disparity_range(audit.interval_if_similar, k) if audit.differs else "the same")
        figures += [] if alone else [_bracketed(divscore) if audit.noisy_groups else divscore]
        if audit.trust == "poor":
            figures = (
                list(map(_bracketed, figures))
                if has_numbers(audit)
                else [INCONCLUSIVE, *[""] * (len(figures) - 1)]
            )
        figures += (
            []
            if labelled
            else [
                f"{unsigned(checks.relevance, 1)}, {p_value(checks.relevance_p)}",
                f"{unsigned(checks.score_fit)}, {p_value(checks.score_fit_p)}",
                unsigned(checks.theorem_error, 1).replace("?", "none"),
            ]
        )
        lines.append(Line(shortened(audit.name), tooltip(audit.name), tuple(figures)))
    labels = ["disparity", interval_title(audits[0].interval), *["if similar"] * (not labelled)]
    labels += [] if alone else ["DivScore"]
    heads = map(Column, labels if labelled else [*labels, "relevance", "misfit", "Theorem 3.3 error"])
    return Listing((Column("collection", "text"), *heads), tuple(lines))


def _bracketed(text: str) -> str:
    """Brackets mark numbers that must not be relied on; never two pairs of them."""
    if text == "?" or text.startswith("("):
        return text
    return f"({text.replace(' (', ', ').rstrip(')')})"


# The terminal


def columns(rows: Sequence[Sequence[str]], *, prose: bool = False) -> str:
    """Align rows of text; numbers to the right, the first and last column (`prose`: all) to the left.

    No line is longer than the terminal: a long last column is wrapped, or names are cut; if that is not enough, each
    row becomes a block of lines. A script, whose output is no terminal, gets the full table.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last, total = len(widths) - 1, sum(widths) + 2 * (len(widths) - 1)
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else total
    over = max(total - room, 0)
    wrapped = over > 0 and widths[last] - over >= WRAPPED
    if wrapped:
        widths[last] -= over
    elif widths[0] - over >= NARROWEST:
        widths[0] -= over
    elif over:
        return _stacked(rows, room)
    lines = []
    for row in rows:
        cells = [brief(row[0], widths[0]) if over and row[0] else row[0], *row[1:last]]
        aligned = [
            text.ljust(width) if prose or i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(cells, widths, strict=False))
        ]
        start, *more = (textwrap.wrap(row[last], widths[last]) if wrapped else [row[last]]) or [""]
        lines.append("  ".join([*aligned, start]))
        lines += [" " * (total - over - widths[last]) + text for text in more]
    return "\n".join(line.rstrip() for line in lines)


def _stacked(rows: Sequence[Sequence[str]], room: int) -> str:
    """A block of lines for each row: its name, then heading and text of every cell that has any."""
    (_, *heads), lines = rows[0], []
    left = min(max(map(len, heads)), room // 2)
    for name, *cells in rows[1:]:
        lines.append(brief(name, room))
        for head, text in zip(heads, cells, strict=True):
            start = f"  {brief(head or ' ', left).ljust(left)}  "
            text = "" if text == "–" else text
            lines += textwrap.wrap(text, room, initial_indent=start, subsequent_indent=" " * len(start))
    return "\n".join(lines)


def table(audits: Sequence[Audit], gap: int | None = None) -> str:
    """Collections as aligned rows, in their order; shares with one decimal; `gap` rows are above an ellipsis."""
    found = list(map(_row, audits))
    full = max(found, key=len)
    rows = [list(full)]
    # An inconclusive result has fewer cells; the word fits into the column of the intervals.
    word = next((head for head in reversed(full) if head.endswith("interval")), "result")
    for row in found:
        rows.append([row.get(head, INCONCLUSIVE if head == word else "–") for head in full])
    if gap is not None:
        rows.insert(1 + gap, ["…", *[""] * (len(full) - 1)])
    return columns(rows)


def _row(audit: Audit) -> dict[str, str]:
    first, interval = audit.control.groups[0], audit.distance_interval
    two = len(audit.control.groups) == 2
    groups = [first] if two else audit.shares if audit.has_shares else ()
    figures = {named(name): percent(audit.shares[name], 1) for name in groups}
    if two:
        figures["between"] = share_range(audit.share_intervals[first])
    if two and audit.target is not None:
        figures["target"] = wanted(audit, first)
    name, scale = "disparity", 1.0
    if audit.target is not None:  # in points of the share, which is half of the disparity
        name, scale = ("points off", 50.0) if two else ("distance", 1.0)

    def figure(value: float) -> str:
        shown = f"{scale * value:+.1f}" if scale > 1 else signed(value) if two else unsigned(value)
        return "0.0" if shown in ("+0.0", "-0.0") else shown

    figures[name] = figure(audit.distance)
    figures[interval_title(interval)] = (
        "none" if interval.is_none else f"{figure(interval.low)} to {figure(interval.high)}"
    )
    if two and audit.target is None and not audit.control.incomplete:
        divscore = signed(audit.divscore)
        figures["DivScore"] = _bracketed(divscore) if audit.noisy_groups else divscore
    if not has_numbers(audit):
        figures = {"result": INCONCLUSIVE}
    elif audit.trust == "poor":
        figures = {key: _bracketed(text) for key, text in figures.items()}
    return {"collection": named(audit.name), "items": f"{audit.count:,}", **figures, "trust": audit.trust}
