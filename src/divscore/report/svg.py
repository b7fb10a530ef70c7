"""Draw a Picture as inline SVG: its colours are the page's own, so light, dark and print need no second drawing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from markupsafe import Markup

from divscore.report.picture import Gap, Mark, Picture

__all__ = ["NARROW", "WIDE", "draw", "sliver"]

HEAD, FOOT = 44, 30
WORD = 44  # half the width of "balanced", with some air
EDGE = 20  # room for arrows, round ends and half a figure beside the axis


@dataclass(frozen=True)
class Layout:
    """Where things lie: names to the left of the lines and figures to the right, or both above them."""

    name: str
    width: int
    left: int
    right: int
    row: int
    drop: int  # from a row's top to its line
    stacked: bool


WIDE = Layout("wide", 880, 236, 200, 32, 16, False)
NARROW = Layout("narrow", 340, 0, 0, 46, 32, True)


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    stop: float

    def at(self, value: float) -> float:
        clipped = min(max(value, self.low), self.high)
        return round(self.start + (clipped - self.low) / (self.high - self.low) * (self.stop - self.start), 1)


def draw(picture: Picture, layout: Layout, key: str) -> Markup:
    """One drawing; `key` makes its ids differ from those of others on the page."""
    if not layout.stacked:
        names = [len(row.label) for row in picture.rows if isinstance(row, Mark)]
        # No font is known here: 8.5 units a letter are ample for most, and longer names are cut.
        layout = replace(layout, left=min(layout.left, max(60, round(8.5 * max(names, default=0)) + 10)))
    scale = _Scale(picture.low, picture.high, layout.left + EDGE, layout.width - layout.right - EDGE)
    foot = HEAD + layout.row * len(picture.rows)
    name = f"{key}-{layout.name}"
    parts = [
        Markup(
            '<svg class="plot {}" role="img" aria-labelledby="{}-t {}-d" viewBox="0 0 {} {}" '
            'xmlns="http://www.w3.org/2000/svg"><title id="{}-t">{}</title><desc id="{}-d">{}</desc>'
        ).format(
            layout.name,
            name,
            name,
            layout.width,
            foot + FOOT,
            name,
            picture.title,
            name,
            picture.description,
        ),
        *_axis(picture, scale, layout, foot),
    ]
    for at, row in enumerate(picture.rows):
        top = HEAD + at * layout.row
        parts.append(_gap(row, layout, top) if isinstance(row, Gap) else _line(row, scale, layout, top, at))
    return Markup("").join([*parts, Markup("</svg>")])


def sliver(bar: tuple[float, float, float], even: float) -> Markup:
    """A share and its interval in a cell of a table; the cell's text has the numbers."""
    return Markup(
        '<svg class="sliver" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="rail" d="M0 5H100"/><path class="even" d="M{0:.1f} 0V10"/>'
        '<path class="bar" d="M{1:.1f} 5H{2:.1f}"/><path class="tick" d="M{3:.1f} 0V10"/></svg>'
    ).format(100 * even, *(100 * end for end in bar))


def _axis(picture: Picture, scale: _Scale, layout: Layout, foot: int) -> list[Markup]:
    bands = _bands(picture, layout, foot)

    def upright(kind: str, value: float) -> Markup:
        x = scale.at(value)
        return Markup('<path class="{}" d="{}"/>').format(kind, "".join(f"M{x} {a}V{b}" for a, b in bands))

    text = Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>')
    parts = [upright("grid", value) for value, _ in picture.ticks]
    parts += [
        text.format("axis", scale.at(value), foot + 21, "middle", label) for value, label in picture.ticks
    ]
    parts.append(upright("zero", picture.reference))
    parts.append(text.format("end", scale.start - 6, 14, "start", f"← {picture.left}"))
    parts.append(text.format("end", scale.stop + 6, 14, "end", f"{picture.right} →"))
    parts += [upright("limit", limit) for limit in picture.limits]
    if picture.limits:
        edge = scale.at(picture.limits[-1])
        # A limit near the right end has its label on the other side of the line.
        where, anchor = (edge - 4, "end") if edge > scale.stop - 80 else (edge + 4, "start")
        parts.append(text.format("axis", where, HEAD - 10, anchor, picture.limit_label))
    if picture.reference > picture.low and _room_for_word(picture, scale):
        parts.append(text.format("axis", scale.at(picture.reference), HEAD - 12, "middle", "balanced"))
    return parts


