// SPDX-License-Identifier: Apache-2.0
#include "config/config_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/json_lines.hpp"
#include "tessera/train/option_table.hpp"

#include "cli/option_flags.hpp"
#include "results/results.hpp"
#include "results/verdicts.hpp"

namespace programs {
using namespace tessera;
namespace cli {
namespace {

std::string text_of(std::string const& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code))
    throw Error(ErrorKind::data,
                files::path_text(path) + " is a folder; name the JSON file of a DeepSpeed configuration");
  std::ifstream file(path, std::ios::binary);
  constexpr std::size_t max_bytes = 1 << 20;
  std::string text(max_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad() || (text.empty() && !file.eof()))
    throw Error(ErrorKind::data,
                files::path_text(path) + " cannot be read; name the JSON file of a DeepSpeed configuration");
  return text;
}

/// Returns the name that the program `program` uses for the flag `flag` of the program `train`. Only one name
/// differs: in `compare`, --warmup-steps is the number of untimed steps, so the warm-up of the learning rate
/// has another name.
std::string flag_in(std::string const& program, std::string const& flag) {
  return program == "compare" && flag == "--warmup-steps" ? "--learning-rate-warmup" : flag;
}

std::vector<FileSetting> read_config(CommandLine const& line, ConfigFile& file, std::string const& path) {
  std::string const& program = line.program();
  OnLine const on_line = [&](std::string const& flag) { return line.on_line(flag_in(program, flag)); };
  file.deepspeed = read_deepspeed(text_of(path), files::path_text(path), on_line);
  file.notes = file.deepspeed.notes;
  std::vector<FileSetting> settings = std::move(file.deepspeed.settings);
  if (program == "plan")  // in `plan`, the flag --schedule has another meaning
    std::erase_if(settings, [](FileSetting const& s) { return s.flag == "--schedule"; });
  bool const strategies = program == "compare" && line.on_line("--strategies") != nullptr;
  for (FileSetting& setting : settings) {
    setting.flag = flag_in(program, setting.flag);
    if (!line.knows(setting.flag) && program == "compare")
      file.notes.push_back(setting.where + ": has no effect in compare");
  }
  if (strategies)  // --strategies on the command line already chooses stages and offloads
    std::erase_if(settings,
                  [](FileSetting const& s) { return s.flag == "--stage" || s.flag == "--offload"; });
  return settings;
}

/// `document` is the result file of an earlier comparison, and --from repeats one of its rows. Throws if the
/// command of the comparison has a flag whose value is missing in the file. An older program possibly did not
/// write this value, so the repeated training would use another value. A flag that is also on the command
/// line of this program is not checked. The message names the first missing flag.
void check_recorded(CommandLine const& line, results::Document const& document, std::string const& path) {
  auto const check = [&](results::Row const& stored, RunKey const& key) {
    std::string const flag = flag_in("compare", key.flag), words = " " + document.command;
    std::size_t const at = words.find(" " + flag), end = at + 1 + flag.size();
    bool const mentioned =
        at != words.npos && (end == words.size() || words[end] == ' ' || words[end] == '=');
    if (mentioned && !stored.contains(key.key) && line.on_line(key.flag) == nullptr)
      throw Error(ErrorKind::config, path +
                                         ": was written by an older program, which did not record the flag " +
                                         flag + " of its command; give " + key.flag +
                                         " too. The command is " + files::printable(document.command));
  };
  auto const settings = document.environment.find("settings");
  bool const has_settings = settings != document.environment.end() && settings->is_object();
  for (RunKey const& key : run_keys()) check(has_settings ? *settings : results::Row::object(), key);
  if (document.rows.empty()) return;
  for (RunKey const& key : {RunKey{"loss_scale", "--loss-scale"}, RunKey{"communication", "--communication"},
                            RunKey{"mesh", "--mesh"}})
    check(document.rows.front(), key);
}

/// Returns the value of a field of a row as text; "" if the row has no such field, or if it is null.
std::string field_text(results::Row const& row, char const* field) {
  auto const value = row.find(field);
  if (value == row.end() || !value->is_primitive() || value->is_null()) return {};
  return files::printable(value->is_string() ? value->get<std::string>() : value->dump(), 60);
}
double number_in(results::Row const& row, char const* field) {
  auto const value = row.find(field);
  return value != row.end() && value->is_number() ? value->get<double>() : 0.0;
}

// The keys of a list of rows in the published form.
constexpr char list_rate[] = "throughput_tokens_per_sec", list_stage[] = "stage",
               list_strategy[] = "strategy";

/// Returns a sentence about the fastest row of a list of rows; "" if no row has a rate. Lists of `compare`
/// say which rows run the same program. For other lists the sentence does not rank stages with equal
/// strategies.
std::string fastest_text(results::Row const& list) {
  std::vector<results::Row> rows;
  for (results::Row const& row : list)
    if (row.is_object()) rows.push_back(row);
  auto const with_rate = [](double rate) { return " with " + fixed(rate, 0) + " tokens/s"; };
  auto const has_fields = [](results::Row const& row) {
    return !row_text(row, "experiment").empty() && !row_text(row, "status").empty();
  };
  if (std::ranges::all_of(rows, has_fields)) {
    auto const fastest = results::fastest_row(rows);
    double const rate = fastest ? number_in(rows[*fastest], "median_tokens_per_sec") : 0.0;
    if (!(rate > 0.0)) return {};
    return "; its fastest row is " + field_text(rows[*fastest], "experiment") + with_rate(rate);
  }
  std::erase_if(rows, [](results::Row const& row) {
    return !(number_in(row, list_rate) > 0.0) || field_text(row, "success") == "false";
  });
  if (rows.empty()) return {};
  results::Row const& best =
      *std::ranges::max_element(rows, {}, [](results::Row const& row) { return number_in(row, list_rate); });
  Names parts;
  for (char const* const key : {list_stage, list_strategy})
    if (std::string const text = field_text(best, key); !text.empty())
      parts.push_back(std::string(key) + " " + text);
  if (parts.empty()) {
    std::size_t at = 0;
    while (list[at] != best) ++at;
    parts.push_back("row " + std::to_string(at + 1) + ", which names no stage and no strategy,");
  }
  bool const has_equals = std::ranges::any_of(rows, [&](results::Row const& row) {
    return field_text(row, list_strategy) == field_text(best, list_strategy) &&
           field_text(row, list_stage) != field_text(best, list_stage);
  });
  std::string const row = joined(parts) + with_rate(number_in(best, list_rate));
  if (!has_equals) return "; its fastest row is " + row;
  return "; its highest rate is " + row +
         ". Other stages with this strategy are not ranked against it, because the list does not say "
         "whether they run the same program, as all stages without offload do on one GPU";
}

/// Returns how the rows of a list differ from the rows of `document`; "" if they are the same rows.
std::string difference_text(results::Row const& list, results::Document const& document) {
  if (list.size() != document.rows.size())
    return "its number of rows is " + std::to_string(document.rows.size()) + ", and in the list " +
           std::to_string(list.size());
  for (std::size_t at = 0; at < list.size(); ++at) {
    results::Row const &one = list[at], &other = document.rows[at];
    if (!one.is_object()) continue;
    auto const difference = [&](char const* key, char const* field, bool is_number) -> std::string {
      if (!one.contains(key)) return {};
      std::string const here = field_text(one, key), there = field_text(other, field);
      double const a = number_in(one, key), b = number_in(other, field);
      if (is_number ? std::fabs(a - b) <= 1e-9 * std::fabs(a) : here == there) return {};
      return "row " + std::to_string(at + 1) + " has " + key + " " + (there.empty() ? "null" : there) +
             ", and in the list " + (here.empty() ? "null" : here);
    };
    std::string text = difference(list_rate, "median_tokens_per_sec", true);
    if (text.empty()) text = difference(list_stage, "stage", false);
    if (text.empty()) text = difference(list_strategy, "offload", false);
    if (!text.empty()) return text;
  }
  return {};
}

/// `path` is the value of --from. If this file is a list of rows (compare --format flat, or a published
/// file), returns the path of the file with all fields that `compare` wrote next to the list, and adds a note
/// to `notes`. Returns `path` for all other files. Throws Error(config) for a list without such a file, or if
/// this file is of another run: a list lacks the data and the options of the training.
std::string document_of(std::string const& path, Names& notes) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return path;
  FileBytes const bytes = FileBytes::open(path);
  std::string_view const text(reinterpret_cast<char const*>(bytes.data()), bytes.size());
  std::size_t const begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos || text[begin] != '[' || json_lines::nests_too_deeply(text)) return path;
  results::Row const list = results::Row::parse(text, nullptr, false);
  if (!list.is_array()) return path;  // read_results says where the file is damaged
  std::filesystem::path const file(path);
  std::string const name = file.filename().string();
  std::string of_another_run;
  for (std::string const stem : {"zero_comparison", "offload_comparison"}) {
    if (!name.starts_with(stem)) continue;
    std::filesystem::path const whole = file.parent_path() / ("compare" + name.substr(stem.size()));
    if (!std::filesystem::exists(whole, code)) continue;
    if (std::string const text = difference_text(list, results::read_results(whole)); !text.empty()) {
      of_another_run = "; " + files::path_text(whole) + " belongs to another run and is not used: " + text;
      continue;
    }
    notes.push_back(files::path_text(file) + " is a list without the settings of its comparison, so " +
                    files::path_text(whole) + " is read");
    return whole.string();
  }
  throw Error(
      ErrorKind::config,
      files::path_text(file) +
          ": is a list of rows, which lacks the data and the options of their training; give the JSON "
          "object that compare writes, such as compare.json or compare_TIME.json, or give the flags of "
          "a row" +
          of_another_run + fastest_text(list));
}

}  // namespace

