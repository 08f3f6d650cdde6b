"""The figures of the attacks: what is counted, and the tables that tell it."""

from collections import Counter
from collections.abc import Mapping

#: What is counted, in the order in which it is shown: attempts alone.  What a test asserts is no figure, since it could
#: not read otherwise: a test that fails counts nothing.
LINES: Mapping[str, str] = {
    "kills": "times that a bump was killed and run again",
    "side by side": "runs that met another on the same checkout, archive or pull request",
    "faults": "calls that a fault of the network met",
    "disk": "writes that met a full or a read-only disk",
    "requests": "requests that were held against GitHub's description",
    "answers": "answers of the practice forge that were held against it",
    "payloads": "recorded payloads of GitHub that were read",
    "hostile": "hostile inputs tried",
    "secrets": "secrets put into texts, environments, answers and logs, and searched for in all that was left",
    "tampered": "changes made to an archive",
    "bumps": "bumps in a row and side by side",
}
#: How a call that met a fault may end: it was done after all, or it was told in a sentence.
OUTCOMES = ("done", "told")


class Figures(Counter[str]):
    """What one test counted, by the names of LINES; ``fault`` counts by kind and outcome as well."""

    def fault(self, kind: str, outcome: str) -> None:
        """A call that met this kind of fault ended so.  Raises ValueError for an outcome that must not be."""
        if outcome not in OUTCOMES:
            raise ValueError(f"{kind} ended as {outcome!r}, which is none of {', '.join(OUTCOMES)}")
        self["faults"] += 1
        self[f"{kind}|{outcome}"] += 1


def table(figures: Mapping[str, int]) -> str:
    """Two tables in Markdown: a line for each figure, and kinds of fault × outcomes."""
    lines = ["| what was tried | times |", "|---|---:|"]
    lines += [f"| {text} | {figures[name]:,} |" for name, text in LINES.items() if name in figures]
    kinds = sorted({name.split("|")[0] for name in figures if "|" in name})
    if kinds:
        lines += [
            "",
            "| a fault of the network | " + " | ".join(OUTCOMES) + " |",
            "|---" + "|---:" * len(OUTCOMES) + "|",
        ]
        for kind in kinds:
            lines.append(f"| {kind} | " + " | ".join(f"{figures.get(f'{kind}|{it}', 0):,}" for it in OUTCOMES) + " |")
    return "\n".join(lines)