def _room_for_word(picture: Picture, scale: _Scale) -> bool:
    """Whether "balanced" fits above its line without meeting the label of a limit."""
    return not picture.limits or scale.at(picture.limits[-1]) - scale.at(picture.reference) > WORD


def _bands(picture: Picture, layout: Layout, foot: int) -> list[tuple[int, int]]:
    """From where to where upright lines run: never through words."""
    tops = [HEAD + at * layout.row for at, row in enumerate(picture.rows) if isinstance(row, Mark)]
    if layout.stacked:
        return [*((top + layout.drop - 11, top + layout.drop + 11) for top in tops), (foot, foot + 4)]
    bands = [(HEAD - 6, HEAD)]
    for low, high in [*((top, top + layout.row) for top in tops), (foot, foot + 4)]:
        if low == bands[-1][1]:
            bands[-1] = bands[-1][0], high
        else:
            bands.append((low, high))
    return bands


def _line(row: Mark, scale: _Scale, layout: Layout, top: int, number: int) -> Markup:
    y = top + layout.drop
    parts = [_texts(row, layout, top)]
    if number:
        parts.append(Markup('<path class="rule" d="M0 {}H{}"/>').format(top, layout.width))
    if row.ends is not None:
        kind = "bar" if row.told else "untold"
        parts.append(
            Markup('<path class="{}" d="M{} {}H{}"/>').format(
                kind, scale.at(row.ends[0]), y, scale.at(row.ends[1])
            )
        )
    if row.told and row.hollow is not None:
        parts.append(_hollow(row.hollow, scale, y))
    if row.value is not None:
        parts.append(Markup('<circle class="mark" cx="{}" cy="{}" r="5"/>').format(scale.at(row.value), y))
    return Markup("<g>{}</g>").format(Markup("").join(parts))


def _hollow(value: float, scale: _Scale, y: int) -> Markup:
    """A diamond, or an arrow at the edge where the score lies beyond it."""
    x = scale.at(value)
    if value > scale.high:
        return Markup('<path class="hollow" d="M{} {}l9 5l-9 5z"/>').format(x, y - 5)
    if value < scale.low:
        return Markup('<path class="hollow" d="M{} {}l-9 5l9 5z"/>').format(x, y - 5)
    return Markup('<path class="hollow" d="M{} {}l7 7l-7 7l-7-7z"/>').format(x, y - 7)


def _texts(row: Mark, layout: Layout, top: int) -> Markup:
    base = top + (16 if layout.stacked else layout.drop + 5)
    room = layout.width - 170 if layout.stacked else layout.left - 6
    # An inner drawing cuts off what a narrow column has no room for, whatever the font.
    label = Markup(
        '<svg x="0" y="{}" width="{}" height="{}"><text class="label" y="{}">{}{}</text></svg>'
    ).format(top + 1, room, layout.row - 2, base - top - 1, _tooltip(row.title), row.label)
    spread = Markup(' <tspan class="range">({})</tspan>').format(row.range) if row.range else ""
    kind = "value" if row.told else "value unknown"
    return label + Markup('<text class="{}" x="{}" y="{}">{}{}</text>').format(
        kind, layout.width, base, row.figure, spread
    )


def _tooltip(title: str) -> Markup:
    return Markup("<title>{}</title>").format(title) if title else Markup("")


def _gap(row: Gap, layout: Layout, top: int) -> Markup:
    y = top + layout.row / 2
    return Markup(
        '<g><path class="break" d="M0 {0}H{1}M0 {2}H{1}"/><text class="gap" x="{3}" y="{4}">{5}</text></g>'
    ).format(top + 5, layout.width, top + layout.row - 5, layout.width / 2, y + 4, f"⋯ {row.text} ⋯")