void add_config_flags(CommandLine& line, ConfigFile& file) {
  line.group(CommandLine::from_a_file);
  line.settings_file("--config", "FILE", "a DeepSpeed configuration; flags come before it",
                     [&](std::string const& path) { return read_config(line, file, path); });
  line.toggle("--print-config", file.print, "print every setting and where it came from, and stop");
}

void add_row_flags(CommandLine& line, ConfigFile& file) {
  line.group(CommandLine::from_a_file);
  line.settings_file(
      "--from", "FILE", "the JSON file of a comparison; repeats the row that --best or --row selects",
      [&](std::string const& path) {
        Names const* const row = line.on_line("--row");
        bool const best = line.on_line("--best") != nullptr;
        if ((row != nullptr) == best)
          refuse("--from " + in_quotes(path) +
                 (best ? ": --best and --row both select" : ": no flag selects") +
                 " which row to repeat; give --best, or --row NAME");
        std::string const whole = document_of(path, file.notes);
        results::Document const document = results::read_results(whole);
        std::string const name = files::path_text(whole);
        results::Row const& chosen = chosen_row(document, name, best ? "" : row->back());
        file.repeated = {name, chosen, document.environment};
        std::vector<FileSetting> settings = row_settings(document, name, chosen);
        check_recorded(line, document, name);
        // If the command line gives a training length, the length of the row is removed. The row's length is
        // possibly in another unit (steps or epochs).
        bool const steps = line.on_line("--steps") != nullptr;
        bool const epochs = line.on_line("--epochs") != nullptr || line.on_line("--samples") != nullptr;
        std::erase_if(settings, [&](FileSetting const& setting) {
          return (steps && (setting.flag == "--epochs" || setting.flag == "--samples")) ||
                 (epochs && setting.flag == "--steps");
        });
        return settings;
      });
  line.toggle(
      "--best", file.best,
      "with --from: repeat the row with the highest rate, or of rows with the same program the plainest");
  line.text("--row", "NAME", file.row, "with --from: repeat the row of this experiment");
}

