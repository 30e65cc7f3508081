// SPDX-License-Identifier: Apache-2.0
// Opens the tokenizer in a folder: finds its files, reads its settings, and refuses tokenizers that Hugging
// Face's package transformers would treat in a way that Tessera does not support.
#include "text/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/hash.hpp"
#include "tessera/io/json_lines.hpp"

#include "text/added_tokens.hpp"
#include "text/bpe_tokenizer.hpp"
#include "text/sentence_piece.hpp"
#include "text/tokenizer_file.hpp"
#include "text/unicode.hpp"

namespace programs {
using namespace tessera;
namespace text {

namespace {

using Json = nlohmann::json;
using Path = std::filesystem::path;

bool is_file(Path const& path) {
  std::error_code code;
  return std::filesystem::is_regular_file(path, code);
}

/// Says which files of tokenizers a folder has.
struct MainFiles {
  bool json, pair, model;
  bool any() const { return json || pair || model; }
};
MainFiles main_files_in(Path const& folder) {
  return {is_file(folder / "tokenizer.json"),
          is_file(folder / "vocab.json") && is_file(folder / "merges.txt"),
          is_file(folder / "tokenizer.model")};
}

std::string bytes_in(Path const& path) {
  FileBytes const bytes = FileBytes::open(path.string());
  return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

/// The files in the folder of a tokenizer: their names, their bytes for the hash, and the parsed settings.
struct Folder {
  Path place;
  std::string read;  // names of the files that were read, for messages
  std::string all;   // bytes of the files that were read, for the hash
  std::vector<TokenizerFile> files;
  Json config, map,
      added;  // tokenizer_config.json, special_tokens_map.json, added_tokens.json; null if missing

  std::string read_file(char const* name) {
    std::string bytes = bytes_in(place / name);
    read += (read.empty() ? "" : ", ") + std::string(name);
    all += name + std::to_string(bytes.size()) + ":" + bytes;
    files.push_back({place / name, name});
    return bytes;
  }
  Json read_json(char const* name) { return is_file(place / name) ? parsed(name, read_file(name)) : nullptr; }
  /// Parses a file as Python's json module does: accepts also NaN, Infinity and unpaired surrogates.
  Json parsed(char const* name, std::string const& bytes) const {
    Json json = Json::parse(bytes, nullptr, false);
    if (json.is_discarded())
      json = Json::parse(json_lines::with_null_for_nan(json_lines::with_whole_pairs(bytes)), nullptr, false);
    if (!json.is_object())
      throw Error(ErrorKind::data,
                  files::path_text(place / name) + ": holds no JSON object; repair or remove it");
    return json;
  }
  bool lists_added() const { return config.is_object() && config.contains("added_tokens_decoder"); }
  /// Returns the entry of a special token such as "eos_token". An entry is a string, or an object with a
  /// member "content". Searches special_tokens_map.json and then tokenizer_config.json. If
  /// tokenizer_config.json lists added tokens, searches only tokenizer_config.json. Returns null if there is
  /// no entry.
  Json const& named(char const* key) const {
    static Json const none;
    for (Json const* const json : {lists_added() ? &none : &map, &config})
      if (json->is_object() && json->contains(key) && !json->at(key).is_null()) return json->at(key);
    return none;
  }
  /// Returns the text of a special token such as "eos_token", or "" if no file has it.
  std::string special(char const* key) const {
    Json const& value =
        named(key).is_null() && map.is_object() && map.contains(key) ? map.at(key) : named(key);
    if (value.is_string()) return value.get<std::string>();
    if (value.is_object() && value.contains("content") && value["content"].is_string())
      return value["content"].get<std::string>();
    return {};
  }
  /// Whether a file sets a special token to null, which means that the tokenizer does not have it.
  bool denies(char const* key) const {
    for (Json const* const json : {&config, &map})
      if (json->is_object() && json->contains(key) && json->at(key).is_null()) return named(key).is_null();
    return false;
  }
  bool is_null(char const* key) const {
    return config.is_object() && config.contains(key) && config[key].is_null();
  }
  bool flag(char const* key, bool absent) const {
    if (!config.is_object() || !config.contains(key) || !config[key].is_boolean()) return absent;
    return config[key].get<bool>();
  }
};

/// A token that is not defined in the tokenizer's main file (such as tokenizer.json) but in a file next to
/// it, such as added_tokens.json.
struct SideToken {
  AddedToken token;
  std::string from;         ///< the file and the key that define the token
  std::int64_t given = -1;  ///< the id in this file; -1: none
};

/// Returns the tokens that the files next to the tokenizer's main file add, in the order in which Hugging
/// Face's package transformers adds them.
std::vector<SideToken> side_tokens(Folder const& folder) {
  std::vector<SideToken> tokens;
  auto const file = [&](char const* name) { return files::path_text(folder.place / name); };
  auto const add = [&](Json const& value, std::string const& from, bool special, std::int64_t given = -1) {
    SideToken side{{}, from, given};
    if (value.is_string()) {
      side.token.content = value.get<std::string>();
      side.token.normalized = !special;
    } else {
      side.token.content = value.value("content", std::string());
      auto const flag = [&](char const* name, bool absent) {
        auto const found = value.find(name);
        if (found == value.end() || found->is_null()) return absent;
        if (!found->is_boolean()) throw Error(ErrorKind::data, from + "." + name + " must be true or false");
        return found->get<bool>();
      };
      side.token.left_strip = flag("lstrip", false);
      side.token.right_strip = flag("rstrip", false);
      side.token.single_word = flag("single_word", false);
      side.token.normalized = flag("normalized", !special && !flag("special", false));
    }
    if (!side.token.content.empty()) tokens.push_back(std::move(side));
  };
  auto const is_token = [](Json const& value) {
    return value.is_string() ||
           (value.is_object() && value.contains("content") && value["content"].is_string());
  };
  if (folder.lists_added() && folder.config["added_tokens_decoder"].is_object()) {
    std::string const where = file("tokenizer_config.json") + ": added_tokens_decoder.";
    std::map<std::int64_t, Json const*> by_id;
    for (auto const& [key, value] : folder.config["added_tokens_decoder"].items()) {
      if (!value.is_object() || !is_token(value) || key.empty() || key.size() > 9 ||
          key.find_first_not_of("0123456789") != key.npos)
        throw Error(ErrorKind::data, where + files::printable(key, 40) + " is not a token with an id");
      by_id[std::stol(key)] = &value;
    }
    for (auto const& [id, value] : by_id) add(*value, where + std::to_string(id), false, id);
  } else if (folder.added.is_object()) {
    std::map<std::int64_t, Json> by_id;
    for (auto const& [content, id] : folder.added.items()) {
      if (!id.is_number_unsigned() || id > 999999999)
        throw Error(ErrorKind::data, file("added_tokens.json") + ": " + files::printable(content, 40) +
                                         " must have a whole number as its id");
      by_id[id.get<std::int64_t>()] = content;
    }
    for (auto const& [id, content] : by_id)
      add(content, file("added_tokens.json") + ": " + files::printable(content.get<std::string>(), 40), false,
          id);
  }
  std::string const where = files::path_text(folder.place) + ": ";
  for (char const* key :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (is_token(folder.named(key))) add(folder.named(key), where + key, true);
  for (char const* key : {"additional_special_tokens", "extra_special_tokens"})
    for (Json const& value : folder.named(key))
      if (is_token(value)) add(value, where + key, true);
  return tokens;
}

/// Adds the tokens of the files next to the tokenizer's main file to `list`. If `plain` is true, the tokens
/// are searched for in the text before normalization. Throws Error(data) if the id in a file differs from the
/// id that transformers would assign.
void add_side_tokens(Folder const& folder, AddedTokenList& list, bool plain) {
  for (SideToken& side : side_tokens(folder)) {
    if (plain && side.token.single_word)
      throw Error(
          ErrorKind::data,
          side.from +
              ".single_word is true, which tessera supports only in a tokenizer.json; set it to false");
    if (plain) side.token.normalized = false;
    if (side.given < 0 && list.contains(side.token.content)) continue;
    std::string const content = side.token.content;
    TokenId const id = list.add(std::move(side.token));
    if (side.given >= 0 && side.given != std::int64_t{id})
      throw Error(ErrorKind::data,
                  side.from + " gives '" + files::printable(content, 60) + "' the id " +
                      std::to_string(side.given) + ", but transformers would assign " + std::to_string(id) +
                      "; number added tokens without gaps, or make a tokenizer.json with save_pretrained of "
                      "transformers");
  }
}

/// The class that Hugging Face's package transformers uses for the tokenizer of a folder.
struct TokenizerClass {
  std::string key;     ///< the file and the key that define the class; empty: none
  std::string value;   ///< the value of this key
  bool model = false;  ///< whether the value is a model type, which implies a class

  /// Whether the class name, without a "Fast" at its end, is in `classes`, or the model type is in `models`.
  bool is_one_of(std::initializer_list<std::string_view> classes,
                 std::initializer_list<std::string_view> models) const {
    std::string_view name = value;
    if (!model && name.ends_with("Fast")) name.remove_suffix(4);
    auto const& known = model ? models : classes;
    return std::find(known.begin(), known.end(), name) != known.end();
  }
  /// Returns whether transformers treats the folder in no special way: the folder names no tokenizer class,
  /// or names a generic class.
  bool is_plain() const {
    return value.empty() || is_one_of({"PreTrainedTokenizer", "TokenizersBackend"}, {});
  }
  bool is_gpt2() const {
    return is_one_of({"GPT2Tokenizer", "CodeGenTokenizer"}, {"gpt2", "opt", "gpt_neo", "gptj", "gpt_bigcode",
                                                             "codegen", "phi", "starcoder2", "blip-2"});
  }
  bool is_llama() const { return is_one_of({"LlamaTokenizer"}, {"llama", "mistral", "mixtral", "phi3"}); }
  bool is_gemma() const {
    return is_one_of({"GemmaTokenizer"}, {"gemma", "gemma2", "gemma3", "gemma3_text", "recurrent_gemma"});
  }
};

/// Returns the tokenizer class that tokenizer_config.json names. If tokenizer_config.json names no class,
/// returns the class that config.json names. transformers searches in this order too.
TokenizerClass class_of(Folder const& folder) {
  auto const of = [&](Json const& json, char const* file, char const* key) -> TokenizerClass {
    if (!json.is_object() || !json.contains(key) || json[key].is_null()) return {};
    std::string const where = files::path_text(folder.place / file) + ": " + key;
    if (!json[key].is_string()) throw Error(ErrorKind::data, where + " must be a string");
    return {where, json[key].get<std::string>(), key == std::string_view("model_type")};
  };
  TokenizerClass found = of(folder.config, "tokenizer_config.json", "tokenizer_class");
  if (!found.value.empty() || !is_file(folder.place / "config.json")) return found;
  Json const config = folder.parsed("config.json", bytes_in(folder.place / "config.json"));
  found = of(config, "config.json", "tokenizer_class");
  return found.value.empty() ? of(config, "config.json", "model_type") : found;
}

/// Throws Error(data) for a folder with the tokenizer class `name`, because transformers would encode texts
/// in another way than Tessera. `meaning` is the end of the message and describes the difference.
[[noreturn]] void refuse_class(TokenizerClass const& name, std::string_view meaning) {
  throw Error(ErrorKind::data, name.key + " is " + files::printable(name.value, 60) + std::string(meaning));
}

/// Applies `add_prefix_space` of tokenizer_config.json to the tokenizer `d` of a tokenizer.json, if
/// transformers does this for the folder's tokenizer class. Throws Error(data) if both files contradict each
/// other.
void apply_prefix_space(Folder const& folder, BpeDescription& d) {
  TokenizerClass const name = class_of(folder);
  bool const given = folder.config.is_object() && folder.config.contains("add_prefix_space") &&
                     folder.config["add_prefix_space"].is_boolean();
  bool const add_prefix = folder.flag("add_prefix_space", false);
  bool const implied = name.is_gpt2() || name.is_one_of({"GPTNeoXTokenizer", "RobertaTokenizer"},
                                                        {"gpt_neox", "roberta", "bart"});
  if (name.is_plain() || (!given && !implied)) return;
  auto& stages = d.pre_tokenizers;
  bool const byte_level = !stages.empty() && std::holds_alternative<ByteLevel>(stages.back());
  if (byte_level && name.is_llama()) return;  // for these files transformers ignores the tokenizer class
  if (byte_level && stages.size() == 1) {
    std::get<ByteLevel>(stages.front()).prefix_space = add_prefix;
    return;
  }
  bool adds = std::any_of(d.normalizers.begin(), d.normalizers.end(),
                          [](Normalizer const& one) { return std::holds_alternative<Prepend>(one); });
  for (PreTokenizer const& stage : stages)
    if (auto const* const level = std::get_if<ByteLevel>(&stage))
      adds = adds || level->prefix_space;
    else if (auto const* const metaspace = std::get_if<Metaspace>(&stage))
      adds = adds || metaspace->scheme != Metaspace::Scheme::never;
  if (given && add_prefix != adds)
    throw Error(ErrorKind::data,
                files::path_text(folder.place / "tokenizer_config.json") + ": add_prefix_space is " +
                    (add_prefix ? "true" : "false") + ", but tokenizer.json " +
                    (adds ? "puts a space in front of a text" : "puts no space in front of a text") +
                    "; make both agree");
}

/// Returns whether the bytes are a tiktoken vocabulary: each line has a token in base64, a space and the
/// token's rank. Only the first line is checked.
bool is_tiktoken(std::string_view bytes) {
  std::string_view line = bytes.substr(0, std::min<std::size_t>(bytes.find('\n'), 1024));
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::size_t const space = line.find(' ');
  if (space == 0 || space == line.npos || space + 1 == line.size()) return false;
  return line.find_first_not_of("0123456789", space + 1) == line.npos && space % 4 == 0 &&
         line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") == space;
}

/// Returns the tokens to add after a document: the tokens `behind`, then the token that ends a document. This
/// last token is `requested`, or the folder's eos_token, or a common end-of-text token. If `requested` is
/// "none", returns only `behind`.
Ids end_of(Folder const& folder, Tokenizer const& tokenizer, std::string const& requested,
           Ids const& behind) {
  if (requested == "none") return behind;
  std::string name = requested.empty() ? folder.special("eos_token") : requested;
  std::optional<TokenId> id = name.empty() ? std::nullopt : tokenizer.find(name);
  if (!name.empty() && !id)
    throw Error(ErrorKind::data, files::path_text(folder.place) + ": has no token '" +
                                     files::printable(name, 60) +
                                     "', which should end documents; give another --end-of-text, or none");
  for (char const* usual : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
    if (!id) id = tokenizer.find(usual);
  if (!id)
    throw Error(ErrorKind::data,
                files::path_text(folder.place) +
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

bool Tokenizer::is_in(std::filesystem::path const& path) {
  std::error_code code;
  return std::filesystem::is_directory(path, code) && main_files_in(path).any();
}

std::shared_ptr<Tokenizer const> Tokenizer::open(std::string const& path, std::string const& end_of_text) {
  std::error_code code;
  Path place = path;
  std::string only;  // the name of the file, if `path` is a file
  if (!std::filesystem::is_directory(place, code)) {
    if (!is_file(place))
      throw Error(
          ErrorKind::data,
          files::path_text(path) +
              ": no such folder; name one with a tokenizer.json, or vocab.json and merges.txt, or a "
              "tokenizer.model (docs/how-to/load-and-save-weights.md has the command that downloads one)");
    only = place.filename().string();
    place = place.has_parent_path() ? place.parent_path() : Path(".");
  }
  auto const [json, pair, model] = main_files_in(place);
  Folder folder{place, {}, {}, {}, {}, {}, {}};
  std::string const where = files::path_text(place);
  auto const take_side_files = [&] {
    std::string const main = folder.read;
    folder.config = folder.read_json("tokenizer_config.json");
    folder.map = folder.read_json("special_tokens_map.json");
    folder.added = folder.read_json("added_tokens.json");
    folder.read = main;
    if (folder.flag("split_special_tokens", false))
      throw Error(ErrorKind::data,
                  where +
                      "/tokenizer_config.json: split_special_tokens is true, which tessera does not support; "
                      "set it to false if no text contains a special token");
  };
  auto const finish = [&](auto tokenizer,
                          std::string const& read_before) -> std::shared_ptr<Tokenizer const> {
    tokenizer->set_end_of_text(end_of(folder, *tokenizer, end_of_text, tokenizer->behind()));
    tokenizer->set_source(folder.read + read_before, hash_of(folder.all), folder.files);
    return tokenizer;
  };

  if (only == "tokenizer.json" || (only.empty() && json)) {
    BpeDescription d = parse_tokenizer_json(folder.read_file("tokenizer.json"), where + "/tokenizer.json");
    take_side_files();
    apply_prefix_space(folder, d);
    AddedTokenList list(d.added, static_cast<std::int64_t>(d.tokens().size()), finder(d));
    add_side_tokens(folder, list, false);
    return finish(std::make_shared<BpeTokenizer>(std::move(d)),
                  only.empty() && model  ? ", taken before tokenizer.model"
                  : only.empty() && pair ? ", taken before vocab.json and merges.txt"
                                         : "");
  }
  if (only == "vocab.json" || only == "merges.txt" || (only.empty() && pair)) {
    if (!pair)
      throw Error(ErrorKind::data, where + ": vocab.json and merges.txt are both needed, but one is missing");
    std::string const vocab = folder.read_file("vocab.json"), merges = folder.read_file("merges.txt");
    take_side_files();
    if (TokenizerClass const name = class_of(folder); !name.is_plain() && !name.is_gpt2())
      refuse_class(name,
                   ", but tessera reads vocab.json and merges.txt as GPT2Tokenizer does; make a "
                   "tokenizer.json with save_pretrained of transformers");
    BpeDescription d = parse_vocab_and_merges(vocab, where + "/vocab.json", merges, where + "/merges.txt",
                                              folder.flag("add_prefix_space", false));
    AddedTokenList list(d.added, static_cast<std::int64_t>(d.tokens().size()), finder(d));
    add_side_tokens(folder, list, true);
    // GPT2Tokenizer of transformers uses <|endoftext|> for these special tokens if no file defines them, and
    // adds this token to the vocabulary.
    std::string const usual = "<|endoftext|>";
    for (char const* key : {"bos_token", "eos_token", "unk_token"})
      if (folder.special(key).empty() && !folder.denies(key) && d.tokens().contains(usual) &&
          !list.contains(usual))
        list.add({.content = usual});
    auto tokenizer = std::make_shared<BpeTokenizer>(std::move(d));
    if (folder.flag("add_bos_token", false)) {
      std::string begin = folder.special("bos_token");
      if (begin.empty() && !folder.denies("bos_token")) begin = usual;
      auto const id = tokenizer->find(begin);
      if (!id)
        throw Error(ErrorKind::data, where +
                                         "/tokenizer_config.json: add_bos_token is true, and bos_token '" +
                                         files::printable(begin, 60) + "' is not a token of vocab.json");
      tokenizer->set_before({*id});
    }
    return finish(std::move(tokenizer), only.empty() && model ? ", taken before tokenizer.model" : "");
  }
  if (!only.empty() || model) {
    std::string const name = only.empty() ? "tokenizer.model" : only;
    std::string const bytes = folder.read_file(name.c_str());
    folder.files.back().name = "tokenizer.model";  // a file that was named can have another name
    take_side_files();
    if (is_tiktoken(bytes))
      throw Error(ErrorKind::data, where + "/" + name +
                                       ": is a vocabulary of tiktoken, which tessera does not read; use the "
                                       "tokenizer.json of the same model");
    TokenizerClass const tokenizer_class = class_of(folder);
    bool const gemma = tokenizer_class.is_gemma();
    if (!tokenizer_class.is_plain() && !tokenizer_class.is_llama() && !gemma)
      refuse_class(
          tokenizer_class,
          ", but tessera reads a SentencePiece model as LlamaTokenizer does; use another tokenizer, or "
          "copy " +
              name + " into a folder of its own to get the ids of the package sentencepiece");
    auto tokenizer = std::make_shared<SentencePieceTokenizer>(bytes, where + "/" + name);
    Ids const letter = encode(*tokenizer, "x");
    if (gemma && !letter.empty() && tokenizer->token_text(letter.front()).starts_with(word_mark))
      refuse_class(tokenizer_class,
                   ", which puts no space in front of a text, but the model does; use another tokenizer");
    bool const bare = !folder.config.is_object() && !folder.map.is_object() && !folder.added.is_object();
    if (!bare) {
      std::vector<AddedToken> added;
      AddedTokenList list(added, tokenizer->vocabulary(),
                          [&](std::string const& token) { return tokenizer->find(token); });
      add_side_tokens(folder, list, true);
      for (auto const& [key, usual] : {std::pair("bos_token", gemma ? "<bos>" : "<s>"),
                                       {"eos_token", gemma ? "<eos>" : "</s>"},
                                       {"unk_token", "<unk>"},
                                       {"pad_token", gemma ? "<pad>" : ""}})
        if (folder.special(key).empty() && !folder.denies(key) && tokenizer->find(usual))
          list.add({.content = usual});
      bool const prefix = !folder.is_null("add_prefix_space") || folder.flag("legacy", true);
      tokenizer->add_tokens(std::move(added), folder.flag("legacy", false),
                            folder.flag("add_prefix_space", prefix));
    }
    std::string const bos = folder.special("bos_token"), eos = folder.special("eos_token");
    auto const begin = bos.empty() ? tokenizer->begin_token() : tokenizer->find(bos);
    auto const end = eos.empty() ? tokenizer->end_token() : tokenizer->find(eos);
    if (begin && folder.flag("add_bos_token", !folder.is_null("add_bos_token")) &&
        !folder.denies("bos_token"))
      tokenizer->set_before({*begin});
    if (end && folder.flag("add_eos_token", false)) tokenizer->set_end_of_text({*end});
    if (end && end_of_text.empty()) {
      tokenizer->set_end_of_text({*end});
      tokenizer->set_source(folder.read, hash_of(folder.all), folder.files);
      return tokenizer;
    }
    return finish(std::move(tokenizer), "");
  }
  for (char const* other : {"spiece.model", "sentencepiece.bpe.model", "spm.model"})
    if (is_file(place / other))
      throw Error(ErrorKind::data,
                  where + ": holds " + other +
                      ", whose pieces get other ids in most tokenizer classes; name the file itself to get "
                      "the ids of the package sentencepiece");
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
}  // namespace programs
