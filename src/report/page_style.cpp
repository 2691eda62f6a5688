#include "report/page_parts.h"

namespace loratrain::report {

std::string style() {
    return R"(
body{font:14px/1.45 system-ui,"DejaVu Sans",sans-serif;color:#1c2430;background:#f5f6f8;
  max-width:1760px;margin:0 auto;padding:20px}
h1{font-size:22px;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:17px;margin:28px 0 8px}
h3{font-size:14px;margin:16px 0 6px;color:#4a5565}
.badge{display:inline-block;border-radius:4px;padding:1px 8px;color:#fff;font-size:13px;
  background:#5b6675}
.good{background:#1a7f45}.live{background:#0067a8}.bad{background:#b3261e}.wait{background:#8a5a00}
.tiles{display:flex;flex-wrap:wrap;gap:10px;margin:14px 0}
.tile{background:#fff;border:1px solid #dde1e7;border-radius:6px;padding:8px 14px}
.tile b{display:block;font-size:18px;font-weight:600}
.tile span{color:#5b6675;font-size:12px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;background:#fff;border:1px solid #dde1e7;font-size:13px}
th,td{padding:4px 10px;text-align:left;border-bottom:1px solid #eceff3;white-space:nowrap}
td.wrap{white-space:normal;overflow-wrap:anywhere;min-width:320px}
th{background:#eef1f5;font-weight:600;white-space:normal}
.note{color:#5b6675;font-size:12px;margin:4px 0}
.n{text-align:right;font-variant-numeric:tabular-nums}
tbody tr:hover{background:#f3f7fb}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(380px,1fr));gap:12px}
figure{margin:0;background:#fff;border:1px solid #dde1e7;border-radius:6px;padding:8px 8px 2px;
  box-sizing:border-box}
figcaption{font-weight:600;font-size:13px;padding-left:6px}
svg{display:block;width:100%;height:auto}
svg text{font-size:11px;fill:#4a5565}
svg .label{font-size:12px}
.grid{stroke:#e3e7ec}.minor{stroke:#f1f3f6}.axis{stroke:#8a94a3}
path{fill:none;stroke-linejoin:round}
path.trial{stroke:#5b6675;stroke-width:1;opacity:.3}path.trial:hover{opacity:1;stroke-width:2}
path.top{stroke:#0072b2;opacity:.8}path.winner{stroke:#d55e00;stroke-width:2.5;opacity:1}
circle.trial{fill:#5b6675;opacity:.45}circle.top{fill:#0072b2;opacity:.9}circle.winner{fill:#d55e00;opacity:1}
.bar{display:inline-block;height:8px;background:#0072b2;border-radius:2px;vertical-align:middle}
.line{stroke-width:1.8}.raw{stroke-width:1;opacity:.22}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:4px 0 8px;font-size:13px}
.legend i{display:inline-block;width:18px;height:4px;border-radius:2px;margin-right:6px;
  vertical-align:middle}
path.c0{stroke:#0072b2}circle.c0,rect.c0{fill:#0072b2}i.c0{background:#0072b2}
path.c1{stroke:#d55e00}circle.c1,rect.c1{fill:#d55e00}i.c1{background:#d55e00}
path.c2{stroke:#009e73}circle.c2,rect.c2{fill:#009e73}i.c2{background:#009e73}
path.c3{stroke:#cc5f9f}circle.c3,rect.c3{fill:#cc5f9f}i.c3{background:#cc5f9f}
path.c4{stroke:#e0a000}circle.c4,rect.c4{fill:#e0a000}i.c4{background:#e0a000}
path.c5{stroke:#56b4e9}circle.c5,rect.c5{fill:#56b4e9}i.c5{background:#56b4e9}
path.c6{stroke:#7b4fb5}circle.c6,rect.c6{fill:#7b4fb5}i.c6{background:#7b4fb5}
path.c7{stroke:#5b6675}circle.c7,rect.c7{fill:#5b6675}i.c7{background:#5b6675}
details{background:#fff;border:1px solid #dde1e7;border-radius:6px;padding:6px 12px;margin:8px 0}
summary{cursor:pointer;font-weight:600}
pre{overflow-x:auto;font:12px/1.4 "DejaVu Sans Mono",monospace;margin:8px 0}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:8px 0}
dt{color:#5b6675}dd{margin:0;overflow-wrap:anywhere;white-space:pre-wrap}
dd dl{margin:0}
.FAILED{color:#b3261e;font-weight:600}.DONE{color:#1a7f45}
footer{margin:28px 0 8px;color:#5b6675;font-size:12px}
)";
}

}  // namespace loratrain::report
