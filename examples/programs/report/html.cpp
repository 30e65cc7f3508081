// SPDX-License-Identifier: Apache-2.0
// Writes the HTML page of a report, and its figures as SVG files.
#include <algorithm>

#include "tessera/version.hpp"

#include "cli/values.hpp"
#include "report/judge.hpp"
#include "report/pages.hpp"
#include "report/reading.hpp"
#include "report/style.hpp"
#include "report/tables.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

constexpr std::size_t rows_at_first = 100;

/// Returns the text with HTML's special characters escaped and "+-" replaced by a plus-minus sign.
std::string polished(std::string const& text) {
  std::string out = escaped(text);
  for (std::size_t at = out.find("+-"); at != out.npos; at = out.find("+-", at)) out.replace(at, 2, "&#177;");
  return out;
}

std::string cell_tag(Table const& table, std::size_t row, std::size_t column) {
  std::string styles = table.columns[column].number ? "n" : "";
  bool const best = row < table.best.size() && std::find(table.best[row].begin(), table.best[row].end(),
                                                         column) != table.best[row].end();
  if (best) styles += styles.empty() ? "best" : " best";
  bool const command = table.commands && column + 1 == table.columns.size();
  std::string const& text = table.cells[row][column];
  if (command)
    styles = "code";
  else if (text.size() > 30)
    styles += styles.empty() ? "long" : " long";
  std::string out = styles.empty() ? "<td>" : "<td class='" + styles + "'>";
  return out + (command ? "<code>" + escaped(text) + "</code>" : escaped(text)) + "</td>";
}

std::string table_html(Table const& table) {
  bool const sortable = table.cells.size() > 1 && table.name != "environment";
  std::size_t const all = table.cells.size();
  std::string out = "<div class='table'>";
  if (all > 12 && table.name != "environment")
    out +=
        "<div class='tools'><input type='search' placeholder='Rows that hold ...' aria-label='Show rows that "
        "hold'>" +
        (all > rows_at_first ? "<button class='more'>Show all " +
                                   cli::grouped(static_cast<std::int64_t>(all)) + " rows</button>"
                             : std::string()) +
        "<span class='count'>" + cli::grouped(static_cast<std::int64_t>(std::min(all, rows_at_first))) +
        " of " + cli::grouped(static_cast<std::int64_t>(all)) + " rows</span></div>";
  out += "<div class='scroll'><table><thead><tr>";
  for (Column const& column : table.columns) {
    std::string const words = polished(column.header);
    out += column.number ? "<th class='n' scope='col'>" : "<th scope='col'>";
    out += sortable && !words.empty() ? "<button>" + words + "</button>" : words;
    if (!column.unit.empty()) out += "<small>" + escaped(column.unit) + "</small>";
    out += "</th>";
  }
  out += "</tr></thead><tbody>";
  for (std::size_t row = 0; row < all; ++row) {
    if (row == rows_at_first && table.name != "environment") out += "</tbody><tbody hidden>";
    out += row < table.unsteady.size() && table.unsteady[row] ? "<tr class='u'>" : "<tr>";
    for (std::size_t column = 0; column < table.columns.size(); ++column) out += cell_tag(table, row, column);
    out += "</tr>\n";
  }
  return out + "</tbody></table></div></div>\n";
}

/// Returns the style with each CSS variable replaced by its value in the light or the dark theme. SVG
/// programs other than browsers do not support variables.
std::string in_colours(std::string style, bool dark) {
  std::string_view all = colours;
  if (dark) all.remove_prefix(all.find("(prefers-color-scheme:dark)"));
  for (std::size_t at = style.find("var("); at != style.npos; at = style.find("var(", at)) {
    std::size_t const end = style.find(')', at);
    std::size_t const value = all.find(style.substr(at + 4, end - at - 4) + ":") + end - at - 3;
    style.replace(at, end + 1 - at, all.substr(value, all.find_first_of(";}", value) - value));
  }
  return style;
}

std::string section(Table const& table, bool collapsed) {
  if (table.empty()) return {};
  std::string out = "<section id='" + table.name + "'><h2>" + escaped(table.title) + "</h2>";
  if (!table.note.empty()) out += "<p>" + polished(table.note) + "</p>";
  if (collapsed)
    out += "<details><summary>" + cli::grouped(static_cast<std::int64_t>(table.cells.size())) +
           " lines</summary>";
  return out + table_html(table) + (collapsed ? "</details>" : "") + "</section>\n";
}

}  // namespace

