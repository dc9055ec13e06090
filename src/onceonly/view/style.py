"""The one style sheet of pictures, fragments and pages: colours by name, for light, dark and paper.

Colours are those of Okabe and Ito, which the colour-blind tell apart, and no colour alone says anything: each mark has
a shape of its own, and each bar a pattern or a name. Nothing is fetched.
"""

from __future__ import annotations

from typing import Final

from onceonly.view.markup import Markup, tag, verbatim

_LIGHT: Final = (
    "--oo-page:#fff;--oo-card:#f7f8f9;--oo-ink:#1d2126;--oo-dim:#565e68;--oo-line:#d5d8dc;--oo-link:#0b5394;"
    "--oo-blue:#0072b2;--oo-sky:#56b4e9;--oo-green:#00795a;--oo-orange:#b35c00;--oo-red:#b3261e;--oo-purple:#8e4585;"
    "--oo-soft:#dfe7ee"
)
_DARK: Final = (
    "--oo-page:#14171b;--oo-card:#1b1f25;--oo-ink:#e6e8eb;--oo-dim:#a3acb7;--oo-line:#343b44;--oo-link:#8ec5ff;"
    "--oo-blue:#5aa9e6;--oo-sky:#8fcbf0;--oo-green:#35c493;--oo-orange:#f0a44b;--oo-red:#ff7b72;--oo-purple:#d69ad0;"
    "--oo-soft:#2b3a48"
)
_SVG: Final = """
svg.oo{display:block;width:100%;height:auto;font:12px system-ui,"Segoe UI","Noto Sans",sans-serif;color:var(--oo-ink)}
.oo text{fill:var(--oo-ink)}.oo .dim{fill:var(--oo-dim)}.oo .end{text-anchor:end}.oo .mid{text-anchor:middle}
.oo .strong{font-weight:600}.oo .small{font-size:10.5px}
.oo .ground{fill:var(--oo-page)}
.oo .grid{stroke:var(--oo-line);stroke-width:1}.oo .idle{stroke:var(--oo-dim);stroke-width:1;stroke-dasharray:2 3}
.oo g.m{stroke-width:1.6;fill:var(--oo-page);stroke:var(--oo-ink)}.oo .unknown{stroke-dasharray:2 1.6}
.oo g.m text,.oo .skew{stroke:none;font-size:9px;font-weight:700;text-anchor:middle}.oo .skew{fill:var(--oo-red)}
.oo g.plan,.oo g.barrier,.oo g.noted,.oo g.began,.oo g.ended{stroke:var(--oo-blue)}
.oo g.vote{stroke:var(--oo-blue);fill:var(--oo-blue)}
.oo g.decision,.oo g.committed,.oo g.receipt{stroke:var(--oo-green);fill:var(--oo-green)}
.oo g.abort,.oo g.skipped,.oo g.tried,.oo g.swept{stroke:var(--oo-orange)}
.oo g.recovered{stroke:var(--oo-purple)}.oo g.doubt,.oo g.lost,.oo g.cut{stroke:var(--oo-red)}
.oo g.by_hand{stroke:var(--oo-purple);fill:var(--oo-purple)}.oo g.folded{stroke:var(--oo-dim)}
.oo g.unknown.committed{fill:var(--oo-page)}
.oo rect.b{stroke:var(--oo-dim);stroke-width:.6}.oo rect.stripe{fill:var(--oo-card);stroke:none}
.oo rect.run{fill:var(--oo-soft);stroke:none}
.oo rect.writing{fill:var(--oo-sky)}.oo rect.committing{fill:var(--oo-green)}.oo rect.folded{fill:var(--oo-line)}
.oo rect.doubt{fill:none;stroke:var(--oo-red);stroke-width:1.6;stroke-dasharray:5 3}
.oo rect.low{fill:var(--oo-blue);stroke:none}.oo rect.high{fill:var(--oo-sky);stroke:none}
.oo rect.range{fill:var(--oo-sky)}.oo .arrow{fill:none;stroke:var(--oo-dim);stroke-width:1.4}
.oo .arrow.lost,.oo .arrow.doubt{stroke:var(--oo-red);stroke-dasharray:4 3}.oo .head{fill:var(--oo-dim);stroke:none}
.oo .line{fill:none;stroke:var(--oo-blue);stroke-width:1.5}.oo .area{fill:var(--oo-soft);stroke:none}
.oo .dot{fill:var(--oo-blue)}.oo a:focus-visible{outline:2px solid var(--oo-link)}
"""
_PAGE: Final = """
.oo-page{margin:0 auto;max-width:1320px;padding:20px 24px 60px;background:var(--oo-page);color:var(--oo-ink);
font:15px/1.5 system-ui,"Segoe UI","Noto Sans",sans-serif}
.oo-page h1{font-size:22px;margin:0 0 4px}.oo-page h2{font-size:17px;margin:30px 0 8px}.oo-page h3{font-size:15px}
.oo-page a{color:var(--oo-link)}.oo-page code{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:13px;
overflow-wrap:anywhere}
.oo-verdict{border:1px solid var(--oo-line);border-left:6px solid var(--oo-blue);border-radius:6px;padding:10px 16px;
margin:14px 0;background:var(--oo-card)}
.oo-verdict p{margin:4px 0}.oo-verdict .oo-level{font-weight:700;text-transform:uppercase;letter-spacing:.04em}
.oo-verdict.safe{border-left-color:var(--oo-green)}.oo-verdict.stuck{border-left-color:var(--oo-red)}
.oo-verdict.waiting,.oo-verdict.unknown{border-left-color:var(--oo-orange)}
.oo-verdict pre{margin:6px 0;padding:8px 10px;border:1px solid var(--oo-line);white-space:pre-wrap;
overflow-wrap:anywhere;font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:13px}
.oo-scroll{overflow-x:auto}.oo-scroll svg.oo{min-width:760px}.oo-note,.oo-dim{color:var(--oo-dim)}
.oo-table{border-collapse:collapse;font-size:13px;width:100%}
.oo-table.oo-narrow{width:auto}.oo-table.oo-narrow :is(td,th){padding-right:24px}
.oo-table caption{text-align:left;font-weight:600;padding:6px 0}
.oo-table th{text-align:left;color:var(--oo-dim);font-weight:600}
.oo-table td,.oo-table th{border-bottom:1px solid var(--oo-line);padding:3px 10px 3px 0;vertical-align:top}
.oo-table .num{text-align:right;font-variant-numeric:tabular-nums}.oo-table td{overflow-wrap:anywhere}
.oo-table td:first-child,.oo-table time{white-space:nowrap}
@media(min-width:601px){.oo-table td{min-width:3.2em}}
@media screen and (max-width:600px){.oo-scroll .oo-table{min-width:680px}}
.oo-state::before{content:"\\25cb\\a0"}.oo-state.complete::before,.oo-state.committed::before{content:"\\25cf\\a0"}
.oo-state.decided::before,.oo-state.repairing::before{content:"?\\a0"}.oo-state.decided,.oo-state.repairing{
color:var(--oo-red);font-weight:600}.oo-state.aborted::before{content:"\\2715\\a0"}
.oo-figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:14px}
.oo-figures figure{margin:0}
.oo-legend{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;padding:0;margin:8px 0;font-size:13px}
.oo-legend li{display:flex;align-items:center;gap:6px}.oo-legend svg.oo{width:18px;height:18px}
@media print{.oo-page{max-width:none;padding:0}.oo-page section,.oo-verdict,.oo-table tr{break-inside:avoid}
.oo-page details{break-inside:avoid}
.oo-page details::details-content{content-visibility:visible;block-size:auto}
.oo-scroll{overflow:visible}.oo-scroll svg.oo{min-width:0}}
"""
_THEME: Final = (
    f".oo,.oo-page{{color-scheme:light dark;{_LIGHT}}}"
    f"@media screen and (prefers-color-scheme:dark){{.oo,.oo-page{{{_DARK}}}}}"
    f':root[data-theme="light"] .oo,:root[data-theme="light"] .oo-page{{color-scheme:light;{_LIGHT}}}'
    f'@media screen{{:root[data-theme="dark"] .oo,:root[data-theme="dark"] .oo-page{{color-scheme:dark;{_DARK}}}}}'
)
# JupyterLab colours the tables of what it shows by its own theme, whatever the desktop's.
_NOTEBOOK: Final = (
    f'[data-jp-theme-light="true"] :is(.oo,.oo-page){{color-scheme:light;{_LIGHT}}}'
    f'@media screen{{[data-jp-theme-light="false"] :is(.oo,.oo-page){{color-scheme:dark;{_DARK}}}}}'
)
PICTURE: Final = f"{_THEME}{_SVG}".replace("\n", "")
"""What an SVG needs that stands alone."""
PAGE: Final = f"{_THEME}{_NOTEBOOK}{_SVG}{_PAGE}".replace("\n", "")
"""What a page needs, and all SVG in it."""


def sheet(css: str) -> Markup:
    """Return a ``<style>`` element of one of the above."""
    return tag("style", verbatim(css))
