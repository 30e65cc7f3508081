// SPDX-License-Identifier: Apache-2.0
// Writes a report as HTML, SVG, Markdown or CSV.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/figures.hpp"
#include "report/rows.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

inline constexpr char default_title[] = "Training runs compared";

struct Report {
  std::string title;
  std::string command;  ///< the command that made the report
  Inputs const& inputs;
  Figures const& figures;
};

/// Returns one self-contained HTML page.
std::string html_page(Report const& report);
/// Returns the page for a result file, as `report FILE --html PAGE` makes it. Throws Error(data) as
/// `take_json` does.
std::string html_page_of(std::filesystem::path const& file, results::Row const& json,
                         std::string const& command);
/// Returns tables in Markdown. Figures link to files in `svg_folder`, relative to `beside`, unless it is
/// empty.
std::string markdown_page(Report const& report, std::filesystem::path const& beside,
                          std::filesystem::path const& svg_folder);
/// Returns all rows (measured, planned, and of other programs) with the column names of result files, plus
/// their source and the program that made them. Null is an empty cell.
std::string csv_text(Inputs const& inputs);
/// One panel of a figure as an SVG file: "throughput.svg", "throughput-2.svg".
struct SvgFile {
  std::string name, text;
};
std::vector<SvgFile> svg_files(Figure const& figure);

}  // namespace reporting
}  // namespace programs
