"""`explain()` of a multi-way join: its attributes, the cubes considered, the one chosen and why."""

from __future__ import annotations

from evenkeel import charts
from evenkeel.plan.multi_way import PIPELINE, CubeCandidate, MultiWay
from evenkeel.report import LoadReport
from evenkeel.schemes.hypercube import ROW, Block, CubeLayout, Dimension
from evenkeel.types import Exact

HOT = 4
"""Values of an attribute that are named."""


def explain_multi(plan: MultiWay, predicted: LoadReport) -> str:
    return "\n".join([_query(plan), _statistics(plan), _candidates(plan), _choice(plan, predicted)])


def _query(plan: MultiWay) -> str:
    query = plan.query
    kind = "cyclic" if query.cyclic else "acyclic"
    lines = [f"{len(query.names)}-way join on {query.text}  [{kind}, {plan.workers} workers]"]
    for c in query.clauses:
        lines.append(f"  checked where rows meet: {c.text}")
    return "\n".join(lines)


def _statistics(plan: MultiWay) -> str:
    lines = [f"statistics (join keys only, {plan.seconds:.2f} s; ~ marks an estimate)"]
    for i, name in enumerate(plan.query.names):
        groups = plan.groups[i]
        read = "" if groups.fraction >= 1.0 else f", {groups.fraction:.1%} of them read"
        rows = groups.rows if isinstance(groups.rows, Exact) else f"~{groups.total:,.0f}"
        lines.append(f"  {name}: {rows} rows{read}")
        for a in plan.query.of(i):
            keys, counts = groups.values(a)
            even = groups.total / plan.workers
            hot = [(k, c) for k, c in zip(keys[:HOT].tolist(), counts[:HOT].tolist(), strict=True) if c > even]
            if hot:
                shown = ", ".join(f"{groups.label(a, k)} {c / groups.total:.1%}" for k, c in hot)
                lines.append(f"    {_member(plan, a, i)}: hot values {shown}")
    return "\n".join(lines)


def _member(plan: MultiWay, attribute: int, relation: int) -> str:
    name = plan.query.names[relation]
    parts = plan.query.attributes[attribute].name.split(" = ")
    return next((p for p in parts if p.startswith(f"{name}.")), parts[0])


def _candidates(plan: MultiWay) -> str:
    head = f"{'heaviest region':>16s} {'mean':>12s} {'replication':>12s}"
    lines = [f"considered   {head}"]
    for c in plan.candidates:
        load = c.layout.predicted
        mark = "->" if c is plan.chosen else "  "
        row = f"{c.heaviest:16,.0f} {load.rows_in.mean():12,.0f} {load.replication:12.2f}"
        lines.append(f"{mark} {c.scheme:10s}{row}  {_shape(plan, c)}")
    if plan.pipeline is not None:
        p = plan.pipeline
        mark = "->" if plan.scheme == PIPELINE else "  "
        total = max(1.0, sum(g.total for g in plan.groups))
        row = f"{p.cost:16,.0f} {p.shipped / plan.workers:12,.0f} {p.shipped / total:12.2f}"
        between = f"{p.order.intermediate:,.0f} rows between joins"
        lines.append(f"{mark} {PIPELINE:10s}{row}  two-way joins, {between}")
    return "\n".join(lines)


def _shape(plan: MultiWay, candidate: CubeCandidate) -> str:
    layout = candidate.layout
    shape = " x ".join(_dimension(plan, d) for d in layout.blocks[0].dimensions) or "one cell"
    if len(layout.blocks) > 1:
        count = len(layout.blocks) - 1
        shape += f", and {count} block{'s' * (count != 1)} of heavy values"
    return shape


def _dimension(plan: MultiWay, dimension: Dimension) -> str:
    names = ", ".join(plan.query.names[i] for i in sorted(dimension.relations))
    if dimension.source == ROW:
        return f"rows of {names} ({dimension.share})"
    return f"{_attribute(plan, dimension.source)} ({dimension.share})"


def _attribute(plan: MultiWay, attribute: int) -> str:
    return plan.query.attributes[attribute].name.split(" = ")[0]


def _choice(plan: MultiWay, predicted: LoadReport) -> str:
    lines = [f"chosen: {plan.scheme}, {plan.reason}"]
    assert plan.order is not None
    names = [plan.query.names[i] for i in plan.order.relations]
    if plan.chosen is not None:
        lines += _blocks(plan, plan.chosen.layout)
        ways = "hash tables of the others, nothing between joins is stored"
        lines.append(f"  in a cell: {names[0]} streams through {', '.join(names[1:])} ({ways})")
    else:
        lines.append(f"  order: {', '.join(names)}")
    lines.append(f"  intermediate network factor {predicted.network_factor:.2f} (rows shipped and made / in and out)")
    if plan.chosen is not None:
        lines.append("  predicted rows per region:")
        lines.append(charts.bars(predicted.rows_in, height=2, width=80))
    return "\n".join(lines)


def _blocks(plan: MultiWay, layout: CubeLayout) -> list[str]:
    lines = []
    order = sorted(layout.blocks, key=lambda b: -len(b.cells))
    for block in order[:HOT]:
        where = _pattern(plan, layout, block)
        cells = len(block.cells)
        lines.append(f"  {where}{cells} cell{'s' * (cells != 1)}")
        for d in block.dimensions:
            lines.append(f"    {_why(plan, d)}")
        copied = [
            plan.query.names[i]
            for i in plan.query.relations
            if cells > 1 and not any(i in d.relations for d in block.dimensions)
        ]
        if copied:
            lines.append(f"    copied to every cell: {', '.join(copied)}")
    if len(order) > HOT:
        rest = sum(len(b.cells) for b in order[HOT:])
        lines.append(f"  and {len(order) - HOT} more blocks, {rest} cells")
    return lines


def _pattern(plan: MultiWay, layout: CubeLayout, block: Block) -> str:
    if len(layout.blocks) == 1:
        return "one cube: "
    parts = []
    for a, k in enumerate(block.pattern):
        if k:
            value = int(layout.heavy[a][k - 1])
            holders = [plan.groups[i] for i in sorted(plan.query.attributes[a].relations)]
            named = [g for g in holders if value in g.labels.get(a, {})] or holders
            parts.append(f"{_attribute(plan, a)} = {named[0].label(a, value)}")
    return f"where {' and '.join(parts)}: " if parts else "light values: "


def _why(plan: MultiWay, dimension: Dimension) -> str:
    names = [plan.query.names[i] for i in sorted(dimension.relations)]
    if dimension.source != ROW:
        attribute = plan.query.attributes[dimension.source]
        others = [plan.query.names[i] for i in sorted(attribute.relations - dimension.relations)]
        away = f"; {', '.join(others)} not, for a hot value" if others else ""
        return f"{attribute.name}: {dimension.share} parts, {', '.join(names)} hashed{away}"
    relation = next(iter(dimension.relations))
    hot = [a for a in plan.query.of(relation) if plan.groups[relation].top_share(a) > 1 / plan.workers]
    if hot:
        reason = f", for {_member(plan, hot[0], relation)} has hot values"
    elif not any(plan.query.attributes[a].shared for a in plan.query.of(relation)):
        reason = ", for no equality divides it"
    else:
        reason = ""
    return f"rows of {names[0]}: {dimension.share} parts, spread row by row{reason}"
