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
/// Returns the HTML page that `report FILE --html PAGE` would write for a result file. `file` is the path of
/// the result file, `json` its contents, and `command` the command that the page names. Throws Error(data) if
/// the contents are not valid.
std::string html_page_of(std::filesystem::path const& file, results::Row const& json,
                         std::string const& command);
/// Returns the report in Markdown. `page` is the folder of the Markdown file. Figures become links to files
/// in `svg_folder`, relative to `page`. If `svg_folder` is empty, there are no figures.
std::string markdown_page(Report const& report, std::filesystem::path const& page,
                          std::filesystem::path const& svg_folder);
/// Returns all rows as CSV: measured rows, planned rows (from the program `plan`), and rows of other
/// programs. The columns have the same names as in result files. Two more columns give the source file and
/// the program. An unknown value is an empty cell.
std::string csv_text(Inputs const& inputs);
/// One panel of a figure as an SVG file. `name` is the file name, such as "throughput.svg" or
/// "throughput-2.svg".
struct SvgFile {
  std::string name, text;
};
std::vector<SvgFile> svg_files(Figure const& figure);

}  // namespace reporting
}  // namespace programs
