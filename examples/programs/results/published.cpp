// SPDX-License-Identifier: Apache-2.0
#include "results/published.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace programs {
using namespace tessera;
namespace cli {

extern char const* const published_json;  // generated from examples/experiments/published.json

namespace {

using results::Row;

/// A published quantity, such as the tokens per second. `name` is its key in published.json. `field` is the
/// column of our result files with which it is compared. `header` is the header of its table column.
struct Figure {
  char const* name;
  char const* header;
  char const* field;
  double factor;  ///< converts the column to the published unit
  int decimals;
  char const* planned = nullptr;  ///< the column with the planned value, for rows that did not run
  /// `ranks`: our value, also a planned one, is multiplied by the number of ranks. `one`: it is not
  enum class By { one, ranks } by = By::one;
  /// the condition under which our value is comparable. `any`: always. `of_samples`: both trainings have the
  /// same samples per epoch. `all`: both trainings also have the same number of epochs.
  enum class Epochs { any, of_samples, all } epochs = Epochs::any;
  /// the column with the standard deviation of our value over repeats, in the unit of `field`
  char const* deviation = nullptr;
  int element = -1;  ///< the element of `field` if this is an array
  /// how the planned value becomes comparable: unchanged, divided by the number of ranks, or multiplied by it
  enum class Planned { as_it_is, per_rank, of_all_ranks } plan = Planned::as_it_is;
};

// Converts our unit MB (2^20 bytes) to the unit GB (10^9 bytes), which the publications use.
constexpr double decimal_gb = 1024.0 * 1024.0 / 1e9;
constexpr char predicted_rate[] = "predicted_tokens_per_sec", predicted_step[] = "predicted_step_time_s";
constexpr auto figures = std::to_array<Figure>({
    {.name = "tokens_per_sec",
     .header = "tok/s",
     .field = "median_tokens_per_sec",
     .factor = 1.0,
     .decimals = 0,
     .planned = predicted_rate,
     .deviation = "std_tokens_per_sec"},
    {.name = "tokens_per_sec_per_gpu",
     .header = "tok/s a rank",
     .field = "tokens_per_sec_per_rank",
     .factor = 1.0,
     .decimals = 0,
     .planned = predicted_rate,
     .plan = Figure::Planned::per_rank},
    {.name = "speedup_over_one",
     .header = "speed-up",
     .field = "scaling_efficiency",
     .factor = 1.0,
     .decimals = 3,
     .planned = "scaling_efficiency",
     .by = Figure::By::ranks},
    {.name = "step_ms",
     .header = "ms/step",
     .field = "avg_step_time_s",
     .factor = 1e3,
     .decimals = 1,
     .planned = predicted_step},
    {.name = "step_s",
     .header = "s/step",
     .field = "avg_step_time_s",
     .factor = 1.0,
     .decimals = 3,
     .planned = predicted_step,
     .deviation = "std_step_time_s"},
    {.name = "epoch_s",
     .header = "s/epoch",
     .field = "avg_epoch_time_s",
     .factor = 1.0,
     .decimals = 2,
     .epochs = Figure::Epochs::of_samples},
    {.name = "samples_per_sec",
     .header = "samples/s",
     .field = "samples_per_sec",
     .factor = 1.0,
     .decimals = 2},
    {.name = "peak_mb",
     .header = "peak MB",
     .field = "peak_gpu_mem_mb",
     .factor = 1.0,
     .decimals = 0,
     .planned = "planned_gpu_mem_mb"},
    {.name = "allocated_mb",
     .header = "MB at the end",
     .field = "allocated_mb",
     .factor = 1.0,
     .decimals = 0},
    {.name = "peak_gb",
     .header = "peak GB",
     .field = "peak_gpu_mem_mb",
     .factor = decimal_gb,
     .decimals = 2,
     .planned = "planned_gpu_mem_mb"},
    {.name = "cpu_gb",
     .header = "CPU GB",
     .field = "process_mem_mb",
     .factor = decimal_gb,
     .decimals = 1,
     .planned = "planned_host_mem_mb",
     .plan = Figure::Planned::of_all_ranks},
    {.name = "gpu_util_pct", .header = "GPU %", .field = "avg_gpu_util_pct", .factor = 1.0, .decimals = 1},
    {.name = "peak_power_w_gpu0",
     .header = "peak W, GPU 0",
     .field = "peak_power_each_w",
     .factor = 1.0,
     .decimals = 0,
     .element = 0},
    {.name = "peak_power_w_gpu1",
     .header = "peak W, GPU 1",
     .field = "peak_power_each_w",
     .factor = 1.0,
     .decimals = 0,
     .element = 1},
    {.name = "temp_start_c", .header = "first temp C", .field = "temp_start_c", .factor = 1.0, .decimals = 0},
    {.name = "temp_end_c", .header = "last temp C", .field = "temp_end_c", .factor = 1.0, .decimals = 0},
    {.name = "temp_min_c", .header = "lowest temp C", .field = "temp_min_c", .factor = 1.0, .decimals = 0},
    {.name = "temp_max_c", .header = "highest temp C", .field = "temp_max_c", .factor = 1.0, .decimals = 0},
    {.name = "first_epoch_loss",
     .header = "loss of epoch 1",
     .field = "first_epoch_loss",
     .factor = 1.0,
     .decimals = 4,
     .epochs = Figure::Epochs::of_samples},
    {.name = "final_epoch_loss",
     .header = "loss of the last",
     .field = "final_epoch_loss",
     .factor = 1.0,
     .decimals = 4,
     .epochs = Figure::Epochs::all},
});

static_assert(std::ranges::all_of(figures, [](Figure const& figure) {
  return results::is_column(figure.field) &&
         (figure.planned == nullptr || results::is_column(figure.planned)) &&
         (figure.deviation == nullptr || results::is_column(figure.deviation));
}));

Row const& comparisons() {
  static Row const all = Row::parse(published_json).at("comparisons");
  return all;
}
Row const& comparison(std::string const& name) {
  for (Row const& one : comparisons())
    if (one.at("name") == name) return one;
  throw Error(ErrorKind::usage, "no published comparison is called " + in_quotes(name));
}

/// `of` is a published comparison, and `row` is a row of our results. Returns the row of `of` with the same
/// recipe and shape as `row`; null if there is none. `models` maps names of models to published names.
Row const* printed_for(Row const& row, Row const& of, PublishedModels const& models) {
  std::string const own = row.at("model").is_string() ? row.at("model").get<std::string>() : std::string();
  auto const known = models.find(own);
  std::string const& model = known == models.end() ? own : known->second;
  for (Row const& printed : of.at("rows")) {
    bool same =
        printed.at("ranks") == row.at("world") && row.at("accumulation") == 1 && printed.at("model") == model;
    for (char const* key : {"sharding", "precision", "offload", "batch", "sequence"})
      same = same && printed.at(key) == row.at(key);
    if (same) return &printed;
  }
  return nullptr;
}

/// Returns whether `figure` of our row `row` may be compared with `figure` of the published comparison `of`.
/// If the figure depends on epochs, the two trainings must have the same samples per epoch. For some figures
/// the number of epochs must be equal too.
bool same_epochs(Row const& row, Row const& of, Figure const& figure) {
  if (figure.epochs == Figure::Epochs::any || row.at("samples").is_null()) return true;
  return row.at("samples") == of.value("epoch_samples", Row()) &&
         (figure.epochs == Figure::Epochs::of_samples || row.at("epochs") == of.value("epochs", Row()));
}

/// Returns the value of `figure` in our row `row`, in the published unit. If the row did not run, this is the
/// planned value. Returns nullopt if the row has no value.
std::optional<double> ours(Row const& row, Row const& of, Figure const& figure) {
  if (!same_epochs(row, of, figure)) return std::nullopt;
  bool const ran = row.at("status") == "ok";
  if (!ran && figure.planned == nullptr) return std::nullopt;
  Row const* value = &row.at(ran ? figure.field : figure.planned);
  if (ran && figure.element >= 0) {
    auto const element = static_cast<std::size_t>(figure.element);
    if (!value->is_array() || value->size() <= element) return std::nullopt;
    value = &value->at(element);
  }
  if (!value->is_number()) return std::nullopt;
  double const ranks = row.at("world").get<double>();
  double const number = value->get<double>() * figure.factor;
  if (!ran && figure.plan == Figure::Planned::per_rank) return number / ranks;
  // The publication counts the memory of the whole machine, so a plan without offloaded state is not
  // comparable.
  if (!ran && figure.plan == Figure::Planned::of_all_ranks && number == 0.0) return std::nullopt;
  bool const sums = !ran && figure.plan == Figure::Planned::of_all_ranks;
  return sums || figure.by == Figure::By::ranks ? number * ranks : number;
}

/// Returns `rows` with scaling efficiencies relative to one rank. A completed row keeps its value if another
/// completed row has the same recipe and shape on one rank. The value of a row that did not run is computed
/// from its predicted rate and the predicted rate on one rank. All other values become null.
std::vector<Row> with_speedups_over_one(std::vector<Row> rows) {
  auto const is_base = [](Row const& one, Row const& row) {
    bool same = one.at("world") == 1;
    for (char const* key : {"model", "sharding", "precision", "offload", "recompute", "batch", "sequence"})
      same = same && one.at(key) == row.at(key);
    return same;
  };
  auto const predicted = [](Row const& row) {
    auto const rate = row.find(predicted_rate);
    return rate != row.end() && rate->is_number() ? rate->get<double>() : 0.0;
  };
  std::vector<Row> efficiencies(rows.size());
  for (std::size_t at = 0; at < rows.size(); ++at)
    for (Row const& one : rows) {
      Row const& row = rows[at];
      if (!is_base(one, row)) continue;
      if (row.at("status") != "ok" && predicted(row) > 0.0 && predicted(one) > 0.0)
        efficiencies[at] = predicted(row) / predicted(one) / row.at("world").get<double>();
      if (row.at("status") == "ok" && one.at("status") == "ok")
        efficiencies[at] = row.value("scaling_efficiency", Row());
    }
  for (std::size_t at = 0; at < rows.size(); ++at) rows[at]["scaling_efficiency"] = efficiencies[at];
  return rows;
}

/// Returns the standard deviation of our value over repeats, in the published unit; nullopt if it is unknown.
std::optional<double> our_deviation(Row const& row, Figure const& figure) {
  if (figure.deviation == nullptr || row.at("status") != "ok") return std::nullopt;
  Row const& value = row.at(figure.deviation);
  return value.is_number() ? std::optional(value.get<double>() * figure.factor) : std::nullopt;
}

/// Returns the name of a published row, for example "stage 2, fp16, cpu_optimizer, 4 ranks".
std::string name_of_row(Row const& printed) {
  auto const text = [&](char const* key) { return printed.at(key).get<std::string>(); };
  std::string name = text("sharding") + ", " + text("precision");
  if (text("offload") != "none") name += ", " + text("offload");
  if (printed.at("ranks") != 1) name += ", " + printed.at("ranks").dump() + " ranks";
  return name;
}

Names texts(Row const& list) {
  Names all;
  for (Row const& text : list) all.push_back(text.get<std::string>());
  return all;
}

/// Returns the figures that at least one row of the comparison `of` has.
std::vector<Figure const*> figures_of(Row const& of) {
  std::vector<Figure const*> found;
  for (Figure const& figure : figures)
    if (std::any_of(of.at("rows").begin(), of.at("rows").end(), [&](Row const& printed) {
          return printed.contains("figures") && printed.at("figures").contains(figure.name);
        }))
      found.push_back(&figure);
  return found;
}

/// Returns a published figure as text, with its deviation if it was published. A figure has as many digits as
/// were published, but at most as many decimal places as our value next to it.
std::string published_cell(Row const& printed, Figure const& figure) {
  Row const in_words = printed.value("printed", Row::object());
  double const number = printed.at("figures").at(figure.name);
  std::string cell =
      in_words.contains(figure.name) ? in_words.at(figure.name).get<std::string>() : shortest(number);
  std::size_t const point = cell.find('.');
  if (!in_words.contains(figure.name) && point != cell.npos &&
      cell.size() - point - 1 > static_cast<std::size_t>(figure.decimals))
    cell = fixed(number, figure.decimals);
  Row const deviations = printed.value("deviations", Row::object());
  if (deviations.contains(figure.name))
    cell += " +- " + fixed(deviations.at(figure.name), figure.decimals + 1);
  return cell;
}

/// Returns the table cells of a published row. For each figure they are the published value, our value, and
/// the ratio of our value to the published one.
Names cells_of(Row const& printed, Row const& row, Row const& of, std::vector<Figure const*> const& known) {
  Names cells = {name_of_row(printed)};
  bool const ran = row.at("status") == "ok", fitted = printed.contains("figures");
  for (Figure const* figure : known) {
    auto const here = ours(row, of, *figure);
    std::string mine = here ? fixed(*here, figure->decimals) : std::string("-");
    if (auto const deviation = our_deviation(row, *figure); here && deviation)
      mine += " +- " + fixed(*deviation, figure->decimals + 1);
    bool const has = fitted && printed.at("figures").contains(figure->name);
    double const theirs = has ? printed.at("figures").at(figure->name).get<double>() : 0.0;
    cells.push_back(has ? published_cell(printed, *figure) : fitted ? "-" : "OOM");
    cells.push_back(ran || !here ? mine : "(" + mine + ")");
    cells.push_back(ran && here && has ? fixed(*here / theirs, 2) : std::string());
  }
  cells.push_back(row.at("status").get<std::string>());
  cells.push_back(printed.value("verdict", std::string(fitted ? "" : "OOM")));
  return cells;
}

std::string text_of(Row const& of, std::vector<Row> const& rows, std::string const& machine,
                    Terminal const& terminal, PublishedModels const& models) {
  std::vector<Figure const*> const known = figures_of(of);
  std::vector<Table::Column> columns = {{"row", false, 100}};
  for (std::size_t at = 0; at < known.size(); ++at) {
    int const importance = std::max(1, 9 - 2 * static_cast<int>(at));
    columns.push_back({std::string(known[at]->header) + "\npublished", true, importance});
    columns.push_back({"\nhere", true, importance});
    columns.push_back({"\nratio", true, importance});
  }
  columns.push_back({"\nhere", false, 2});
  columns.push_back({"published\nverdict", false, 1});
  Table table(std::move(columns));
  std::string const software = of.at("software");
  table.heading("published, " + of.at("name").get<std::string>() + ": " + of.at("title").get<std::string>());
  Names cannot_be, sizes, not_equal = texts(of.at("remarks"));
  std::size_t repeated = 0;
  bool planned = false, threads = false;
  Row const* other_epochs = nullptr;
  for (Row const& row : rows) {
    Row const* const printed = printed_for(row, of, models);
    if (printed == nullptr) continue;
    ++repeated;
    std::string const own = row.at("model"), &model = printed->at("model").get_ref<std::string const&>();
    if (own != model) sizes.push_back(own + " has the sizes of " + model);
    table.row(cells_of(*printed, row, of, known));
    planned = planned || (row.at("status") != "ok" && std::any_of(known.begin(), known.end(), [&](auto* one) {
                            return ours(row, of, *one).has_value();
                          }));
    threads = threads || row.at("device") == "cpu";
    if (std::any_of(known.begin(), known.end(), [&](auto* one) { return !same_epochs(row, of, *one); }))
      other_epochs = &row;
    if (printed->contains("cannot_be"))
      cannot_be.push_back(name_of_row(*printed) + ": " + printed->at("cannot_be").get<std::string>());
  }
  if (repeated == 0) return {};
  std::string out = table.text(terminal);
  out += left_out_text(table.left_out(terminal), terminal, "the JSON has them under 'published'");
  auto const say = [&](std::string const& what, Names const& list) {
    if (!list.empty()) out += wrapped(what + ": " + joined(list, "; "), terminal.width) + "\n";
  };
  if (planned)
    say("(in brackets)",
        {"planned memory, and predicted times and speed-ups, of a row that did not run here"});
  say("published on", {of.at("machine").get<std::string>() + (software.empty() ? "" : ", " + software)});
  say("here on", {machine + (threads ? ", ranks as threads of the processor" : "")});
  say("source", {of.at("source").get<std::string>()});
  say("models", distinct(sizes));
  say("assumed", texts(of.at("assumed")));
  if (other_epochs != nullptr) {
    auto const epochs = [](Row const& count, Row const& samples) {
      return count.dump() + (count == 1 ? " epoch of " : " epochs of ") + samples.dump() + " samples";
    };
    not_equal.push_back(epochs(other_epochs->at("epochs"), other_epochs->at("samples")) + " here, " +
                        epochs(of.at("epochs"), of.at("epoch_samples")) +
                        " there, so values that depend on it are left out");
  }
  say("not equal", not_equal);
  say("cannot be", cannot_be);
  if (std::size_t const all = of.at("rows").size(); repeated < all)
    say("not repeated here", {std::to_string(all - repeated) + " of the " + std::to_string(all) + " rows"});
  return out;
}

}  // namespace

Names published_names() {
  Names names;
  for (Row const& one : comparisons()) names.push_back(one.at("name").get<std::string>());
  return names;
}

void add_published_flag(CommandLine& line, Names& names) {
  line.list("--published", "NAME,...", "", "compare rows with these figures: " + joined(published_names()),
            [&names](std::string const& flag, Names const& items) {
              names.clear();
              for (auto const& item : items) names.push_back(choice(flag, item, published_names()));
              names = distinct(names);
            });
}

std::string published_about(std::string const& name) {
  for (Row const& one : comparisons()) {
    if (one.at("name") != name) continue;
    std::string const software = one.at("software");
    std::string about = name + ", " + one.at("title").get<std::string>() + ": published on " +
                        one.at("machine").get<std::string>() + (software.empty() ? "" : ", " + software) +
                        ". Source: " + one.at("source").get<std::string>() + ". ";
    if (Names const assumed = texts(one.at("assumed")); !assumed.empty())
      about += "Assumed: " + joined(assumed, "; ") + ". ";
    if (Names const remarks = texts(one.at("remarks")); !remarks.empty())
      about += "Not equal: " + joined(remarks, "; ") + ". ";
    return about;
  }
  return {};
}

std::string published_header(std::string const& key) {
  auto const figure = std::ranges::find(figures, key, &Figure::name);
  return figure == figures.end() ? key : figure->header;
}

void add_published(std::vector<Row>& rows, Names const& names, PublishedModels const& models) {
  std::vector<Row> const comparable = with_speedups_over_one(rows);
  for (std::size_t at = 0; at < rows.size(); ++at)
    for (auto const& name : names) {
      Row const& row = comparable[at];
      Row const& of = comparison(name);
      Row const* const printed = printed_for(row, of, models);
      if (printed == nullptr) continue;
      Row found = {{"comparison", name}, {"machine", of.at("machine")}, {"model", printed->at("model")}};
      found["figures"] = printed->value("figures", Row::object());
      found["deviations"] = printed->value("deviations", Row::object());
      for (char const* const key : {"ours", "our_deviations", "ratios", "planned"})
        found[key] = Row::object();
      for (auto const& [key, value] : found["figures"].items())
        for (Figure const& figure : figures) {
          if (key != figure.name) continue;
          auto const here = ours(row, of, figure);
          if (!here) continue;
          bool const ran = row.at("status") == "ok";
          found[ran ? "ours" : "planned"][key] = *here;
          if (!ran) continue;
          if (auto const deviation = our_deviation(row, figure)) found["our_deviations"][key] = *deviation;
          found["ratios"][key] = *here / value.get<double>();
        }
      found["oom"] = printed->value("oom", false);
      found["cannot_be"] = printed->contains("cannot_be") ? printed->at("cannot_be") : Row(nullptr);
      rows[at]["published"] = std::move(found);
      break;
    }
}

std::string published_text(std::vector<Row> const& rows, Names const& names, std::string const& machine,
                           Terminal const& terminal, PublishedModels const& models) {
  std::string out;
  std::vector<Row> const comparable = with_speedups_over_one(rows);
  for (auto const& name : names)
    if (std::string const text = text_of(comparison(name), comparable, machine, terminal, models);
        !text.empty())
      out += "\n" + text;
  if (!out.empty() || names.empty()) return out;
  return "\n" +
         wrapped("published: no row here has the same model, ranks, recipe, batch and sequence as a row of " +
                     joined(names),
                 terminal.width) +
         "\n";
}

}  // namespace cli
}  // namespace programs