std::string html_page(Report const& report) {
  Inputs const& inputs = report.inputs;
  Table const results = results_table(inputs), plans = plans_table(inputs), rivals = rivals_table(inputs),
              environment = environment_table(inputs);
  Table const repeat = repeat_table(inputs), sources = sources_table(inputs),
              published = published_table(inputs);
  std::string out =
      "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
      "<meta name='viewport' content='width=device-width,initial-scale=1'><meta name='color-scheme' "
      "content='light dark'>"
      "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src "
      "'unsafe-inline'\"><title>" +
      escaped(report.title) + "</title><style>" + colours + figure_style + page_style +
      "</style><noscript><style>tbody[hidden]{display:table-row-group}.tools{display:none}</style></"
      "noscript></head><body>\n";
  out += "<header><h1>" + escaped(report.title) + "</h1><nav>";
  auto const link = [&](char const* name, char const* words, bool there) {
    if (there) out += std::string("<a href='#") + name + "'>" + words + "</a>";
  };
  link("figures", "Figures", !report.figures.drawn.empty());
  link("results", "Results", !results.empty());
  link("plans", "Plans", !plans.empty());
  link("published", "Published figures", !published.empty());
  link("rivals", "Other programs", !rivals.empty());
  link("sources", "Sources", true);
  link("environment", "Environment", !environment.empty());
  link("repeat", "Repeat", !repeat.empty());
  out += "</nav></header>\n";
  if (auto const lines = verdict(inputs); !lines.empty()) {
    out += "<ul class='verdict'>";
    for (std::string const& line : lines) out += "<li>" + polished(line) + "</li>";
    out += "</ul>\n";
  }
  if (!report.figures.drawn.empty()) {
    out += "<section id='figures'><h2>Figures</h2><div class='figures'>";
    for (Figure const& figure : report.figures.drawn) {
      out += "<figure id='figure-" + escaped(figure.name) +
             (figure.panels.size() > 1 ? "' class='wide'" : "'") + "><h3>" + escaped(figure.title) + "</h3>" +
             (figure.note.empty() ? "" : "<figcaption>" + escaped(figure.note) + "</figcaption>") +
             "<div class='panels'>";
      for (std::string const& panel : figure.panels) out += panel;
      out += "</div></figure>\n";
    }
    out += "</div></section>\n";
  }
  if (!report.figures.left_out.empty()) {
    out += "<p class='note' style='margin-top:26px'>Left out because data is missing: ";
    std::string list;
    for (LeftOut const& one : report.figures.left_out)
      list += (list.empty() ? "" : "; ") + escaped(one.title) + " (" + escaped(one.reason) + ")";
    out += list + ".</p>\n";
  }
  out += section(results, false) + section(plans, false) + section(published, false) +
         section(rivals, false) + section(sources, false) + section(environment, false) +
         section(repeat, repeat.cells.size() > 8);
  out +=
      "<footer><p>MB are 2^20 bytes. - was not measured. ~ was disturbed by other programs, or varies by "
      "more than 5% from step to step or repeat to repeat, and its row is shaded. * is the best of its "
      "model; rows that differ by less than they vary are equally good. Made by "
      "tessera " +
      escaped(version) + ": <code>" + escaped(report.command) + "</code></p></footer>\n<script>" +
      page_script + "</script></body></html>\n";
  return out;
}

std::string html_page_of(std::filesystem::path const& file, results::Row const& json,
                         std::string const& command) {
  Inputs inputs;
  add_json(files::path_text(file), json, inputs);
  name_sources(inputs.sources);
  Figures const figures = figures_of(inputs);
  return html_page({default_title, command, inputs, figures});
}

std::vector<SvgFile> svg_files(Figure const& figure) {
  // The style has a second part with dark colours, for a page with a dark theme. Programs without support for
  // media queries ignore this part.
  std::string const paper = "svg .paper{fill:var(--paper)}\n";
  static std::string const style = "<style>" + in_colours(figure_style + paper, false) +
                                   "@media (prefers-color-scheme:dark){" +
                                   in_colours(figure_style + paper, true) + "}</style>";
  std::vector<SvgFile> files;
  for (std::string const& panel : figure.panels) {
    SvgFile file{figure.name + (files.empty() ? "" : "-" + std::to_string(files.size() + 1)) + ".svg", panel};
    file.text.insert(panel.find('>') + 1, "<title>" + escaped(figure.title) + "</title>" + style +
                                              "<rect width='100%' height='100%' fill='#fff' class='paper'/>");
    file.text += "\n";
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace reporting
}  // namespace programs
