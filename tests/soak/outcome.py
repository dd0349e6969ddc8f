"""What a scenario found: figures for the eye, and problems that make it fail."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outcome:
    """One scenario. It is ok as long as nobody has put down a problem."""

    name: str
    figures: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def say(self, figure: str) -> None:
        """Add a figure to the line."""
        self.figures.append(figure)

    def expect(self, fulfilled: bool, problem: str) -> None:
        """Put down a problem where something is not as it has to be."""
        if not fulfilled:
            self.problems.append(problem)

    def line(self) -> str:
        """`overload: ok: figures`, or `overload: FAILED (problems): figures`."""
        verdict = "ok" if self.ok else f"FAILED ({'; '.join(self.problems)})"
        return f"{self.name}: {verdict}: {', '.join(self.figures)}"
