// SPDX-License-Identifier: Apache-2.0
// Tests every policy of every slot (kind of policy). CMakeLists.txt adds one policy to the library as a user
// would, and the tests include this policy. The programs must accept each policy on their command lines and
// list it in their help. The result tables must have a distinct name for each policy. The registry of
// compiled recipes (combinations of policies) must contain each policy that engines support.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/policy/parse.hpp"
#include "tessera/train/any_trainer.hpp"

#include "support/runs.hpp"
#include "train/settings.hpp"
#include "workload/matrix.hpp"

namespace {

using namespace tessera;
using namespace programs;

/// `flags` has all spellings of one command-line flag, separated by commas. Returns the last spelling.
std::string last_of(std::string const& flags) { return flags.substr(flags.rfind("--")); }

/// Declares the flags of a program with `declare`, parses the command line `words` with these flags, and
/// returns the help text of the program.
template <class Declare>
std::string parsed(Declare const& declare, std::vector<char const*> const& words) {
  cli::CommandLine line("program", "A program.", "");
  declare(line);
  REQUIRE(line.parse(static_cast<int>(words.size()), words.data()));
  return line.help_text();
}

bool says(std::string const& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a choice that was added to a list is one of the choices") {
  auto const& names = choice_names<slot::offload>();
  CHECK(std::count(names.begin(), names.end(), "host_accumulator") == 1);
}

TEST_CASE("every choice of every slot is a value of the command line and has a name in results") {
  for_each_slot([]<class Slot>(Slot) {
    std::set<std::string> experiments;
    for (std::string_view const choice : choice_names<Slot>()) {
      INFO(std::string(Slot::title), " ", std::string(choice));
      std::string const name(choice);
      cli::MatrixFlags flags;
      std::string flag = last_of(cli::slot_flag<Slot>().several);
      std::string const help =
          parsed([&](cli::CommandLine& line) { cli::add_matrix_flags(line, flags); },
                 {"compare", flag.c_str(), name.c_str(), "--stages", "0", "--precisions", "fp32",
                  "--offloads", "none", "--ranks", "2", flag.c_str(), name.c_str()});
      CHECK(says(help, name));
      std::vector<cli::Point> const points = cli::make_matrix(flags, 256);
      REQUIRE(points.size() == 1);
      CHECK(points[0].recipe.names.*Slot::field == choice);
      results::Row row = results::empty_row();
      cli::describe_point(row, points[0]);
      std::string title(Slot::title);
      std::replace(title.begin(), title.end(), ' ', '_');
      CHECK(row.contains(title));

      // Two rows of the result table that differ only in the policy of the slot `Slot` must have different
      // experiment names.
      if constexpr (!std::is_same_v<Slot, slot::device>) {
        flags.slots.template of<Slot>() = cli::slot_choices<Slot>();
        std::vector<cli::Point> const all = cli::make_matrix(flags, 256);
        CHECK(all.size() == choice_names<Slot>().size());
        for (cli::Point const& point : all)
          if (point.recipe.names.*Slot::field == choice) CHECK(experiments.insert(point.experiment).second);
      }

      cli::TrainFlags one;
      flag = last_of(cli::slot_flag<Slot>().one);
      CHECK(says(parsed([&](cli::CommandLine& line) { cli::declare(line, one); },
                        {"train", flag.c_str(), name.c_str()}),
                 name));
      CHECK(one.slots.template of<Slot>() == name);
    }
  });
}

TEST_CASE("every rule is said in the words of command lines too") {
  auto const check = []<class... All>(detail::list<All...>) {
    for (std::string_view const sentence : {All::sentence...}) {
      std::string const said = cli::in_flags(std::string(sentence));
      INFO(said);
      CHECK(said.find('<') == std::string::npos);
      CHECK(said.find("LossScale") == std::string::npos);
      CHECK(said.find("--") != std::string::npos);
    }
  };
  check(detail::Rules{});
}

TEST_CASE("a default that depends on the precision or on the device is shown for each") {
  CHECK(cli::slot_default<slot::loss_scale>("cpu") == "none; fp16: dynamic");
  CHECK(cli::slot_default<slot::reduction>("cpu") == "ordered; on cuda: fast");
}

TEST_CASE("the registry has every combination that engines run without a disk") {
  std::set<std::string> registered;
  for (RecipeTable const& table : registered_recipes()) CHECK(registered.insert(to_string(table)).second);
  std::size_t expected = 0;
  for (std::string_view const sharding : support::shardings)
    for (std::string_view const precision : {"fp32", "fp16", "bf16"})
      for (std::string_view const offload : support::offloads) {
        if (uses_files(support::recipe(sharding, precision, offload).placement)) continue;
        ++expected;
        CHECK(registered.count(to_string(support::recipe(sharding, precision, offload, "", ""))) == 1);
      }
  CHECK(registered.size() == expected);
  CHECK(registered.count(to_string(parse_recipe({.offload = "host_accumulator"}))) == 1);
}
