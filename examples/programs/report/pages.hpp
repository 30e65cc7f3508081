// SPDX-License-Identifier: Apache-2.0
// A report as files: HTML, SVG, Markdown, CSV.
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
  std::string command;  ///< that made the report
  Material const& material;
  Figures const& figures;
};

/// One page without references to anything outside.
std::string html_page(Report const& report);
/// The page of results that a file holds, as `report FILE --html PAGE` makes it. Throws Error(data) as
/// `take_json` does.
std::string html_page_of(std::filesystem::path const& file, results::Row const& json,
                         std::string const& command);
/// Tables in Markdown; figures by their files in `svg_folder`, as seen from `beside`, unless that is empty.
std::string markdown_page(Report const& report, std::filesystem::path const& beside,
                          std::filesystem::path const& svg_folder);
/// All rows, measured, planned and of other programs, by the names of result files, with their source and
/// the program that made them; null is empty.
std::string csv_text(Material const& material);
/// A figure as files of their own, one a panel: "throughput.svg", "throughput-2.svg".
struct SvgFile {
  std::string name, text;
};
std::vector<SvgFile> svg_files(Figure const& figure);

}  // namespace reporting
}  // namespace programs