void check_row_flags(CommandLine const& line, ConfigFile const& file) {
  if (line.on_line("--from") != nullptr || (!file.best && file.row.empty())) return;
  refuse(std::string(file.best ? "--best" : "--row " + in_quotes(file.row)) +
         " selects a row of a comparison, but no comparison is given; add --from FILE");
}

std::string row_text(results::Row const& row, char const* field) {
  auto const found = row.find(field);
  return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::vector<RunKey> const& run_keys() {
  static std::vector<RunKey> const keys = [] {
    std::vector<RunKey> all;
    for (Option const& option : option_table)
      if (option.group == OptionGroup::optimizer || option.group == OptionGroup::loss_scale)
        all.push_back(
            {std::string(option.name == warmup_in_compare.name ? warmup_in_compare.key : option.key),
             flag_of(option)});
    for (char const* const flag : {"--freeze", "--lora", "--order", "--tokenizer", "--samples-are", "--field",
                                   "--separator", "--epochs", "--samples", "--vocabulary"}) {
      std::string key(flag + 2);
      std::replace(key.begin(), key.end(), '-', '_');
      all.push_back({key, flag});
    }
    all.push_back({"data_paths", "--data"});
    return all;
  }();
  return keys;
}

results::Row const& chosen_row(results::Document const& document, std::string const& path,
                               std::string const& name) {
  results::Row const* chosen = nullptr;
  Names names;
  for (results::Row const& row : document.rows) {
    names.push_back(row_text(row, "experiment"));
    if (!name.empty() && chosen == nullptr && names.back() == name) chosen = &row;
  }
  if (name.empty())
    if (auto const fastest = results::fastest_row(document.rows)) chosen = &document.rows[*fastest];
  if (chosen == nullptr && (name.empty() || names.empty()))
    throw Error(ErrorKind::config, path + ": no row has the status ok, so there is none to repeat");
  if (chosen == nullptr)
    throw Error(ErrorKind::config, path + ": no row is called " + in_quotes(name) + ", the nearest is " +
                                       in_quotes(nearest(name, names)));
  return *chosen;
}

std::vector<FileSetting> row_settings(results::Document const& document, std::string const& path,
                                      results::Row const& row) {
  std::vector<FileSetting> settings;
  std::string const where = path + ": " + files::printable(row_text(row, "experiment"));
  auto const set = [&](std::string const& flag, results::Row const& value) {
    if (value.is_null() || value == false) return;
    Names values;
    auto const add = [&](results::Row const& one) {
      values.push_back(one.is_string()         ? one.get<std::string>()
                       : one.is_number_float() ? exact(one.get<double>())
                                               : one.dump());
    };
    if (value.is_array())
      for (auto const& one : value) add(one);
    else if (value != true)
      add(value);
    if (value.is_array() && values.empty()) return;
    settings.push_back({flag, std::move(values), where});
  };
  for (auto const& [key, flag] : std::initializer_list<RunKey>{{"device", "--device"},
                                                               {"model", "--model"},
                                                               {"world", "--ranks"},
                                                               {"batch", "--batch"},
                                                               {"accumulation", "--accumulation"},
                                                               {"sequence", "--sequence"},
                                                               {"sharding", "--stage"},
                                                               {"precision", "--precision"},
                                                               {"loss_scale", "--loss-scale"},
                                                               {"offload", "--offload"},
                                                               {"recompute", "--recompute"},
                                                               {"reduction", "--reduction"},
                                                               {"communication", "--communication"},
                                                               {"capture", "--capture"},
                                                               {"attention_policy", "--attention"},
                                                               {"parallel", "--parallel"},
                                                               {"adapters", "--adapters"},
                                                               {"seed", "--seed"}})
    if (auto const found = row.find(key); found != row.end()) set(flag, *found);
  // In results of schema version 1, the column `attention` has the attention kernel that was requested. In
  // newer results the column attention_policy has it.
  if (auto const requested = row.find("attention");
      requested != row.end() && !row.contains("attention_policy"))
    set("--attention", *requested);
  // Sets --steps to the number of steps after which the row's weights were hashed. Later steps exist only to
  // reach --min-time.
  for (char const* key : {"hashed_steps", "steps"})
    if (auto const found = row.find(key); found != row.end() && !found->is_null()) {
      set("--steps", *found);
      break;
    }
  if (auto const mesh = row.find("mesh"); mesh != row.end() && mesh->is_string()) {
    // "2x2" means 2 replicas of 2 shards. The number of ranks gives the shards, so --ranks can change them.
    std::string const text = mesh->get<std::string>();
    if (std::size_t const cross = text.find('x'); cross != text.npos)
      settings.push_back({"--mesh", {"replicate=" + text.substr(0, cross)}, where});
  }
  auto const with = document.environment.find("settings");
  if (with == document.environment.end() || !with->is_object()) return settings;
  if (auto const epochs = with->find("epochs"); epochs != with->end() && !epochs->is_null())
    std::erase_if(settings, [](FileSetting const& setting) { return setting.flag == "--steps"; });
  for (RunKey const& key : run_keys())
    if (auto const found = with->find(key.key); found != with->end()) set(key.flag, *found);
  return settings;
}

Names deepspeed_differences(DeepSpeedRun const& run, std::vector<UnitSpec> const& units) {
  Names lines;
  std::int64_t tensors = 0, elements = 0, kept = 0, kept_elements = 0;
  for (UnitSpec const& unit : units)
    for (ParameterSpec const& parameter : unit.parameters) {
      std::int64_t const size = parameter.shape.elements();
      if (!parameter.decay && parameter.trainable) {
        ++tensors;
        elements += size;
      }
      if (run.persistence && size <= *run.persistence && kept_elements + size <= run.persistent_elements) {
        ++kept;
        kept_elements += size;
      }
    }
  if (run.decays && tensors > 0)
    lines.push_back("weight decay applies to matrices only; in DeepSpeed it also applies to " +
                    grouped(tensors) + " biases and norms of " + grouped(elements) +
                    " elements, unless its program puts them in a separate group");
  if (run.persistence)
    lines.push_back("stage3_param_persistence_threshold " + std::to_string(*run.persistence) +
                    ": DeepSpeed keeps " + grouped(kept) + " parameters of " + grouped(kept_elements) +
                    " elements complete on every rank; here each is gathered with its unit, in one call");
  return lines;
}

void print_notes(std::ostream& out, ConfigFile const& file, Names const& differences) {
  for (std::string const& note : file.notes) out << "note: " << note << "\n";
  for (std::string const& difference : differences) out << "note: " << difference << "\n";
  out << std::flush;
}

}  // namespace cli
}  // namespace programs
