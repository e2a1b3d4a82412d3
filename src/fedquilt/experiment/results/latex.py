r"""A table of results as LaTeX, with booktabs: `\usepackage{booktabs}`."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Sequence

from fedquilt.experiment.results.cells import Cell
from fedquilt.experiment.results.table import ResultTable, heading
from fedquilt.experiment.results.written import difference, ours, published

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"$<$", ">": r"$>$", "|": r"$|$",
    "[": "{[}", "*": "{*}",  # at the beginning of a line, they would belong to the \\ before it
    "±": r"$\pm$", "×": r"$\times$", "−": r"$-$", "–": "--", "—": "---", "…": r"\dots{}", "∞": r"$\infty$",
    "≤": r"$\leq$", "≥": r"$\geq$", "≠": r"$\neq$", "≈": r"$\approx$", "≡": r"$\equiv$", "∼": r"$\sim$", "≪": r"$\ll$",
    "≫": r"$\gg$", "∝": r"$\propto$", "·": r"$\cdot$", "⋅": r"$\cdot$", "‖": r"$\|$", "→": r"$\to$",
    "←": r"$\leftarrow$", "√": r"$\surd$", "∈": r"$\in$", "∅": r"$\emptyset$", "∑": r"$\sum$", "∇": r"$\nabla$",
    "∂": r"$\partial$", "ℓ": r"$\ell$", "′": "$'$", "†": r"$\dagger$", "‡": r"$\ddagger$", "✓": r"$\surd$",
    "'": "'", "’": "'", "‘": "`", "“": "``", "”": "''",
    **{each: f"$^{number}$" for number, each in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}, "⁻": "$^-$",
    **{each: f"$_{number}$" for number, each in enumerate("₀₁₂₃₄₅₆₇₈₉")},
}  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta",
    "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma",
    "τ": "tau", "υ": "upsilon", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta",
    "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip


LAST_KNOWN = 0x17F
"""The last character of Latin Extended-A: of those behind it, pdfLaTeX knows the ones above by their commands only."""


def escaped(text: str) -> str:
    r"""Write text so that LaTeX prints it as it is; line breaks become spaces.

    >>> print(escaped("B = ∞, η_eff & 50%"))
    B = $\infty$, $\eta$\_eff \& 50\%
    """
    words = unicodedata.normalize("NFC", " ".join(text.split()))
    return "".join(f"$\\{_GREEK[each]}$" if each in _GREEK else _SPECIAL.get(each, each) for each in words)


def to_latex(table: ResultTable, label: str = "tab:results") -> str:
    """Write a table in the paper's shape: ours, and beside it what was published and the difference."""
    return with_engine("\n".join(_lines(table, label)))


def with_engine(text: str) -> str:
    """Say above a table which LaTeX it needs, where pdfLaTeX lacks a character of it.

    >>> print(with_engine("naïve"), with_engine("漢字"), sep="\\n")
    naïve
    % for XeLaTeX or LuaLaTeX: pdfLaTeX does not know 字漢
    漢字
    """
    unknown = "".join(sorted({each for each in text if ord(each) > LAST_KNOWN}))
    return f"% for XeLaTeX or LuaLaTeX: pdfLaTeX does not know {unknown}\n{text}" if unknown else text


def _lines(table: ResultTable, label: str) -> list[str]:
    widths = [1 + len(table.compared_with) if compares else 1 for compares in table.compares]
    heads = len(table.row_axes)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escaped(table.caption or table.title)}}}",
        rf"\label{{{re.sub(r'[^A-Za-z0-9:.-]', '-', label)}}}",
        rf"\begin{{tabular}}{{{'l' * heads}{'r' * sum(widths)}}}",
        r"\toprule",
        *_headings(table, widths),
        r"\midrule",
    ]
    above: tuple[str, ...] = ()
    for row, cells in zip(table.rows, table.cells, strict=True):
        if above and len(row) > 1 and row[0] != above[0]:
            lines.append(r"\addlinespace")
        words = [_unless_above(row, above, index) for index in range(heads)]
        for cell, width in zip(cells, widths, strict=True):
            words += _words(cell, width)
        lines.append(_line(words))
        above = row
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.notes:
        lines += ["", r"\smallskip", rf"{{\footnotesize {escaped(' '.join(table.notes))}\par}}"]
    return [*lines, r"\end{table}", ""]


def _headings(table: ResultTable, widths: Sequence[int]) -> list[str]:
    """Write a line for each axis of the columns, and one for ours and published; equal cases side by side are joined."""
    heads, lines = len(table.row_axes), []
    for level, axis in enumerate(table.column_axes):
        last = level == len(table.column_axes) - 1 and not any(table.compares)
        words = [escaped(name) for name in table.row_axes] if last else [""] * heads
        rules, start = [], heads + 1
        for case, group in itertools.groupby(enumerate(table.columns), key=lambda each: each[1][: level + 1]):
            width = sum(widths[number] for number, _ in group)
            name = escaped(heading(axis, case[-1]))
            words.append(name if width == 1 else rf"\multicolumn{{{width}}}{{c}}{{{name}}}")
            if width > 1:
                rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
            start += width
        lines += [_line(words), *([" ".join(rules)] if rules else [])]
    if any(table.compares) or not table.column_axes:
        words = [escaped(name) for name in table.row_axes]
        for compares in table.compares:
            words += ["ours", *(table.compared_with if compares else [])]
        lines.append(_line(words))
    return lines


def _unless_above(row: tuple[str, ...], above: tuple[str, ...], index: int) -> str:
    """Leave out a heading that stands in the row above too."""
    return "" if row[: index + 1] == above[: index + 1] and index < len(row) - 1 else escaped(row[index])


def _words(cell: Cell | None, width: int) -> list[str]:
    if cell is None:
        return [""] * width
    text = escaped(ours(cell))
    text = rf"\textbf{{{text}}}" if cell.best else rf"\underline{{{text}}}" if cell.marked else text
    return [text, escaped(published(cell.published, cell.metric)), escaped(difference(cell))][:width]


def _line(words: Sequence[str]) -> str:
    return rf"{' & '.join(words)} \\"
