// SPDX-License-Identifier: Apache-2.0
// Writes a report as Markdown and as CSV.
#include <algorithm>
#include <system_error>

#include "tessera/version.hpp"

#include "cli/values.hpp"
#include "report/judge.hpp"
#include "report/pages.hpp"
#include "report/tables.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

/// Returns the text, escaped so that Markdown shows it unchanged on one line.
std::string plain(std::string const& text) {
  std::string out;
  for (char const c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += ' ';
    else {
      if (std::string_view("\\`*_[]|~#!").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

/// Returns a name or command as Markdown code. If it has characters that Markdown code cannot contain,
/// returns escaped text.
std::string code(std::string const& text) {
  bool const simple = !text.empty() && std::none_of(text.begin(), text.end(), [](char c) {
    return c == '`' || c == '|' || c == '<' || c == '&' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  return simple ? "`" + text + "`" : plain(text);
}

bool is_name(std::string const& text) {
  return text.find('_') != text.npos && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("_-.,=/").find(c) != std::string_view::npos;
         });
}

std::string markdown_table(Table const& table) {
  std::string out = "|", rule = "|";
  for (Column const& column : table.columns) {
    out += " " + plain(column.header) +
           (column.unit.empty() ? "" : (column.header.empty() ? "" : ", ") + plain(column.unit)) + " |";
    rule += column.number ? "---:|" : "---|";
  }
  out += "\n" + rule + "\n";
  for (std::size_t row = 0; row < table.cells.size(); ++row) {
    out += "|";
    for (std::size_t column = 0; column < table.columns.size(); ++column) {
      std::string const& text = table.cells[row][column];
      bool const command = table.commands && column + 1 == table.columns.size();
      bool const best = row < table.best.size() && std::find(table.best[row].begin(), table.best[row].end(),
                                                             column) != table.best[row].end();
      std::string const words = command || is_name(text) ? code(text) : plain(text);
      out += " " + (best ? "**" + words + "**" : words) + " |";
    }
    out += "\n";
  }
  return out;
}

std::string section(Table const& table) {
  if (table.empty()) return {};
  return "## " + plain(table.title) + "\n\n" + (table.note.empty() ? "" : plain(table.note) + "\n\n") +
         markdown_table(table) + "\n";
}

/// Returns the path with percent-encoding, for a link.
std::string in_link(std::string const& path) {
  constexpr char digits[] = "0123456789ABCDEF";
  std::string out;
  for (char const c : path) {
    auto const byte = static_cast<unsigned char>(c);
    bool const safe = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      std::string_view("/._-").find(c) != std::string_view::npos;
    if (safe)
      out += c;
    else
      out.append(1, '%').append(1, digits[byte >> 4]).append(1, digits[byte & 15]);
  }
  return out;
}

std::string csv_cell(std::string const& text) {
  if (text.find_first_of(",\"\r\n") == text.npos && !text.starts_with(' ') && !text.ends_with(' '))
    return text;
  std::string quoted = "\"";
  for (char const c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

}  // namespace

std::string markdown_page(Report const& report, std::filesystem::path const& page,
                          std::filesystem::path const& svg_folder) {
  Inputs const& inputs = report.inputs;
  std::string out = "# " + plain(report.title) + "\n\n";
  for (std::string const& line : verdict(inputs)) out += "- " + plain(line) + "\n";
  out += "\n";
  if (!svg_folder.empty() && !report.figures.drawn.empty()) {
    out += "## Figures\n\n";
    for (Figure const& figure : report.figures.drawn) {
      for (SvgFile const& panel : svg_files(figure)) {
        std::error_code code;
        std::filesystem::path const file = svg_folder / panel.name;
        std::filesystem::path const from = page.has_parent_path() ? page.parent_path() : ".";
        std::filesystem::path seen = std::filesystem::relative(file, from, code);
        if (code || seen.empty()) seen = file;
        out += "![" + plain(figure.title) + "](" + in_link(seen.generic_string()) + ")\n\n";
      }
      out += plain(figure.title) + ". " + plain(figure.note) + "\n\n";
    }
  }
  if (!report.figures.left_out.empty()) {
    std::string list;
    for (LeftOut const& one : report.figures.left_out)
      list += (list.empty() ? "" : "; ") + plain(one.title) + " (" + plain(one.reason) + ")";
    out += "Figures left out because data is missing: " + list + ".\n\n";
  }
  out += section(results_table(inputs)) + section(plans_table(inputs)) + section(published_table(inputs)) +
         section(rivals_table(inputs)) + section(sources_table(inputs)) + section(environment_table(inputs)) +
         section(repeat_table(inputs));
  return out + "MB are 2^20 bytes. - was not measured. " + plain("~") +
         " was disturbed by other programs, or varies by more than 5% from step to step or repeat to repeat. "
         "Bold is the best of its model; rows that differ by less than they vary are equally good. Made by "
         "tessera " +
         version + ": " + code(report.command) + "\n";
}

std::string csv_text(Inputs const& inputs) {
  std::string out = "source,program,file";
  for (std::size_t at = 0; at < static_cast<std::size_t>(Word::count); ++at)
    out += "," + key_of(static_cast<Word>(at));
  for (std::size_t at = 0; at < static_cast<std::size_t>(Number::count); ++at)
    (out += ",").append(column_of(static_cast<Number>(at)).name);
  out += ",unsteady\n";
  auto const add = [&](Row const& row, std::string const& program) {
    Source const& source = inputs.sources[row.source];
    out += csv_cell(source.label) + "," + csv_cell(program) + "," + csv_cell(source.path);
    for (std::string const& word : row.words) out += "," + csv_cell(word);
    for (auto const& number : row.numbers) out += "," + (number ? cli::exact(*number) : std::string());
    out += std::string(",") + (!row.unsteady ? "" : *row.unsteady ? "true" : "false") + "\n";
  };
  for (auto const* const rows : {&inputs.rows, &inputs.plans})
    for (Row const& row : *rows) add(row, inputs.sources[row.source].kind_text());
  for (Rival const& rival : inputs.rivals) add(rival.row, rival.program);
  return out;
}

}  // namespace reporting
}  // namespace programs
