#include "report/page_parts.h"

namespace loratrain::report {

std::string style() {
    return R"(
:root{color-scheme:light dark;--ink:#1c2430;--soft:#4a5565;--dim:#5b6675;--page:#f5f6f8;--card:#fff;
  --edge:#dde1e7;--rule:#eceff3;--head:#eef1f5;--hover:#f3f7fb;--grid:#e3e7ec;--minor:#f1f3f6;
  --axis:#8a94a3;--idle:#e9ebef;--good:#1a7f45;--bad:#b3261e;--c0:#0072b2;--c1:#d55e00;
  --c2:#009e73;--c3:#cc5f9f;--c4:#e0a000;--c5:#56b4e9;--c6:#7b4fb5;--c7:#5b6675}
@media (prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#b3bcc9;--dim:#98a3b3;--page:#12161c;
  --card:#1b212a;--edge:#333c49;--rule:#262e39;--head:#242c37;--hover:#222b37;--grid:#2c3541;
  --minor:#232a34;--axis:#78859a;--idle:#2a323e;--good:#4cc57f;--bad:#ff7a70;--c0:#4aa8e0;
  --c1:#f0843c;--c2:#2cc498;--c3:#e18abd;--c4:#f0b92e;--c5:#8fd0f7;--c6:#a98be0;--c7:#9aa6b6}}
body{font:14px/1.45 system-ui,"DejaVu Sans",sans-serif;color:var(--ink);background:var(--page);
  max-width:1760px;margin:0 auto;padding:20px}
h1{font-size:22px;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:17px;margin:28px 0 8px}
h3{font-size:14px;margin:16px 0 6px;color:var(--soft)}
.badge{display:inline-block;border-radius:4px;padding:1px 8px;color:#fff;font-size:13px;
  background:#5b6675}
.good{background:#1a7f45}.live{background:#0067a8}.bad{background:#b3261e}.wait{background:#8a5a00}
.tiles{display:flex;flex-wrap:wrap;gap:10px;margin:14px 0}
.tile{background:var(--card);border:1px solid var(--edge);border-radius:6px;padding:8px 14px}
.tile b{display:block;font-size:18px;font-weight:600}
.tile span{color:var(--dim);font-size:12px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;background:var(--card);border:1px solid var(--edge);font-size:13px}
th,td{padding:4px 10px;text-align:left;border-bottom:1px solid var(--rule);white-space:nowrap}
td.wrap{white-space:normal;overflow-wrap:anywhere;min-width:320px}
th{background:var(--head);font-weight:600;white-space:normal}
.note{color:var(--dim);font-size:12px;margin:4px 0}
.n{text-align:right;font-variant-numeric:tabular-nums}
tbody tr:hover{background:var(--hover)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(380px,100%),1fr));gap:12px}
figure{margin:0;background:var(--card);border:1px solid var(--edge);border-radius:6px;
  padding:8px 8px 2px;box-sizing:border-box}
figcaption{font-weight:600;font-size:13px;padding-left:6px}
svg{display:block;width:100%;height:auto}
svg text{font-size:11px;fill:var(--soft)}
svg .label{font-size:12px}
.grid{stroke:var(--grid)}.minor{stroke:var(--minor)}.axis{stroke:var(--axis)}
rect.paper{fill:var(--card)}rect.idle{fill:var(--idle)}rect.step{fill:var(--ink)}
svg text.title{fill:var(--ink)}
path{fill:none;stroke-linejoin:round}
path.trial{stroke:var(--c7);stroke-width:1;opacity:.3}path.trial:hover{opacity:1;stroke-width:2}
path.top{stroke:var(--c0);opacity:.8}path.winner{stroke:var(--c1);stroke-width:2.5;opacity:1}
circle.trial{fill:var(--c7);opacity:.45}circle.top{fill:var(--c0);opacity:.9}
circle.winner{fill:var(--c1);opacity:1}
.bar{display:inline-block;height:8px;background:var(--c0);border-radius:2px;vertical-align:middle}
.line{stroke-width:1.8}.raw{stroke-width:1;opacity:.22}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:4px 0 8px;font-size:13px}
.legend i{display:inline-block;width:18px;height:4px;border-radius:2px;margin-right:6px;
  vertical-align:middle}
path.c0{stroke:var(--c0)}circle.c0,rect.c0{fill:var(--c0)}i.c0{background:var(--c0)}
path.c1{stroke:var(--c1)}circle.c1,rect.c1{fill:var(--c1)}i.c1{background:var(--c1)}
path.c2{stroke:var(--c2)}circle.c2,rect.c2{fill:var(--c2)}i.c2{background:var(--c2)}
path.c3{stroke:var(--c3)}circle.c3,rect.c3{fill:var(--c3)}i.c3{background:var(--c3)}
path.c4{stroke:var(--c4)}circle.c4,rect.c4{fill:var(--c4)}i.c4{background:var(--c4)}
path.c5{stroke:var(--c5)}circle.c5,rect.c5{fill:var(--c5)}i.c5{background:var(--c5)}
path.c6{stroke:var(--c6)}circle.c6,rect.c6{fill:var(--c6)}i.c6{background:var(--c6)}
path.c7{stroke:var(--c7)}circle.c7,rect.c7{fill:var(--c7)}i.c7{background:var(--c7)}
details{background:var(--card);border:1px solid var(--edge);border-radius:6px;padding:6px 12px;margin:8px 0}
summary{cursor:pointer;font-weight:600}
pre{overflow-x:auto;font:12px/1.4 "DejaVu Sans Mono",monospace;margin:8px 0}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:8px 0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere;white-space:pre-wrap;min-width:0}
dd dl{margin:0}
.FAILED{color:var(--bad);font-weight:600}.DONE{color:var(--good)}
footer{margin:28px 0 8px;color:var(--dim);font-size:12px}
@media (max-width:1000px){body{padding:12px}table{font-size:10px}
  th,td{padding:3px 2px;white-space:normal}td.n{white-space:nowrap}
  td:first-child,td.wrap{overflow-wrap:anywhere;min-width:0}
  dl{grid-template-columns:minmax(80px,max-content) 1fr}}
)";
}

}  // namespace loratrain::report
