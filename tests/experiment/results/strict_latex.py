r"""A strict reader of the small part of LaTeX that tables are written in: what it takes, LaTeX takes.

Braces and environments are balanced, every command is known, no special character stands bare, every line of a tabular has
as many cells as it has columns, and rules lie within it.
"""

from __future__ import annotations

import re

COMMANDS = {
    "begin", "end", "centering", "caption", "label", "toprule", "midrule", "bottomrule", "cmidrule", "addlinespace",
    "multicolumn", "textbf", "underline", "emph", "footnotesize", "smallskip", "par", "textbackslash", "textasciicircum",
    "textasciitilde", "dots",
}  # fmt: skip
SYMBOLS = {
    "pm", "times", "infty", "leq", "geq", "neq", "approx", "cdot", "to", "surd", "in", "eta", "alpha", "beta", "mu", "|",
    "nabla", "dagger",
}  # fmt: skip
TOKEN = re.compile(r"\\[A-Za-z]+|\\\\|\\.|[{}$&%#_^~]|[^\\{}$&%#_^~]+")


class LatexError(AssertionError):
    pass


def check_latex(text: str) -> list[list[str]]:
    """Check a table; return the cells of its tabular, line by line, a joined one as many times as it is wide."""
    tokens = TOKEN.findall(text)
    if "".join(tokens) != text:
        raise LatexError("cannot be read")
    depth, math = 0, False
    environments: list[str] = []
    for place, token in enumerate(tokens):
        depth += {"{": 1, "}": -1}.get(token, 0)
        math ^= token == "$"
        _check_token(token, depth, math, environments)
        if token == r"\begin":
            environments.append(tokens[place + 2])
        elif token == r"\end" and environments.pop() != tokens[place + 2]:
            raise LatexError("environments overlap")
    if depth or math or environments:
        raise LatexError("something is not closed")
    return _tabular(text)


def _check_token(token: str, depth: int, math: bool, environments: list[str]) -> None:
    if depth < 0:
        raise LatexError("a brace is closed that was not opened")
    if token in ("%", "#", "~", "_") or (token == "^" and not math):
        raise LatexError(f"{token} stands bare")
    if token == "&" and "tabular" not in environments:
        raise LatexError("& outside of a tabular")
    name = token.removeprefix("\\")
    if name != token and name.isalpha() and name not in (SYMBOLS if math else COMMANDS):
        raise LatexError(f"{token} is not known {'in mathematics' if math else 'in text'}")
    if not token.startswith("% ") and any(ord(each) > 0x17F for each in token):
        raise LatexError(f"{token!r} has characters that pdfLaTeX does not know")


def _tabular(text: str) -> list[list[str]]:
    found = re.search(r"\\begin\{tabular\}\{([lrc]+)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL)
    if found is None:
        raise LatexError("there is no tabular")
    width, rows = len(found[1]), []
    for line in found[2].splitlines():
        for start, end in re.findall(r"\\cmidrule\(lr\)\{(\d+)-(\d+)\}", line):
            if not 1 <= int(start) <= int(end) <= width:
                raise LatexError(f"a rule from {start} to {end} of {width} columns")
        if re.fullmatch(r"(\\(toprule|midrule|bottomrule|addlinespace)|(\\cmidrule\(lr\)\{\d+-\d+\} ?)+)", line):
            continue
        if not line.endswith(r" \\"):
            raise LatexError(f"a line does not end: {line}")
        cells: list[str] = []
        for cell in re.split(r"(?<!\\)&", line.removesuffix(r" \\")):
            joined = re.fullmatch(r"\\multicolumn\{(\d+)\}\{c\}\{(.*)\}", cell.strip())
            cells += [joined[2]] * int(joined[1]) if joined else [cell.strip()]
        if line[:1] in ("[", "*"):
            raise LatexError(f"would belong to the end of the line before: {line}")
        if len(cells) != width:
            raise LatexError(f"{len(cells)} cells in {width} columns: {line}")
        rows.append(cells)
    return rows
