"""A table of text: as HTML on the page, and as Markdown, CSV and LaTeX (booktabs) in files."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from fedquilt.experiment.results.latex import escaped, with_engine


@dataclass(frozen=True)
class TextTable:
    """A heading, columns and rows of text; `name` is that of its files."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    def without_empty(self) -> TextTable:
        """Leave out the columns in which no row has anything."""
        columns = zip(self.header, *self.rows, strict=True)
        return self.without(*(name for name, *texts in columns if all(text in ("–", "") for text in texts)))

    def without(self, *names: str) -> TextTable:
        """Leave out the columns of these names."""
        kept = [column for column, name in enumerate(self.header) if name not in names]
        header, *rows = (tuple(row[column] for column in kept) for row in (self.header, *self.rows))
        return TextTable(self.name, self.title, header, tuple(rows), self.caption)

    def markdown(self) -> str:
        """Write the table as Markdown.

        >>> print(TextTable("t", "T", ("run", "best"), (("a|b", "91.2%"),)).markdown(), end="")
        | run | best |
        |---|---:|
        | a\\|b | 91.2% |
        """
        lines = [self.header, tuple("---:" if index else "---" for index in range(len(self.header)))]
        head = [f"| {' | '.join(map(_bar, lines[0]))} |", f"|{'|'.join(lines[1])}|"]
        return "\n".join([*head, *(f"| {' | '.join(map(_bar, row))} |" for row in self.rows)]) + "\n"

    def csv(self) -> str:
        """Write the table as CSV, with a first line that names the columns."""
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([self.header, *self.rows])
        return file.getvalue()

    def latex(self) -> str:
        """Write the table as LaTeX; it needs `\\usepackage{booktabs}`."""
        columns = "l" + "r" * (len(self.header) - 1)
        body = [" & ".join(map(escaped, row)) + r" \\" for row in self.rows]
        head = " & ".join(map(escaped, self.header)) + r" \\"
        lines = [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
        return with_engine("\n".join(lines))


def _bar(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
