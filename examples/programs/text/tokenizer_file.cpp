// SPDX-License-Identifier: Apache-2.0
// Parses tokenizer.json, and GPT-2's vocab.json and merges.txt.
#include "text/tokenizer_file.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

namespace programs {
using namespace tessera;
namespace text {

namespace {

using Json = nlohmann::json;

/// A JSON value together with its path in the file, for error messages.
class Node {
 public:
  Node(std::string const& file, Json const& value, std::string path = {})
      : file_(file), value_(value), path_(std::move(path)) {}

  [[noreturn]] void refuse(std::string_view what) const {
    throw_error(ErrorKind::data, {file_, ": ", path_.empty() ? "the file" : path_, " ", what});
  }
  [[noreturn]] void lacks(std::string_view expected, std::string_view actual) const {
    refuse("is " + files::printable(expected, 60) + ", which tessera does not support; it supports " +
           std::string(actual));
  }

  bool is_null() const { return value_.is_null(); }
  Json const& value() const { return value_; }
  std::string const& file() const { return file_; }
  std::string const& path() const { return path_; }

  /// Returns the member `key` of the object, or a null value if there is none.
  Node operator[](char const* key) const {
    if (!value_.is_object()) refuse("must be an object");
    static Json const null;
    auto const found = value_.find(key);
    return {file_, found == value_.end() ? null : *found, path_.empty() ? key : path_ + "." + key};
  }
  Node at(std::size_t index) const {
    return {file_, value_[index], path_ + "[" + std::to_string(index) + "]"};
  }
  std::size_t size() const {
    if (!value_.is_array()) refuse("must be a list");
    return value_.size();
  }
  std::string const& text() const {
    if (!value_.is_string()) refuse("must be a string");
    return value_.get_ref<std::string const&>();
  }
  bool flag(bool absent = false) const {
    if (is_null()) return absent;
    if (!value_.is_boolean()) refuse("must be true or false");
    return value_.get<bool>();
  }
  TokenId id() const {
    if (!value_.is_number_integer() || value_ < 0 || value_ > std::numeric_limits<std::int32_t>::max() - 1)
      refuse("must be a token id, a whole number from 0 to 2147483646");
    return value_.get<TokenId>();
  }
  /// Throws Error(data) if the value is inside more than 32 nested arrays. So the recursion of the readers is
  /// limited.
  void check_depth() const {
    if (std::count(path_.begin(), path_.end(), '[') > 32) refuse("is nested too deeply");
  }
  /// Throws Error(data) if the member `key` has a value other than null, false, 0 or "". Used for unsupported
  /// features.
  void no(char const* key) const {
    Node const member = (*this)[key];
    auto const& v = member.value_;
    if (v.is_null() || v == false || v == "" || (v.is_number() && v == 0)) return;
    member.lacks(v.dump(), "none of it");
  }

