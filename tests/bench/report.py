"""The table, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tests.bench.figures import counted, median
from tests.bench.load import Steady
from tests.bench.startup import Start
from tests.bench.traffic import ColdRound, Round
from tests.bench.verdict import Cost

COLUMNS = ("", "p50", "p90", "p95", "p99", "max", "a second", "CPU µs each")
OTHERS = ("empty", "reference")


@dataclass(slots=True)
class Report:
    """Everything that was measured; what was not asked for is empty."""

    machine: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    verdict: list[Cost] = field(default_factory=list)
    traffic: list[Round] = field(default_factory=list)
    cold: list[ColdRound] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)

    def raw(self) -> dict[str, Any]:
        """All of it, every round, for JSON."""
        return asdict(self)

    def table(self) -> Table:
        """One table, a section for each kind of figure.

        Figures are medians over the rounds, except for `max`. Lines with a colon are ratios, each the median of the
        ratios within a round, with the lowest and the highest of them behind the one of requests a second.
        """
        table = Table(title="mps-webhook benchmark", title_justify="left", box=SIMPLE_HEAD)
        for number, name in enumerate(COLUMNS):
            table.add_column(name, justify="right" if number else "left", no_wrap=True)
        for title, rows in (
            ("verdict of an annotated pod, µs", self._verdict_rows()),
            ("requests over TLS, ms", self._traffic_rows()),
            ("new connections, ms", self._cold_rows()),
            ("start", self._start_rows()),
        ):
            if rows:
                table.add_section()
                table.add_row(f"[bold]{title}")
                for row in rows:
                    table.add_row(*row)
        return table

    def caption(self) -> list[str]:
        """What has to be known to read the table."""
        known = ", ".join(f"{key} {value}" for key, value in self.machine.items())
        return [known, *self.notes]

    def _verdict_rows(self) -> list[list[str]]:
        rows = [
            _row(
                f"{cost.pod}{', again' * cost.again}, {cost.profiles} profiles, {cost.nodes:,} nodes",
                p50=f"{cost.median_us:.1f}",
                p95=f"{cost.p95_us:.1f}",
            )
            for cost in self.verdict
        ]
        # With fewer nodes than profiles there is less to judge, so only fleets of equally many profiles are compared.
        alike: dict[tuple[str, int], list[Cost]] = {}
        for cost in self.verdict:
            if not cost.again:
                alike.setdefault((cost.pod, cost.profiles), []).append(cost)
        for (pod, profiles), costs in alike.items():
            few, many = costs[0], costs[-1]
            if few is not many:
                name = f"{pod}, {profiles} profiles, {many.nodes:,} : {few.nodes:,} nodes"
                rows.append(_row(name, p50=f"{many.median_us / few.median_us:.2f}"))
        return rows

    def _traffic_rows(self) -> list[list[str]]:
        rows = []
        targets = list(dict.fromkeys(found.target for found in self.traffic))
        for count in dict.fromkeys(found.connections for found in self.traffic):
            measured = {
                target: [r.figures for r in self.traffic if (r.target, r.connections) == (target, count)]
                for target in targets
            }
            rows += [_absolute(f"{target}, {counted(count)}", rounds) for target, rounds in measured.items()]
            for other in OTHERS:
                rows += [
                    _relative(f"{target} : {other}, {counted(count)}", rounds, measured[other])
                    for target, rounds in measured.items()
                    if other in measured and target not in OTHERS
                ]
        return rows

    def _cold_rows(self) -> list[list[str]]:
        rows = []
        for what in ("handshake", "answer"):
            p50s: dict[str, list[float]] = {}
            p95s: dict[str, list[float]] = {}
            for found in self.cold:
                figures = asdict(found.figures)
                p50s.setdefault(found.target, []).append(figures[f"{what}_p50_ms"])
                p95s.setdefault(found.target, []).append(figures[f"{what}_p95_ms"])
            name = {"handshake": "TCP and TLS handshake", "answer": "first answer"}[what]
            for target, values in p50s.items():
                rows.append(_row(f"{target}, {name}", p50=_ms(median(values)), p95=_ms(median(p95s[target]))))
            for other in OTHERS:
                rows += [
                    _row(f"{target} : {other}, {name}", p50=_middle(_ratios(values, p50s[other])))
                    for target, values in p50s.items()
                    if other in p50s and target not in OTHERS
                ]
        return rows

    def _start_rows(self) -> list[list[str]]:
        rows = []
        for nodes in dict.fromkeys(start.nodes for start in self.starts):
            rounds = [start for start in self.starts if start.nodes == nodes]
            for name, values in (
                ("resident memory, MiB", [start.rss_mib for start in rounds]),
                ("its highest point, MiB", [start.peak_mib for start in rounds]),
                ("process start to ready, s", [start.ready_seconds for start in rounds]),
            ):
                row = _row(f"{name}, {nodes:,} nodes", p50=f"{median(values):.2f}", most=f"{max(values):.2f}")
                rows.append(row)
        return rows


def _row(
    name: str,
    *,
    p50: str = "",
    p90: str = "",
    p95: str = "",
    p99: str = "",
    most: str = "",
    per_second: str = "",
    cpu: str = "",
) -> list[str]:
    return [name, p50, p90, p95, p99, most, per_second, cpu]


def _absolute(name: str, rounds: Sequence[Steady]) -> list[str]:
    answered, refused = sum(r.requests for r in rounds), sum(r.refused for r in rounds)
    cpu = median([_cpu(r) for r in rounds])
    return _row(
        f"{name}, {refused / (answered + refused):.1%} refused" if refused else name,
        p50=_ms(median([r.p50_ms for r in rounds])),
        p90=_ms(median([r.p90_ms for r in rounds])),
        p99=_ms(median([r.p99_ms for r in rounds])),
        most=_ms(max(r.max_ms for r in rounds)),
        per_second=f"{median([r.per_second for r in rounds]):,.0f}",
        cpu=f"{cpu:.0f}" if cpu else "",
    )


def _relative(name: str, rounds: Sequence[Steady], others: Sequence[Steady]) -> list[str]:
    """Ratios of what was measured in the same round."""
    rates = _ratios([r.per_second for r in rounds], [r.per_second for r in others])
    return _row(
        name,
        p50=_middle(_ratios([r.p50_ms for r in rounds], [r.p50_ms for r in others])),
        p90=_middle(_ratios([r.p90_ms for r in rounds], [r.p90_ms for r in others])),
        p99=_middle(_ratios([r.p99_ms for r in rounds], [r.p99_ms for r in others])),
        per_second=f"{_middle(rates)} ({min(rates):.2f}–{max(rates):.2f})" if rates else "",
        cpu=_middle(_ratios([_cpu(r) for r in rounds], [_cpu(r) for r in others])),
    )


def _ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    return [value / other for value, other in zip(values, others, strict=True) if other]


def _middle(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f}" if ratios else ""


def _cpu(figures: Steady) -> float:
    """Microseconds of the server's CPU time for each request."""
    return figures.server_cpu_seconds / max(1, figures.requests) * 1e6


def _ms(value: float) -> str:
    return f"{value:.2f}"
