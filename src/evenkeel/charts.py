"""Loads drawn as bars: as text for a terminal, as SVG for a notebook, a README or a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from evenkeel.types import Float64

_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Panel:
    """One chart: a bar a region, in the regions' order."""

    title: str
    loads: Float64
    caption: str = ""
    color: str = "#2a7f9e"


def shrink(loads: Float64, most: int) -> Float64:
    """At most `most` bars: each stands for a run of regions and shows the heaviest of them."""
    if len(loads) <= most:
        return loads
    return np.array([part.max() for part in np.array_split(loads, most)])


def bars(loads: Float64, height: int = 4, width: int = 96, top: float | None = None) -> str:
    """Columns of block characters, scaled to the heaviest region or to `top`."""
    shown = shrink(np.asarray(loads, dtype=np.float64), width)
    peak = float(top if top is not None else shown.max(initial=0.0)) or 1.0
    steps = np.ceil(np.clip(shown / peak, 0, 1) * height * 8).astype(int)
    lines = []
    for row in range(height - 1, -1, -1):
        lines.append("".join(_BLOCKS[int(np.clip(s - 8 * row, 0, 8))] for s in steps))
    return "\n".join(line.rstrip() for line in lines)


def svg(panels: Sequence[Panel], top: float | None = None, width: int = 720, height: int = 130) -> str:
    """The panels below one another on one scale, with the mean as a dashed line."""
    peak = top or max((float(p.loads.max(initial=0.0)) for p in panels), default=1.0) or 1.0
    row = height + 46
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {row * len(panels) + 8}" '
        f'width="{width}" font-family="Helvetica, Arial, sans-serif" role="img">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for i, panel in enumerate(panels):
        loads = shrink(np.asarray(panel.loads, dtype=np.float64), 256)
        y0 = i * row + 40
        step = (width - 24) / max(1, len(loads))
        out.append(
            f'<text x="12" y="{y0 - 22}" font-size="14" font-weight="bold" fill="#222">'
            f"{escape(panel.title)}</text>"
        )
        out.append(f'<text x="12" y="{y0 - 6}" font-size="11" fill="#555">{escape(panel.caption)}</text>')
        for j, load in enumerate(loads):
            h = max(1.0, height * min(1.0, float(load) / peak))
            out.append(
                f'<rect x="{12 + j * step:.2f}" y="{y0 + height - h:.2f}" width="{max(0.5, step * 0.82):.2f}" '
                f'height="{h:.2f}" fill="{panel.color}"/>'
            )
        mean = y0 + height - height * min(1.0, float(np.mean(panel.loads)) / peak)
        out.append(
            f'<line x1="12" x2="{width - 12}" y1="{mean:.2f}" y2="{mean:.2f}" stroke="#c0392b" '
            'stroke-width="1" stroke-dasharray="5 3"/>'
        )
    out.append("</svg>")
    return "\n".join(out)


def curves(
    title: str,
    x: Sequence[float],
    series: dict[str, Sequence[float | None]],
    x_label: str,
    y_label: str,
    width: int = 720,
    height: int = 300,
) -> str:
    """Lines over a logarithmic y axis, one a series; None leaves a gap."""
    colors = ("#c0392b", "#e08e0b", "#8e6bb0", "#7f8c8d", "#2a7f9e", "#2e8b57")
    values = [v for line in series.values() for v in line if v is not None and v > 0]
    low, high = float(np.floor(np.log10(min(values)))), float(np.ceil(np.log10(max(values)) + 1e-9))
    high = max(high, low + 1)
    left, bottom, right, head = 60, height - 40, width - 170, 40

    def px(v: float) -> float:
        return left + (right - left) * (v - min(x)) / ((max(x) - min(x)) or 1)

    def py(v: float) -> float:
        return bottom - (bottom - head) * (float(np.log10(v)) - low) / (high - low)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'font-family="Helvetica, Arial, sans-serif" role="img">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="14" font-weight="bold" fill="#222">{escape(title)}</text>',
    ]
    for power in range(int(low), int(high) + 1):
        y = py(10.0**power)
        out.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(
            f'<text x="{left - 6}" y="{y + 4:.1f}" font-size="11" text-anchor="end" fill="#555">{10.0**power:g}</text>'
        )
    for v in x:
        out.append(
            f'<text x="{px(v):.1f}" y="{bottom + 16}" font-size="11" text-anchor="middle" fill="#555">{v:g}</text>'
        )
    out.append(
        f'<text x="{(left + right) / 2}" y="{bottom + 32}" font-size="11" text-anchor="middle" '
        f'fill="#555">{escape(x_label)}</text>'
    )
    out.append(f'<text x="{left - 6}" y="{head - 6}" font-size="11" fill="#555">{escape(y_label)}</text>')
    for i, (name, line) in enumerate(series.items()):
        color = colors[i % len(colors)]
        points = [(px(a), py(v)) for a, v in zip(x, line, strict=True) if v is not None and v > 0]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{color}"/>' for a, b in points]
        y = head + 16 * i + 10
        out.append(f'<rect x="{right + 16}" y="{y - 9}" width="10" height="10" fill="{color}"/>')
        out.append(f'<text x="{right + 32}" y="{y}" font-size="11" fill="#333">{escape(name)}</text>')
    out.append("</svg>")
    return "\n".join(out)