 private:
  std::string const& file_;
  Json const& value_;
  std::string path_;
};

Json parse(std::string_view bytes, std::string const& name) {
  Json json = Json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (json.is_discarded())
    throw_error(ErrorKind::data, {name, ": is not valid JSON; the file is damaged or cut short"});
  if (!json.is_object()) throw_error(ErrorKind::data, {name, ": holds no JSON object"});
  return json;
}

Vocabulary vocabulary_of(Node const& node) {
  if (!node.value().is_object()) node.refuse("must be an object of tokens and their ids");
  Vocabulary vocabulary;
  for (auto const& [token, id] : node.value().items())
    vocabulary.emplace(token, Node(node.file(), id, node.path() + "." + files::printable(token, 40)).id());
  return vocabulary;
}

void to_bytes(BpeDescription& d) {
  Vocabulary bytes;
  for (auto const& [token, id] : d.vocabulary)
    if (auto const made = bytes_of(token)) bytes.emplace(*made, id);
  d.spelled = std::exchange(d.vocabulary, std::move(bytes));
}

/// Returns the merge of two tokens. Their concatenation must be a token too. `where` is for messages.
Bpe::Merge merge_of(Vocabulary const& vocabulary, std::string_view left, std::string_view right,
                    std::string const& where) {
  auto const id = [&](std::string_view token) {
    auto const found = vocabulary.find(token);
    if (found == vocabulary.end())
      throw_error(ErrorKind::data, {where, " makes or needs '", files::printable(token, 60),
                                    "', which the vocabulary lacks; the files do not belong "
                                    "together or are damaged"});
    return found->second;
  };
  std::string const both = std::string(left) + std::string(right);
  return {id(left), id(right), id(both)};
}

Bpe::Merge merge_of(Vocabulary const& vocabulary, std::string_view line, std::string const& where) {
  std::size_t const space = line.find(' ');
  if (space == line.npos || line.find(' ', space + 1) != line.npos)
    throw_error(ErrorKind::data, {where, " must be two tokens with a space between them, but is '",
                                  files::printable(line, 60), "'"});
  return merge_of(vocabulary, line.substr(0, space), line.substr(space + 1), where);
}

// ---- the parts of a tokenizer.json ----------------------------------------------------------------------

void read_normalizer(Node const& node, std::vector<Normalizer>& out) {
  if (node.is_null()) return;
  std::string const& type = node["type"].text();
  if (type == "Sequence") {
    Node const list = node["normalizers"];
    for (std::size_t i = 0; i < list.size(); ++i) {
      list.at(i).check_depth();
      read_normalizer(list.at(i), out);
    }
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    out.push_back(type == "NFC"    ? Form::nfc
                  : type == "NFD"  ? Form::nfd
                  : type == "NFKC" ? Form::nfkc
                                   : Form::nfkd);
  } else if (type == "Prepend") {
    out.push_back(Prepend{node["prepend"].text()});
  } else if (type == "Replace") {
    Node const pattern = node["pattern"];
    if (!pattern["Regex"].is_null()) pattern.lacks("a Regex", "String");
    Replace const replace{pattern["String"].text(), node["content"].text()};
    if (replace.from.empty()) pattern["String"].refuse("is empty");
    if (replace.to.size() > 64) node["content"].refuse("is longer than 64 bytes");
    out.push_back(replace);
  } else {
    node["type"].lacks(type, "Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace");
  }
}

Split read_split(Node const& node) {
  Node const pattern = node["pattern"];
  std::string expression;
  if (!pattern["Regex"].is_null()) {
    expression = pattern["Regex"].text();
  } else {
    for (char const c : pattern["String"].text()) {
      if (static_cast<unsigned char>(c) < 0x80 && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z') &&
          !(c >= '0' && c <= '9') && c > ' ' && c != 0x7f)
        expression += '\\';
      expression += c;
    }
  }
  constexpr std::pair<char const*, Delimiter> names[] = {
      {"Removed", Delimiter::removed},
      {"Isolated", Delimiter::isolated},
      {"MergedWithPrevious", Delimiter::merged_with_previous},
      {"MergedWithNext", Delimiter::merged_with_next},
      {"Contiguous", Delimiter::contiguous}};
  std::string const& behavior = node["behavior"].text();
  auto const* const found = std::find_if(std::begin(names), std::end(names),
                                         [&](auto const& name) { return behavior == name.first; });
  if (found == std::end(names))
    node["behavior"].lacks(behavior, "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
  bool const invert = node["invert"].flag();
  bool const known = is_known_expression(expression) && (found->second == Delimiter::isolated ||
                                                         (found->second == Delimiter::removed && invert));
  return {Expression(node.file() + ": " + node.path() + ".pattern", expression), found->second, invert,
          known};
}

void read_pre_tokenizer(Node const& node, std::vector<PreTokenizer>& out) {
  if (node.is_null()) return;
  std::string const& type = node["type"].text();
  if (!out.empty() && std::holds_alternative<ByteLevel>(out.back()))
    node.refuse("follows a ByteLevel, which tessera supports only in the last position");
  if (type == "Sequence") {
    Node const list = node["pretokenizers"];
    for (std::size_t i = 0; i < list.size(); ++i) {
      list.at(i).check_depth();
      read_pre_tokenizer(list.at(i), out);
    }
  } else if (type == "ByteLevel") {
    out.push_back(ByteLevel{node["add_prefix_space"].flag(true), node["use_regex"].flag(true)});
  } else if (type == "Split") {
    out.push_back(read_split(node));
  } else if (type == "Digits") {
    out.push_back(Digits{node["individual_digits"].flag()});
  } else if (type == "Metaspace") {
    Metaspace metaspace;
    metaspace.replacement = node["replacement"].is_null() ? "\xe2\x96\x81" : node["replacement"].text();
    std::size_t at = 0;
    if (metaspace.replacement.empty() ||
        (next_character(metaspace.replacement, at), at != metaspace.replacement.size()))
      node["replacement"].refuse("must be one character");
    Node const scheme = node["prepend_scheme"];
    if (scheme.is_null()) {
      if (!node["add_prefix_space"].flag(true)) metaspace.scheme = Metaspace::Scheme::never;
    } else if (scheme.text() == "first") {
      metaspace.scheme = Metaspace::Scheme::first;
    } else if (scheme.text() == "never") {
      metaspace.scheme = Metaspace::Scheme::never;
    } else if (scheme.text() != "always") {
      scheme.lacks(scheme.text(), "always, first, never");
    }
    metaspace.split = node["split"].flag(true);
    out.push_back(std::move(metaspace));
  } else {
    node["type"].lacks(type, "Sequence, ByteLevel, Split, Digits, Metaspace");
  }
}

/// Reads the ids of the tokens that a post-processor adds before and after a text.
void read_post_processor(Node const& node, Ids& before, Ids& behind) {
  if (node.is_null()) return;
  std::string const& type = node["type"].text();
  if (type == "ByteLevel") return;  // changes only the offsets of tokens in the text
  if (type == "Sequence") {
    Node const list = node["processors"];
    for (std::size_t i = 0; i < list.size(); ++i) {
      list.at(i).check_depth();
      Ids inner_before, inner_behind;
      read_post_processor(list.at(i), inner_before, inner_behind);
      if (!(before.empty() && behind.empty()) && !(inner_before.empty() && inner_behind.empty()))
        list.at(i).refuse("adds tokens around a text, but an earlier part already does");
      before.insert(before.begin(), inner_before.begin(), inner_before.end());
      behind.insert(behind.end(), inner_behind.begin(), inner_behind.end());
    }
  } else if (type == "TemplateProcessing") {
    Node const single = node["single"];
    bool seen = false;
    for (std::size_t i = 0; i < single.size(); ++i) {
      Node const piece = single.at(i);
      if (!piece["Sequence"].is_null()) {
        if (seen) piece.refuse("is a second Sequence of a template for one text");
        seen = true;
        continue;
      }
      std::string const& token = piece["SpecialToken"]["id"].text();
      Node const ids = node["special_tokens"][token.c_str()]["ids"];
      for (std::size_t k = 0; k < ids.size(); ++k) (seen ? behind : before).push_back(ids.at(k).id());
    }
    if (!seen) single.refuse("has no Sequence");
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    for (char const* key : {"cls", "sep"})
      if (node[key].size() != 2) node[key].refuse("must be a token and its id");
    before.push_back(node["cls"].at(1).id());
    behind.push_back(node["sep"].at(1).id());
  } else {
    node["type"].lacks(type, "Sequence, ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing");
  }
}

}  // namespace

std::function<std::optional<TokenId>(std::string const&)> finder(BpeDescription const& d) {
  return [&d](std::string const& token) -> std::optional<TokenId> {
    auto const found = d.tokens().find(token);
    return found == d.tokens().end() ? std::nullopt : std::optional(found->second);
  };
}

BpeDescription parse_tokenizer_json(std::string_view bytes, std::string const& name) {
  Json const json = parse(bytes, name);
  Node const root(name, json);
  BpeDescription d;
  d.name = name;
  if (Node const version = root["version"]; !version.is_null() && version.text() != "1.0")
    version.lacks(version.text(), "1.0");
  // "truncation" and "padding" are ignored, because transformers sets both again for each text.
  read_normalizer(root["normalizer"], d.normalizers);
  read_pre_tokenizer(root["pre_tokenizer"], d.pre_tokenizers);
  read_post_processor(root["post_processor"], d.before, d.behind);

  Node const model = root["model"];
  if (model.is_null()) root.refuse("has no model");
  if (Node const type = model["type"]; !type.is_null() && type.text() != "BPE")
    type.lacks(type.text(), "BPE");
  for (char const* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) model.no(key);
  d.model.bytes = !d.pre_tokenizers.empty() && std::holds_alternative<ByteLevel>(d.pre_tokenizers.back());
  d.model.byte_fallback = model["byte_fallback"].flag();
  d.model.ignore_merges = model["ignore_merges"].flag();
  d.model.fuse_unknown = model["fuse_unk"].flag();
  d.vocabulary = vocabulary_of(model["vocab"]);
  if (Node const unknown = model["unk_token"]; !unknown.is_null()) {
    // The unknown token is possibly not in the vocabulary, if no text needs it.
    auto const found = d.vocabulary.find(unknown.text());
    if (found != d.vocabulary.end()) d.model.unknown = found->second;
  }
  Node const merges = model["merges"];
  d.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    Json const& pair = merges.value()[i];
    std::string const where = name + ": model.merges[" + std::to_string(i) + "]";
    if (pair.is_string()) {
      if (pair.get_ref<std::string const&>().starts_with("#version")) continue;
      d.merges.push_back(merge_of(d.vocabulary, pair.get_ref<std::string const&>(), where));
    } else {
      Node const both = merges.at(i);
      if (both.size() != 2) both.refuse("must be two tokens");
      d.merges.push_back(merge_of(d.vocabulary, both.at(0).text(), both.at(1).text(), where));
    }
  }
  if (d.model.bytes) to_bytes(d);
  if (d.model.bytes && d.model.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte)
      if (!d.vocabulary.contains(std::string(1, static_cast<char>(byte))))
        model["byte_fallback"].lacks("true under a ByteLevel, without tokens of all bytes",
                                     "it with them, or without a ByteLevel");
    d.model.byte_fallback = false;  // every byte has a token, so no fallback is needed
  }

