"""What the documentation site has in addition to docs/: the pages of the root, and llms.txt.

Links from a page to a file that is no page name the file: where the source is browsed, a reader of
the site has to look for it.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
OF_ROOT = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASE.md", "SECURITY.md")
_LINK = re.compile(r"\[([^\]]*)\]\(((?!https?:|mailto:|#)[^)\s]+)\)")
_COG = re.compile(r"<!-- (\[\[\[.*?\]\]\]|\[\[\[end\]\]\]) -->\n?", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand in the root of the repository."""
    for name in OF_ROOT:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site; leave out what makes generated parts."""
    folder = ROOT if page.file.src_uri in OF_ROOT else Path(config.docs_dir)

    def linked(found: re.Match[str]) -> str:
        words, target = found.groups()
        path, _, anchor = target.partition("#")
        file = (folder / path).resolve()
        if not file.exists():
            # Reported by mkdocs, which fails on it.
            return found[0]
        name = file.relative_to(ROOT).as_posix().removeprefix("docs/").rstrip("/")
        if file.is_dir() and name == "docs":
            name = "README.md"
        if files.get_file_from_path(name) is None:
            return words if "`" in words or words == name else f"{words} (`{name}`)"
        return f"[{words}]({name}{'#' if anchor else ''}{anchor})"

    return _LINK.sub(linked, _COG.sub("", markdown))


def on_nav(nav: Navigation, config: MkDocsConfig, **_: object) -> Navigation:
    """Keep the pages for llms.txt."""
    config.extra["pages"] = nav.pages
    return nav


def on_post_build(config: MkDocsConfig) -> None:
    """Write the index that language models look for: each page with its first sentence."""
    pages = (
        f"- [{page.title}]({page.url or './'}): {_first(page.markdown or '')}\n"
        for page in config.extra["pages"]
    )
    head = f"# {config.site_name}\n\n> {config.site_description}\n\n"
    Path(config.site_dir, "llms.txt").write_text(head + "".join(pages))


def _first(markdown: str) -> str:
    """Return the first sentence of a page that is no heading, code or table."""
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n", text):
        words = " ".join(block.split())
        if words and words[0] not in "#|!<-":
            return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.split(r"(?<=[.:])\s", words)[0])
    return ""
