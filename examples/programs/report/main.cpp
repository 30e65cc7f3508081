// SPDX-License-Identifier: Apache-2.0
// The program `report`: makes pages, figures and tables from the result files of the other programs.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/utf8.hpp"

#include "cli/command_line.hpp"
#include "cli/outputs.hpp"
#include "cli/program.hpp"
#include "report/figures.hpp"
#include "report/pages.hpp"
#include "report/reading.hpp"
#include "report/rows.hpp"
#include "results/published.hpp"

namespace cli = programs::cli;
namespace fs = std::filesystem;

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

constexpr char examples[] = R"(Examples:
  report results --html report.html
  report results plan.json run.json --html report.html      what compare, plan and monitor wrote
  report here/results there/results --markdown report.md --svg figures
  report results/compare_*.json --html report.html          several comparisons of one folder, side by side
  report results rivals.json --svg figures                  together with measured rows of other programs
  report run1.jsonl run2.jsonl --html runs.html             logs of train
  report --summarize results --csv all.csv                  the step logs of earlier runs, summarized

RESULTS are JSON of compare (or its folder, for the newest comparison in it), a folder of other JSON files, logs of train, JSON of plan and of monitor, step
logs, and rows of other programs (docs/rivals.schema.json). The contents of a file decide its kind.
A figure without data is left out, and a line says so.
)";

struct Settings {
  std::vector<fs::path> results, folders;
  fs::path html, svg, markdown, csv;
  cli::Names published;
  std::string title = default_title;
  std::int64_t warmup = 1;  ///< if it was not given, each run has its own warm-up
};

void declare(cli::CommandLine& line, Settings& settings) {
  line.group("Inputs");
  line.inputs("--results", "RESULTS...", "files, or folders that compare wrote",
              [&](std::string const&, cli::Names const& values) {
                for (auto const& value : values) settings.results.emplace_back(value);
              });
  line.values("--summarize", "DIR...", "", "folders with step logs, which become a row for each experiment",
              [&](std::string const&, cli::Names const& values) {
                settings.folders.assign(values.begin(), values.end());
              });
  line.integer("--warmup", settings.warmup,
               "first steps of each step log that --summarize does not time; default: the warmup of its "
               "comparison, or 1",
               0, 1 << 30);
  cli::add_published_flag(line, settings.published);
  line.group("Outputs");
  line.path("--html", "FILE", settings.html, "one page, for screens and paper; - is standard output");
  line.path("--svg", "DIR", settings.svg, "each figure as a file; the folder is made");
  line.path("--markdown", "FILE", settings.markdown,
            "tables, with the figures of --svg; - is standard output");
  line.path("--csv", "FILE", settings.csv, "all rows; - is standard output");
  line.text("--title", "TEXT", settings.title, "the title of pages");
}

void check(cli::CommandLine const& line, Settings const& settings) {
  if (settings.results.empty() && settings.folders.empty())
    cli::refuse("nothing to report; give RESULTS, such as results/compare.json, or --summarize DIR");
  if (settings.html.empty() && settings.svg.empty() && settings.markdown.empty() && settings.csv.empty())
    cli::refuse("no output is named; give --html FILE, --svg DIR, --markdown FILE or --csv FILE");
  if (settings.svg == "-")
    cli::refuse("--svg - is a folder of figures, not one stream; give the name of a folder");
  if (line.given("--warmup") && settings.folders.empty())
    cli::refuse(
        "--warmup says which steps of step logs are not timed, but none are read; give --summarize DIR");
}

std::vector<cli::NamedPath> named(std::vector<fs::path> const& inputs) {
  std::vector<cli::NamedPath> read;
  for (fs::path const& input : inputs) read.emplace_back("the input", input);
  return read;
}

/// Throws if an output would overwrite an input file, or cannot be written.
void check_outputs(Settings const& settings, cli::ProgramFiles const& files) {
  files.check();
  for (auto const* const file : {&settings.html, &settings.markdown, &settings.csv})
    if (!file->empty() && *file != "-") check_writable(*file);
  if (!settings.svg.empty()) check_writable_folder(settings.svg);
}

void print_inputs(Inputs const& inputs, std::ostream& out) {
  for (Source const& source : inputs.sources) {
    out << "read " << source.path << ": " << source.kind_text() << ", "
        << cli::grouped(static_cast<std::int64_t>(source.rows))
        << (source.kind == Kind::recording ? " sample" : " row") << (source.rows == 1 ? "" : "s") << '\n';
    for (std::string const& note : source.notes) out << "  " << files::printable(note, note.size()) << '\n';
  }
}

