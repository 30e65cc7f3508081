// SPDX-License-Identifier: Apache-2.0
// Tests how the file adapter_config.json of a LoRA adapter selects the layers that have adapters, and their
// ranks and alphas. The expected results are from the functions of PEFT.
#include "tessera/io/adapter_config.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace {

using namespace tessera;
using detail::AdapterConfig;

AdapterConfig read(std::string const& keys) {
  return {AdapterConfig::Json::parse(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4)" +
                                     (keys.empty() ? "" : ", " + keys) + "}"),
          "adapter_config.json"};
}
std::string refusal(std::string const& keys) {
  try {
    read(keys);
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return "nothing was refused";
}

std::string const attention = "transformer.h.0.attn.c_attn";

}  // namespace

TEST_CASE("a key of alpha_pattern and rank_pattern matches a whole name or its end behind a point") {
  struct Case {
    std::string key;
    bool matches;
  };
  for (Case const& c : std::vector<Case>{{"c_attn", true},
                                         {"attn", false},
                                         {"_attn", false},
                                         {"attn.c_attn", true},
                                         {attention, true},
                                         {"^" + attention, true},
                                         {"^c_attn", false},
                                         {"^h.0.attn.c_attn", false},
                                         {"base_model.model." + attention, false},
                                         // The keys are regular expressions, in which a dot
                                         // matches any character.
                                         {"c.attn", true},
                                         {R"(h\\.0\\.attn\\.c_attn)", true},
                                         {R"(h\\.[1-9]\\..*)", false},
                                         {"c_(attn|proj)", true},
                                         {"c_fc|c_attn", true},
                                         {R"(h\\.\\d+\\.attn\\.c_attn)", true}}) {
    CAPTURE(c.key);
    CHECK(read(R"("alpha_pattern": {")" + c.key + R"(": 64})").alpha_of(attention) ==
          (c.matches ? 64.0 : 4.0));
    CHECK(read(R"("rank_pattern": {")" + c.key + R"(": 8})").rank_of(attention) == (c.matches ? 8 : 2));
  }
  CHECK(read(R"("alpha_pattern": {"c_fc": 1, "attn.c_attn": 2, "c_attn": 3})").alpha_of(attention) == 2.0);
}

TEST_CASE("target_modules, exclude_modules, layers_to_transform and layers_pattern") {
  auto const has = [](std::string const& keys, std::string const& layer = attention) {
    return read(keys).has(layer);
  };
  CHECK(has(R"("target_modules": ["c_attn"])"));
  CHECK(has(R"("target_modules": [")" + attention + R"("])"));
  CHECK_FALSE(has(R"("target_modules": ["base_model.model.)" + attention + R"("])"));
  CHECK_FALSE(has(R"("target_modules": ["attn", "c.attn", "^c_attn"])"));
  CHECK(has(R"("target_modules": "all-linear")"));
  CHECK(has(R"("target_modules": ".*\\.c_[af].*")"));
  // If target_modules is a string, it is a pattern that must match the whole name.
  CHECK_FALSE(has(R"("target_modules": "c_attn")"));
  CHECK(has(R"("target_modules": null)"));
  CHECK_FALSE(has(R"("target_modules": ["c_attn"], "exclude_modules": ["attn.c_attn"])"));
  CHECK_FALSE(has(R"("target_modules": ["c_attn"], "exclude_modules": ".*attn")"));
  CHECK(has(R"("target_modules": ["c_attn"], "exclude_modules": "c_attn")"));
  CHECK(has(R"("target_modules": ["c_attn"], "layers_to_transform": 0)"));
  CHECK_FALSE(has(R"("target_modules": ["c_attn"], "layers_to_transform": [1, 10])"));
  CHECK(has(R"("target_modules": [")" + attention + R"("], "layers_to_transform": [1, 10])"));
  CHECK(
      has(R"("target_modules": ["c_attn"], "layers_to_transform": [1, 10])", "transformer.h.10.attn.c_attn"));
  CHECK(has(R"("target_modules": ["c_attn"], "layers_to_transform": [0], "layers_pattern": "h")"));
  CHECK(has(R"("target_modules": ["c_attn"], "layers_to_transform": [0], "layers_pattern": ["x", "h"])"));
  CHECK_FALSE(has(R"("target_modules": ["c_attn"], "layers_to_transform": [0], "layers_pattern": "layers")"));
  CHECK_FALSE(has(R"("target_modules": ["c_attn"], "layers_to_transform": [0])", "h.0.attn.c_attn"));
  CHECK(has(R"("target_modules": ["c_attn"], "layers_to_transform": [0], "layers_pattern": "h")",
            "h.0.attn.c_attn"));
}

TEST_CASE("what is not built of them is refused by its key") {
  auto const holds = [](std::string const& text, std::string const& part) {
    CAPTURE(text);
    return text.find(part) != text.npos;
  };
  CHECK(
      holds(refusal(R"("alpha_pattern": {"(?P<l>c)_attn": 64})"),
            "alpha_pattern (?P<l>c)_attn has the group (?P, which is not supported in regular expressions"));
  CHECK(holds(refusal(R"("rank_pattern": {"\\Ac_attn": 64})"), R"(rank_pattern \Ac_attn has the escape \A)"));
  CHECK(holds(refusal(R"("alpha_pattern": {"(c_attn": 64})"),
              "alpha_pattern (c_attn is not a regular expression"));
  CHECK(holds(refusal(R"("target_modules": "c_attn*+")"), "target_modules c_attn*+ repeats a repetition"));
  // std::regex would need hours to match patterns like these, so the library refuses them.
  CHECK(holds(refusal(R"("target_modules": ".*.*.*.*.*x")"), "has more than four repetitions"));
  CHECK(holds(refusal(R"("target_modules": "(.|.)*x")"), "repeats a group with | or a repetition in it"));
  CHECK(holds(refusal(R"("target_modules": "((a+)b)*x")"), "repeats a group with | or a repetition in it"));
  CHECK(holds(refusal(R"("target_modules": [7])"), "target_modules holds 7"));
  CHECK(holds(refusal(R"("target_modules": 7)"), "target_modules is 7; it must be a list"));
  CHECK(holds(refusal(R"("target_modules": ".*", "layers_to_transform": [0])"),
              "layers_to_transform needs a list in target_modules"));
  CHECK(holds(refusal(R"("layers_to_transform": [0.5])"), "layers_to_transform holds 0.5"));
  CHECK(holds(refusal(R"("modules_to_save": ["lm_head"])"), "modules_to_save is"));
  CHECK(holds(refusal(R"("use_rslora": 1)"), "use_rslora is 1"));
}
