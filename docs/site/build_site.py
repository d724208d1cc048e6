"""Builds the site in build/site (`make docs`). What is linked must be there, and nothing is loaded from elsewhere.

The pages are the repository's own Markdown files, at the same places, so that their links hold on both sides. Equations
between dollars become MathML, the API's pages are made of docstrings, and a linked file of code is copied beside them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import api_pages
import check_site
import yaml
from latex2mathml.converter import convert

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
STAGE, SITE = BUILD / "site-pages", BUILD / "site"
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
GUIDES = {
    "Begin": ["install", "text-to-text", "summaries", "questions", "copy", "python", "cli", "notes"],
    "Tasks": ["classify", "tag", "glimpse", "caption", "write", "answer", "remember", "point", "features", "speak"],
    "Look inside": ["attention", "look", "align", "trust", "confidence", "page", "huggingface"],
    "Run it elsewhere": ["serve", "glossary", "export", "import", "adapt", "fast", "additive"],
    "Measured": ["compare", "benchmarks", "log", "licences"],
}
SKIPPED = ("site", "__pycache__")
EXTENSIONS = ["tables", "attr_list", "md_in_html", "toc", "pymdownx.superfences", "pymdownx.highlight"]
CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
DISPLAY, INLINE = re.compile(r"\$\$(.+?)\$\$", re.DOTALL), re.compile(r"(?<![\\$\w])\$([^$\n]+?)\$(?![\w$])")
EQUATION = '<div class="equation" role="group" aria-label="equation" tabindex="0">{}</div>'
HEAD, EMPTY = re.compile(r"^(\|.*\|\n)(\|[-:| ]+\|)$", re.MULTILINE), re.compile(r"\| +(?=\|)")
UNNAMED = '<span class="unseen">of what</span>'
LINK = re.compile(r"\]\(([^)#\s]+)")


def stage() -> None:
    """Copy the pages and what they link to, with equations as MathML."""
    shutil.rmtree(STAGE, ignore_errors=True)
    pages = [ROOT / name for name in TOP] + sorted((ROOT / "docs").rglob("*.md"))
    for page in pages:
        if SKIPPED[0] not in page.parts[len(ROOT.parts) :]:
            _write(page.relative_to(ROOT), name_columns(render_equations(page.read_text("utf-8"), page)))
            _copy_linked(page)
    for folder in ("course", "site/style"):
        for path in (ROOT / "docs" / folder).rglob("*"):
            if path.suffix in (".js", ".css", ".svg", ".png", ".json", ".py"):
                _copy(path)
    for name, text in api_pages.write_pages().items():
        _write(Path("docs/api") / name, text)


def name_columns(text: str) -> str:
    """Give the empty heads of tables a word that only screen readers read."""
    return HEAD.sub(lambda found: EMPTY.sub(f"| {UNNAMED} ", found[1]) + found[2], text)


def render_equations(text: str, page: Path) -> str:
    """Turn $...$ and $$...$$ outside of code into MathML; other pages have dollars of shells only."""
    if "course" not in page.parts:
        return text
    parts = CODE.split(text)
    return "".join(part if number % 2 else _render(part) for number, part in enumerate(parts))


def _render(text: str) -> str:
    text = DISPLAY.sub(lambda found: EQUATION.format(_mathml(found[1], "block")), text)
    return INLINE.sub(lambda found: _mathml(found[1], "inline"), text)


def _mathml(latex: str, display: str) -> str:
    return str(convert(" ".join(latex.split()), display=display)).replace("\n", "")


def _write(place: Path, text: str) -> None:
    path = STAGE / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _copy(path: Path) -> None:
    place = STAGE / path.relative_to(ROOT)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, place)


def _copy_linked(page: Path) -> None:
    """Copy the files that a page links to and that are no pages; a linked folder is listed as a page."""
    for link in LINK.findall(page.read_text("utf-8")):
        if "://" in link or link.startswith("mailto:"):
            continue
        path = (page.parent / link).resolve()
        if not path.is_relative_to(ROOT) or not path.exists():
            continue  # the check of the built pages names it
        if path.is_file() and path.suffix != ".md":
            _copy(path)


def navigation() -> list[dict[str, object]]:
    """Return the tree of pages; those of guides that no list names stand at the end."""
    named = {name for names in GUIDES.values() for name in names}
    others = sorted(path.stem for path in (ROOT / "docs").glob("*.md") if path.stem not in named)
    groups = {**GUIDES, **({"More": others} if others else {})}
    tree: list[dict[str, object]] = [{"saccade": "README.md"}]
    tree += [{"Course": _pages("course")}]
    tree += [{title: [f"docs/{name}.md" for name in names]} for title, names in groups.items()]
    about, *experiments = _pages("lab")
    named_short = [{Path(page).stem: page} for page in experiments]  # their headings are whole questions
    tree += [{"Scores": _pages("scores")}, {"Lab": [about, *named_short]}]
    tree += [{"API": [f"docs/api/{name}" for name in api_pages.write_pages()]}]
    tree += [{"The project": ["CONTRIBUTING.md", "CHANGELOG.md", *_pages("decisions")]}]
    return tree


def _pages(folder: str) -> list[str]:
    names = sorted(path.name for path in (ROOT / "docs" / folder).glob("*.md"))
    return [f"docs/{folder}/{name}" for name in sorted(names, key=lambda name: name != "README.md")]


def configure() -> Path:
    """Write the settings of Zensical, which reads MkDocs's."""
    settings = {
        "site_name": "saccade",
        "docs_dir": STAGE.name,
        "site_dir": SITE.name,
        "use_directory_urls": False,
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.top", "toc.follow"],  # others make landmarks without names
            "palette": [
                {
                    "media": "(prefers-color-scheme: light)",
                    "scheme": "default",
                    "toggle": _toggle("brightness-7", "dark"),
                },
                {
                    "media": "(prefers-color-scheme: dark)",
                    "scheme": "slate",
                    "toggle": _toggle("brightness-4", "light"),
                },
            ],
        },
        "extra_css": ["docs/site/style/site.css"],
        "extra_javascript": [{"path": "docs/site/style/tables.js", "type": "module"}],
        "markdown_extensions": EXTENSIONS,
        "nav": navigation(),
        "extra": {"generator": False},
    }
    path = BUILD / "mkdocs.yml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), "utf-8")
    return path


def _toggle(icon: str, other: str) -> dict[str, str]:
    return {"icon": f"material/{icon}", "name": f"Switch to {other}"}


def build() -> list[str]:
    """Build the site and return what is wrong with it."""
    BUILD.mkdir(exist_ok=True)
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "-f", str(configure())]
    done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, check=False)
    if done.returncode or not SITE.exists():
        return [f"zensical: {done.stdout}{done.stderr}"]
    return list(check_site.find_problems(SITE))


def main(problems: Iterable[str] | None = None) -> None:
    """Build, and end with 1 if something is wrong."""
    found = list(build() if problems is None else problems)
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{SITE / 'index.html'}: {sum(1 for _ in SITE.rglob('*.html'))} pages, {len(found)} problems")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