  AddedTokenList list(d.added, static_cast<std::int64_t>(d.tokens().size()), finder(d));
  if (Node const added = root["added_tokens"]; !added.is_null())
    for (std::size_t i = 0; i < added.size(); ++i) {
      Node const token = added.at(i);
      (void)token["id"].id();  // only checked, because the package tokenizers assigns its own ids
      if (token["content"].text().empty()) continue;
      list.add({.content = token["content"].text(),
                .left_strip = token["lstrip"].flag(),
                .right_strip = token["rstrip"].flag(),
                .single_word = token["single_word"].flag(),
                .normalized = token["normalized"].flag(!token["special"].flag())});
    }
  return d;
}

BpeDescription parse_vocab_and_merges(std::string_view vocab, std::string const& vocab_name,
                                      std::string_view merges, std::string const& merges_name,
                                      bool prefix_space) {
  Json const json = parse(vocab, vocab_name);
  BpeDescription d;
  d.name = vocab_name;
  d.vocabulary = vocabulary_of(Node(vocab_name, json));
  std::int64_t line = 0;
  for (std::size_t at = 0; at < merges.size();) {
    std::size_t const end = std::min(merges.find('\n', at), merges.size());
    std::string_view text = merges.substr(at, end - at);
    at = end + 1;
    ++line;
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty() || text.starts_with("#version")) continue;
    d.merges.push_back(merge_of(d.vocabulary, text, merges_name + ": line " + std::to_string(line)));
  }
  to_bytes(d);
  d.pre_tokenizers.push_back(ByteLevel{prefix_space, true});
  return d;
}

}  // namespace text
}  // namespace programs