/// Writes the SVG files of all figures to the folder `folder`. Does not remove the SVG files of earlier
/// reports there, but prints a warning with their names.
void write_figures(Figures const& figures, fs::path const& folder, cli::ProgramFiles const& program_files,
                   std::ostream& out) {
  std::vector<SvgFile> files;
  std::vector<cli::NamedPath> outputs;
  for (Figure const& figure : figures.drawn)
    for (SvgFile& file : svg_files(figure)) {
      outputs.emplace_back("--svg", folder / file.name);
      files.push_back(std::move(file));
    }
  program_files.check(outputs);
  make_folder(folder);
  for (SvgFile const& file : files) write_file(folder / file.name, file.text);
  out << "wrote " << files.size() << (files.size() == 1 ? " figure: " : " figures: ")
      << files::path_text(folder) << "/NAME.svg\n";
  cli::Names stale;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    fs::path const name = entry->path().filename();
    if (name.extension() == ".svg" &&
        std::none_of(files.begin(), files.end(), [&](SvgFile const& file) { return name == file.name; }))
      stale.push_back(files::path_text(name));
  }
  std::sort(stale.begin(), stale.end());
  if (stale.empty()) return;
  out.flush();
  std::cerr << "warning: " << files::path_text(folder)
            << " holds figures that do not belong to this report: " << cli::joined(stale) << "; remove them"
            << std::endl;
}

/// Returns a line with the number of figures that are left out, if `on_page` is true, because a page lists
/// them with the reasons. Otherwise the result has a line for each figure, with its reason.
std::string left_out_text(std::vector<LeftOut> const& left_out, bool on_page) {
  std::string lines;
  if (on_page && left_out.size() > 1)
    return std::to_string(left_out.size()) +
           " figures are left out because their data is missing; the page has the reasons\n";
  for (LeftOut const& one : left_out) lines += "left out " + one.title + ": " + one.reason + "\n";
  return lines;
}

int run(int argc, char** argv) {
  Settings settings;
  cli::CommandLine line(
      "report", "Creates pages, figures and tables from results: report RESULTS... --html FILE", examples);
  declare(line, settings);
  if (!line.parse(argc, argv)) return 0;
  check(line, settings);
  std::string storage;
  std::int64_t replaced = 0;
  settings.title = std::string(utf8::repaired(settings.title, storage, replaced));

  // A comparison writes a CSV file next to its JSON file. The CSV file of a folder counts as an input too, so
  // that the report does not overwrite it.
  std::vector<std::vector<fs::path>> paths;
  std::vector<fs::path> input_files;
  for (fs::path const& given : settings.results) {
    paths.push_back(files_of(given));
    for (fs::path const& file : paths.back()) {
      input_files.push_back(file);
      if (file != given) input_files.push_back(fs::path(file).replace_extension(".csv"));
    }
  }
  std::vector<std::vector<fs::path>> logs;
  for (fs::path const& folder : settings.folders) {
    logs.push_back(step_logs_below(folder));
    for (fs::path const& log : logs.back()) {
      fs::path const comparison = comparison_of(log);
      if (!comparison.empty() &&
          std::find(input_files.begin(), input_files.end(), comparison) == input_files.end())
        input_files.push_back(comparison);
    }
    input_files.insert(input_files.end(), logs.back().begin(), logs.back().end());
  }
  cli::ProgramFiles const program_files(line, {}, named(input_files));
  check_outputs(settings, program_files);

  Inputs inputs;
  inputs.published = settings.published;
  for (std::size_t at = 0; at < settings.results.size(); ++at) {
    for (fs::path const& file : paths[at]) read_file(file, inputs);
    if (paths[at].front() == settings.results[at]) continue;
    cli::Names others;
    for (fs::path const& file : comparisons_in(settings.results[at]))
      if (file != paths[at].front()) others.push_back(files::path_text(file));
    if (!others.empty())
      inputs.sources.back().notes.push_back(
          "the newest comparison of its folder; for the mean of repeated "
          "comparisons give --summarize " +
          cli::in_shell(files::path_text(settings.results[at])) +
          ", or give the others by name: " + cli::joined(others, " "));
  }
  std::optional<std::size_t> const warmup =
      line.given("--warmup") ? std::optional(static_cast<std::size_t>(settings.warmup)) : std::nullopt;
  for (std::size_t at = 0; at < settings.folders.size(); ++at)
    read_step_logs(settings.folders[at], logs[at], warmup, inputs);
  name_sources(inputs.sources);

  bool const streams = settings.html == "-" || settings.markdown == "-" || settings.csv == "-";
  std::ostream& out = streams ? std::cerr : std::cout;
  print_inputs(inputs, out);
  bool const drawn = !settings.html.empty() || !settings.svg.empty() || !settings.markdown.empty();
  Figures const figures = drawn ? figures_of(inputs) : Figures();
  out << left_out_text(figures.left_out, !settings.html.empty() || !settings.markdown.empty());

  auto const write = [&](fs::path const& path, std::string const& text) {
    if (path == "-") {
      std::cout << text << std::flush;
      return;
    }
    write_file(path, text);
    out << "wrote " << files::path_text(path) << '\n';
  };
  Report const report{settings.title, cli::command_text(argc, argv), inputs, figures};
  if (!settings.svg.empty()) write_figures(figures, settings.svg, program_files, out);
  if (!settings.html.empty()) write(settings.html, html_page(report));
  if (!settings.markdown.empty())
    write(settings.markdown, markdown_page(report, settings.markdown, settings.svg));
  if (!settings.csv.empty()) write(settings.csv, csv_text(inputs));
  return 0;
}

}  // namespace

}  // namespace reporting
}  // namespace programs

int main(int argc, char** argv) {
  return cli::guarded([&] { return programs::reporting::run(argc, argv); });
}
