// SPDX-License-Identifier: Apache-2.0
// Tests that the results of `compare` follow docs/results.schema.json, the JSON schema that lists every field
// of a row of the result table.
#include "programs/compare_support.hpp"

using test::Compare, test::field, test::Json;

namespace {

/// Validates a JSON value against docs/results.schema.json. conforms() adds one text to `complaints` for each
/// violation. It supports only the keywords of JSON Schema that docs/results.schema.json contains.
struct Schema {
  Json const schema = Json::parse(test::read(TESSERA_SOURCE "/docs/results.schema.json"));
  std::vector<std::string> complaints;

  void conforms(std::string const& where, Json rules, Json const& value) {
    bool const is_row = rules.contains("$ref");
    if (is_row) {
      REQUIRE(rules.at("$ref") == "#/$defs/row");
      rules = field(schema, "$defs", "row");
    }
    auto const complain = [&](std::string const& text) { complaints.push_back(where + " " + text); };
    std::string const type = value.is_number_integer() ? "integer" : value.type_name();
    Json const types = rules.value("type", Json(type));
    auto const allows = [&](char const* name) {
      return types.is_array() ? std::count(types.begin(), types.end(), name) > 0 : types == name;
    };
    if (!allows(type.c_str()) && !(type == "integer" && allows("number")))
      return complain("is " + value.dump() + ", and the schema allows " + types.dump());
    if (rules.contains("const")) rules["enum"] = {rules.at("const")};
    if (rules.contains("enum") && std::count(rules.at("enum").begin(), rules.at("enum").end(), value) == 0)
      complain("is " + value.dump() + ", and the schema allows " + rules.at("enum").dump());
    for (std::string const key : rules.value("required", Json::array()))
      if (!value.contains(key)) complain("lacks " + key + ", which the schema requires");
    if (value.is_object())
      for (auto const& [key, part] : value.items()) {
        Json const properties = rules.value("properties", Json::object());
        if (properties.contains(key) || rules.contains("additionalProperties"))
          conforms(where + "." + key, properties.value(key, rules.value("additionalProperties", Json())),
                   part);
        else if (is_row)
          complain("has " + key + ", which the schema does not list");
      }
    if (value.is_array() && rules.contains("items"))
      for (Json const& part : value) conforms(where + "[]", rules.at("items"), part);
  }
};

Json follows_schema(Json const& document) {
  Schema check;
  check.conforms("document", check.schema, document);
  CHECK(Json(check.complaints) == Json::array());
  return document;
}

}  // namespace

TEST_CASE("compare schema: documents of complete, failed and refused rows follow the published schema") {
  Compare const sh;
  follows_schema(
      sh.document(sh.brief + "--ranks 2 --stages dp,3 --precisions fp16 --offloads none --repeat 2"));
  follows_schema(sh.document(sh.brief + "--ranks 2 --stages 3 --precisions fp32,tf32 --offloads nvme --mesh "
                                        "replicate=2 --lora rank=2,alpha=4,targets=c_attn"));
  follows_schema(sh.document(sh.small + "--data text.txt --ranks 1 --stages 1 --precisions bf16 --offloads "
                                        "none --epochs 2 --samples 8 --warmup 1"));
}

TEST_CASE("compare schema: rows with published figures that do not fit follow it, and mistakes do not") {
  Compare const sh;
  Json wrong =
      follows_schema(sh.document("@$TESSERA_SOURCE/examples/experiments/large-models.flags --data text.txt "
                                 "--device cpu --host-memory 64GiB --offloads none,cpu_optimizer"));
  Json& row = wrong.at("rows").at(0);
  CHECK(row.at("published").is_object());
  row["status"] = "fine";
  row["world"] = 8.5;
  row.erase("repeats");
  row["repeated"] = 1;
  row["experiment"] = 1;
  row["published"]["figures"]["step_ms"] = "680";
  Schema check;
  check.conforms("wrong", check.schema, wrong);
  CHECK(Json(check.complaints) ==
        Json{"wrong.rows[] lacks repeats, which the schema requires",
             R"(wrong.rows[].experiment is 1, and the schema allows "string")",
             R"(wrong.rows[].published.figures.step_ms is "680", and the schema allows "number")",
             "wrong.rows[] has repeated, which the schema does not list",
             R"(wrong.rows[].status is "fine", and the schema allows ["ok","oom","refused","failed"])",
             R"(wrong.rows[].world is 8.5, and the schema allows "integer")"});
}
