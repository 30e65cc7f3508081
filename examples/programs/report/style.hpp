// SPDX-License-Identifier: Apache-2.0
// Defines the styles of pages and figures, and the script of a page. The colours are distinguishable for
// colour-blind readers (after Okabe and Ito, darkened on white). Every fact that a colour shows also has
// another sign, such as a shape.
#pragma once

namespace programs {
namespace reporting {

inline constexpr char colours[] = R"css(
:root{--paper:#fff;--ink:#1b1d21;--muted:#5b626d;--grid:#e3e6ea;--soft:#f5f6f8;--c1:#0067a6;--c2:#c25100;--c3:#007a5a;--c4:#a6437c;--c5:#7d6700;--c6:#4d8fbf}
@media (prefers-color-scheme:dark){:root{--paper:#15171b;--ink:#e7e9ec;--muted:#9ba2ad;--grid:#2d3138;--soft:#1c1f24;--c1:#5ab1ea;--c2:#f08c4f;--c3:#40c49c;--c4:#e08fbb;--c5:#dcc04e;--c6:#a3b8ff}}
@media print{:root{--paper:#fff;--ink:#000;--muted:#444;--grid:#d5d8dc;--soft:#fff;--c1:#0067a6;--c2:#c25100;--c3:#007a5a;--c4:#a6437c;--c5:#7d6700;--c6:#4d8fbf}}
)css";

inline constexpr char figure_style[] = R"css(
svg text{fill:var(--ink);font:12px system-ui,-apple-system,"Segoe UI","Liberation Sans",Arial,sans-serif}
svg .t{fill:var(--muted);font-size:11px;font-variant-numeric:tabular-nums}svg .h{font-weight:600}svg .v{font-variant-numeric:tabular-nums}
svg .k{font-size:11px}svg .g{stroke:var(--grid)}svg .a{stroke:var(--muted)}svg .w{stroke:var(--ink);stroke-width:1.2}
svg .l{fill:none;stroke-width:2;stroke-linejoin:round}svg .ideal{fill:none;stroke:var(--muted);stroke-width:1.3;stroke-dasharray:5 4}
svg .front{fill:none;stroke:var(--ink);stroke-width:1.5}svg .target{stroke:var(--ink);stroke-width:2.2}
svg .band{fill-opacity:.2}svg .u{fill-opacity:.45}svg .hollow{fill:var(--paper);stroke-width:1.6}
svg .halo{paint-order:stroke;stroke:var(--paper);stroke-width:3px}
svg .d2{stroke-dasharray:7 3}svg .d3{stroke-dasharray:2 3}svg .d4{stroke-dasharray:10 3 2 3}svg .d5{stroke-dasharray:4 4}svg .d6{stroke-dasharray:12 4}
svg .f1{fill:var(--c1)}svg .f2{fill:var(--c2)}svg .f3{fill:var(--c3)}svg .f4{fill:var(--c4)}svg .f5{fill:var(--c5)}svg .f6{fill:var(--c6)}
svg .s1{stroke:var(--c1)}svg .s2{stroke:var(--c2)}svg .s3{stroke:var(--c3)}svg .s4{stroke:var(--c4)}svg .s5{stroke:var(--c5)}svg .s6{stroke:var(--c6)}
svg .c1{fill:var(--c1)}svg .c2{fill:var(--c2)}svg .c3{fill:var(--c3)}svg .c4{fill:var(--c4)}svg .c5{fill:var(--c5)}svg .c6{fill:var(--c6)}
)css";

inline constexpr char page_style[] = R"css(
*{box-sizing:border-box}html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:1320px;padding:28px 20px 60px;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI","Liberation Sans",Arial,sans-serif}
h1{font-size:26px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}h2{font-size:18px;margin:44px 0 8px}
p,figcaption,.note{color:var(--muted);margin:0 0 10px;max-width:78ch}a{color:var(--c1)}
nav{margin:10px 0 0}nav a{margin-right:16px;text-decoration:none}nav a:hover{text-decoration:underline}
ul.verdict{list-style:none;margin:20px 0 0;padding:12px 16px;background:var(--soft);border-left:3px solid var(--c1)}ul.verdict li{margin:3px 0;overflow-wrap:anywhere}
.figures{display:grid;gap:36px 40px;grid-template-columns:repeat(auto-fill,minmax(min(100%,360px),1fr))}
figure{margin:0;break-inside:avoid;min-width:0}figure h3{font-size:15px;margin:0 0 2px}figcaption{font-size:13px;line-height:1.4}
.panels{display:grid;gap:20px 32px;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr))}figure.wide{grid-column:1/-1}
svg{display:block;width:100%;height:auto;max-width:520px}
.scroll{overflow-x:auto;border-bottom:1px solid var(--grid)}
table{border-collapse:collapse;font-size:13px;line-height:1.35;min-width:100%}
th,td{padding:5px 10px;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid)}
thead th{vertical-align:bottom;font-weight:600;border-bottom:1.5px solid var(--muted);white-space:nowrap}
th small{display:block;color:var(--muted);font-weight:400;font-size:11px}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.best{font-weight:700}td.best::after{content:"*"}td.code{overflow-wrap:anywhere;min-width:26ch}code{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
td.long{min-width:22ch;max-width:52ch;overflow-wrap:anywhere}tr.u td{background:var(--soft)}
th button{all:unset;cursor:pointer;font-weight:600}th button:focus-visible,.more:focus-visible,summary:focus-visible{outline:2px solid var(--c1);outline-offset:2px}
th[aria-sort] button::after{content:" \2191"}th[aria-sort=descending] button::after{content:" \2193"}
.tools{display:flex;gap:12px;align-items:center;margin:0 0 8px;flex-wrap:wrap}
.tools input{font:inherit;font-size:14px;padding:5px 9px;border:1px solid var(--muted);border-radius:4px;background:var(--paper);color:inherit;width:240px;max-width:100%}
.more{font:inherit;font-size:14px;padding:5px 10px;border:1px solid var(--muted);border-radius:4px;background:var(--soft);color:inherit;cursor:pointer}
.count{color:var(--muted);font-size:13px}summary{cursor:pointer;color:var(--c1)}
footer{margin-top:44px;color:var(--muted);font-size:13px}footer code{overflow-wrap:anywhere}
@media (max-width:520px){body{padding:18px 14px 40px;font-size:15px}h1{font-size:22px}nav a{display:inline-block;padding:3px 0}
.scroll td:first-child,.scroll th:first-child{position:sticky;left:0;background:var(--paper)}.scroll tr.u td:first-child{background:var(--soft)}}
@media print{@page{size:A4 landscape;margin:12mm}body{max-width:none;padding:0;font-size:10pt}nav,.tools,summary{display:none}
.scroll{overflow:visible}table{font-size:7pt;min-width:0;width:100%}th,td{padding:1.5pt 3pt}th small{font-size:6pt}thead th,thead th.n{white-space:normal;overflow-wrap:anywhere;hyphens:auto}
.figures,.wide .panels{grid-template-columns:repeat(3,1fr);gap:14pt}.panels{grid-template-columns:1fr}figcaption{font-size:7.5pt}h2{break-after:avoid;margin-top:18pt}tr{break-inside:avoid}td.code,td.long{min-width:0}code{font-size:6.5pt}a{color:inherit}}
)css";

// The script of an HTML report. It sorts a table by a column; cells with `-` are always last. It shows only
// the rows with the words of the search box. It shows the rows that long tables hide at first. It opens
// folded sections before the page is printed.
inline constexpr char page_script[] = R"js(
'use strict';
addEventListener('beforeprint',()=>{for(const d of document.querySelectorAll('details'))d.open=true});
for(const part of document.querySelectorAll('.table')){
  const table=part.querySelector('table'),head=[...table.tHead.rows[0].cells],first=table.tBodies[0],rest=table.tBodies[1];
  const rows=[...table.querySelectorAll('tbody tr')],shown=first.rows.length;
  const more=part.querySelector('.more'),box=part.querySelector('input'),count=part.querySelector('.count');
  let order=rows,all=!rest;
  const show=()=>{
    const words=box?box.value.toLowerCase().split(/\s+/).filter(w=>w):[];
    const kept=words.length?order.filter(r=>{const t=r.textContent.toLowerCase();return words.every(w=>t.includes(w))}):order;
    const limit=all?kept.length:Math.min(shown,kept.length);
    first.replaceChildren(...kept.slice(0,limit));
    if(rest)rest.replaceChildren(...kept.slice(limit));
    if(count)count.textContent=kept.length===rows.length&&limit===rows.length?rows.length+' rows':limit+' of '+kept.length+(words.length?' matching':'')+' rows';
    if(more)more.hidden=limit===kept.length;
  };
  if(more)more.addEventListener('click',()=>{all=true;show()});
  if(box)box.addEventListener('input',show);
  head.forEach((cell,at)=>{
    const button=cell.querySelector('button');
    if(!button)return;
    button.addEventListener('click',()=>{
      const number=cell.classList.contains('n');
      const down=cell.getAttribute('aria-sort')?cell.getAttribute('aria-sort')==='ascending':number;
      for(const other of head)other.removeAttribute('aria-sort');
      cell.setAttribute('aria-sort',down?'descending':'ascending');
      const key=r=>{const t=r.cells[at].textContent;if(t==='-'||t==='')return null;if(!number)return t;const v=parseFloat(t.replace(/[~,*]/g,''));return isNaN(v)?null:v};
      const keys=new Map(rows.map(r=>[r,key(r)]));
      order=[...rows].sort((a,b)=>{
        const x=keys.get(a),y=keys.get(b);
        if(x===null||y===null)return (x===null)-(y===null);
        const d=number?x-y:x.localeCompare(y,'en',{numeric:true});
        return down?-d:d;
      });
      show();
    });
  });
}
)js";

}  // namespace reporting
}  // namespace programs
