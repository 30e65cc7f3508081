// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.hpp"

#include <array>
#include <filesystem>
#include <initializer_list>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/hash.hpp"

#include "text/bpe_tokenizer.hpp"
#include "text/sentence_piece.hpp"
#include "text/tokenizer_file.hpp"
#include "text/unicode.hpp"

namespace tessera {
inline namespace v0 {
namespace text {

namespace {

using Json = nlohmann::json;
using Path = std::filesystem::path;

bool is_file(Path const& path) {
  std::error_code code;
  return std::filesystem::is_regular_file(path, code);
}

std::string bytes_in(Path const& path) {
  FileBytes const bytes = FileBytes::open(path.string());
  return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

/// The files of a tokenizer, and what they say together.
struct Folder {
  Path place;
  std::string read;  // the files' names, for people
  std::string all;   // their bytes, for the hash
  Json config, map;  // tokenizer_config.json, special_tokens_map.json; null where absent

  std::string take(char const* name) {
    std::string bytes = bytes_in(place / name);
    read += (read.empty() ? "" : ", ") + std::string(name);
    all += name + std::to_string(bytes.size()) + ":" + bytes;
    return bytes;
  }
  Json take_json(char const* name) {
    if (!is_file(place / name)) return nullptr;
    Json json = Json::parse(take(name), nullptr, false);
    if (!json.is_object())
      throw Error(ErrorKind::data,
                  v0::detail::path_text(place / name) + ": holds no JSON object; repair or remove it");
    return json;
  }
  /// The text of a special token, such as "eos_token"; empty where no file names it.
  std::string special(char const* key) const {
    for (Json const* const json : {&config, &map}) {
      if (!json->is_object() || !json->contains(key)) continue;
      Json const& value = json->at(key);
      if (value.is_string()) return value.get<std::string>();
      if (value.is_object() && value.contains("content") && value["content"].is_string())
        return value["content"].get<std::string>();
    }
    return {};
  }
  bool flag(char const* key, bool absent) const {
    if (!config.is_object() || !config.contains(key) || !config[key].is_boolean()) return absent;
    return config[key].get<bool>();
  }
};

/// The tokens that GPT-2's two files do not mark as special; the files beside them do.
void add_special_tokens(Folder const& folder, BpeDescription& d) {
  auto const add = [&](std::string const& content) {
    for (AddedToken const& token : d.added)
      if (token.content == content) return;
    auto const found = d.vocabulary.find(content);
    if (!content.empty() && found != d.vocabulary.end()) d.added.push_back({content, found->second});
  };
  if (folder.config.is_object() && folder.config.contains("added_tokens_decoder") &&
      folder.config["added_tokens_decoder"].is_object())
    for (auto const& [key, value] : folder.config["added_tokens_decoder"].items()) {
      if (!value.is_object() || !value.contains("content") || !value["content"].is_string() || key.empty() ||
          key.size() > 9 || key.find_first_not_of("0123456789") != key.npos)
        throw Error(ErrorKind::data, v0::detail::path_text(folder.place / "tokenizer_config.json") +
                                         ": added_tokens_decoder." + v0::detail::printable(key, 40) +
                                         " is no token with an id");
      if (value["content"].get_ref<std::string const&>().empty()) continue;
      auto const flag = [&, &key = key, &value = value](char const* name) {
        auto const found = value.find(name);
        if (found == value.end() || found->is_null()) return false;
        if (!found->is_boolean())
          throw Error(ErrorKind::data, v0::detail::path_text(folder.place / "tokenizer_config.json") +
                                           ": added_tokens_decoder." + key + "." + name +
                                           " must be true or false");
        return found->template get<bool>();
      };
      if (flag("single_word"))
        throw Error(ErrorKind::data, v0::detail::path_text(folder.place / "tokenizer_config.json") +
                                         ": added_tokens_decoder." + key +
                                         ".single_word is true, which tessera does not have; it has false");
      d.added.push_back({value["content"].get<std::string>(), static_cast<TokenId>(std::stoul(key)),
                         flag("lstrip"), flag("rstrip"), false});
    }
  for (char const* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) add(folder.special(key));
  add("<|endoftext|>");
}

/// The token that ends a document: the one asked for, the folder's, or one of the usual names.
Ids end_of(Folder const& folder, Tokenizer const& tokenizer, std::string const& asked, Ids const& behind) {
  if (asked == "none") return behind;
  std::string name = asked.empty() ? folder.special("eos_token") : asked;
  std::optional<TokenId> id = name.empty() ? std::nullopt : tokenizer.find(name);
  if (!name.empty() && !id)
    throw Error(ErrorKind::data, v0::detail::path_text(folder.place) + ": has no token '" +
                                     v0::detail::printable(name, 60) +
                                     "', which is to end documents; give another --end-of-text, or none");
  for (char const* usual : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
    if (!id) id = tokenizer.find(usual);
  if (!id)
    throw Error(ErrorKind::data,
                v0::detail::path_text(folder.place) +
                    ": does not say which token ends a document; give --end-of-text TOKEN, or "
                    "none");
  Ids out = behind;
  if (out.empty() || out.back() != *id) out.push_back(*id);
  return out;
}

}  // namespace

std::string Tokenizer::document_form() const {
  std::string text;
  for (TokenId const id : before_) text += token_text(id) + " ";
  text += "TEXT";
  for (TokenId const id : behind_) text += " " + token_text(id);
  return text;
}

std::shared_ptr<Tokenizer const> Tokenizer::open(std::string const& path, std::string const& end_of_text) {
  std::error_code code;
  Path place = path;
  std::string only;  // a file that was named itself
  if (!std::filesystem::is_directory(place, code)) {
    if (!is_file(place))
      throw Error(ErrorKind::data,
                  v0::detail::path_text(path) +
                      ": no such folder; name one with a tokenizer.json, or vocab.json and merges.txt, or a "
                      "tokenizer.model");
    only = place.filename().string();
    place = place.has_parent_path() ? place.parent_path() : Path(".");
  }
  bool const json = is_file(place / "tokenizer.json"), model = is_file(place / "tokenizer.model");
  bool const pair = is_file(place / "vocab.json") && is_file(place / "merges.txt");
  Folder folder{place, {}, {}, {}, {}};
  std::string const where = v0::detail::path_text(place);
  auto const take_side_files = [&] {
    std::string const main = folder.read;
    folder.config = folder.take_json("tokenizer_config.json");
    folder.map = folder.take_json("special_tokens_map.json");
    folder.read = main;
  };
  auto const finish = [&](auto tokenizer,
                          std::string const& taken_before) -> std::shared_ptr<Tokenizer const> {
    tokenizer->set_end_of_text(end_of(folder, *tokenizer, end_of_text, tokenizer->behind()));
    tokenizer->set_source(folder.read + taken_before, hash_of(folder.all));
    return tokenizer;
  };

  if (only == "tokenizer.json" || (only.empty() && json)) {
    BpeDescription d = parse_tokenizer_json(folder.take("tokenizer.json"), where + "/tokenizer.json");
    take_side_files();
    return finish(std::make_shared<BpeTokenizer>(std::move(d)),
                  only.empty() && model  ? ", taken before tokenizer.model"
                  : only.empty() && pair ? ", taken before vocab.json and merges.txt"
                                         : "");
  }
  if (only == "vocab.json" || only == "merges.txt" || (only.empty() && pair)) {
    if (!pair)
      throw Error(ErrorKind::data,
                  where + ": vocab.json and merges.txt belong together, and one is not there");
    std::string const vocab = folder.take("vocab.json"), merges = folder.take("merges.txt");
    take_side_files();
    BpeDescription d = parse_vocab_and_merges(vocab, where + "/vocab.json", merges, where + "/merges.txt",
                                              folder.flag("add_prefix_space", false));
    add_special_tokens(folder, d);
    auto tokenizer = std::make_shared<BpeTokenizer>(std::move(d));
    if (folder.flag("add_bos_token", false)) {
      std::string const begin = folder.special("bos_token");
      auto const id = tokenizer->find(begin);
      if (!id)
        throw Error(ErrorKind::data, where +
                                         "/tokenizer_config.json: add_bos_token is true, and bos_token '" +
                                         v0::detail::printable(begin, 60) + "' is no token of vocab.json");
      tokenizer->set_before({*id});
    }
    return finish(std::move(tokenizer), only.empty() && model ? ", taken before tokenizer.model" : "");
  }
  if (!only.empty() || model) {
    std::string const name = only.empty() ? "tokenizer.model" : only;
    std::string const bytes = folder.take(name.c_str());
    take_side_files();
    auto tokenizer = std::make_shared<SentencePieceTokenizer>(bytes, where + "/" + name,
                                                              folder.flag("add_bos_token", true));
    if (auto const end = tokenizer->end_token(); end && end_of_text.empty()) {
      tokenizer->set_end_of_text({*end});
      tokenizer->set_source(folder.read, hash_of(folder.all));
      return tokenizer;
    }
    return finish(std::move(tokenizer), "");
  }
  throw Error(ErrorKind::data,
              where +
                  ": holds no tokenizer; there must be a tokenizer.json, a vocab.json with a "
                  "merges.txt, or a tokenizer.model");
}

Ids encode(Tokenizer const& tokenizer, std::string_view bytes, bool whole) {
  Ids out;
  std::string storage;
  if (whole) out = tokenizer.before();
  tokenizer.encoder()->encode(repaired(bytes, storage), true, out);
  if (whole) out.insert(out.end(), tokenizer.behind().begin(), tokenizer.behind().end());
  return out;
}

}  // namespace text
}  // namespace v0
}  // namespace tessera
