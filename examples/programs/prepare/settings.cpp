// SPDX-License-Identifier: Apache-2.0
#include "prepare/settings.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/detail/affinity.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/hash.hpp"

#include "cli/launch.hpp"
#include "cli/outputs.hpp"
#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

void declare(CommandLine& line, PrepareFlags& flags) {
  advise_on_launcher_flags(line, "prepare needs no launcher, so leave it out");
  line.group("Inputs");
  line.inputs(
      "--input", "INPUT...",
      "files and folders of text or JSONL, optionally compressed with gzip or zstd; - is standard input",
      [&](std::string const&, Names const& values) { flags.inputs = values; });
  line.choice(
      "--format", {"auto", "text", "jsonl"}, flags.format,
      "auto: JSONL by name (.jsonl, .ndjson, .json of one object a line, also .gz and .zst), else text");
  line.text("--field", "NAME", flags.field, "the field of a JSONL record that holds its text");
  line.bytes("--data-bytes", flags.data_bytes, "use only this many bytes of the inputs, such as 100MB");

  line.group("Tokens");
  line.text("--tokenizer", "DIR", flags.tokenizer,
            "a folder with tokenizer.json, vocab.json and merges.txt, or tokenizer.model");
  line.text("--end-of-text", "TOKEN", flags.end_of_text,
            "the token that ends a document, instead of the folder's own; or none");

  line.group("Outputs");
  line.path("--output", "F.bin", flags.output, "the token file; F.bin.json next to it describes it");
  line.choice("--ids", {"auto", "uint16", "uint32"}, flags.ids,
              "auto: uint16 if the vocabulary allows it; both with llm.c's header");
  line.real("--validation-share", flags.validation_share,
            "fraction of the documents that go to a separate file",
            {.min = 0.0, .max = 1.0, .open_above = true});
  line.path("--validation-output", "V.bin", flags.validation_output,
            "the separate file; default: F.validation.bin");
  line.toggle("--resume", flags.resume, "continue where an earlier run of the same command ended");
  line.integer("--save-every", flags.save_every, "seconds between points from which --resume can continue", 0,
               86400);
  line.path("--check", "F.bin", flags.check, "check a token file against its .json, and do nothing else");

  line.group("Machine");
  line.integer("--threads", flags.threads, "threads that encode; 0: all cores", 0, 1024);
  line.toggle("-q,--quiet", flags.quiet, "print errors only");
}

void need_check_alone(CommandLine const& line, PrepareFlags const& flags) {
  auto const no_effect = [](std::string const& what) {
    refuse(what + " has no effect with --check; leave one of them out");
  };
  if (!flags.inputs.empty()) no_effect("input " + in_quotes(flags.inputs.front()));
  for (char const* flag :
       {"--format", "--field", "--data-bytes", "--tokenizer", "--end-of-text", "--output", "--ids",
        "--validation-share", "--validation-output", "--resume", "--save-every", "--threads"})
    if (line.given(flag)) no_effect(flag);
}

Preparation resolve(CommandLine const& line, PrepareFlags flags) {
  Preparation made;
  if (flags.inputs.empty())
    refuse("no inputs; give files or folders: prepare INPUT... --tokenizer DIR --output F.bin");
  if (flags.tokenizer.empty()) refuse("no tokenizer; give --tokenizer DIR");
  if (flags.output.empty()) refuse("no output; give --output F.bin");
  if (flags.output.extension() != ".bin")
    refuse("--output " + in_quotes(flags.output.string()) + " must end in .bin, the ending of token files");
  if (std::count(flags.inputs.begin(), flags.inputs.end(), "-") > 1)
    refuse("standard input (-) is given twice");
  bool const stdin_read = std::count(flags.inputs.begin(), flags.inputs.end(), "-") > 0;
  if (stdin_read && flags.resume)
    refuse("--resume cannot read standard input (-) again; name files, or start again without --resume");
  if (flags.validation_share > 0.0 && flags.validation_output.empty())
    flags.validation_output = std::filesystem::path(flags.output).replace_extension(".validation.bin");
  if (flags.validation_share == 0.0 && !flags.validation_output.empty())
    refuse("--validation-output needs a share; give --validation-share 0.01 or so");
  if (!flags.validation_output.empty() && flags.validation_output.extension() != ".bin")
    refuse("--validation-output " + in_quotes(flags.validation_output.string()) + " must end in .bin");
  flags.all_cores = flags.threads == 0;
  if (flags.all_cores) flags.threads = affinity::core_count();

  made.tokenizer = text::Tokenizer::open(flags.tokenizer, flags.end_of_text);
  made.inputs = text::find_inputs(flags.inputs, flags.format == "auto"   ? text::InputFormat::by_name
                                                : flags.format == "text" ? text::InputFormat::text
                                                                         : text::InputFormat::records);
  std::int64_t const vocabulary = made.tokenizer->vocabulary();
  if (flags.ids == "uint16" && vocabulary > 65536)
    refuse("--ids uint16 holds 65,536 tokens, but " + flags.tokenizer + " has " + grouped(vocabulary) +
           "; give --ids uint32, or leave it out");
  made.ids = flags.ids == "uint32" || vocabulary > 65536 ? TokenFormat::u32 : TokenFormat::u16;
  made.state = std::filesystem::path(flags.output) += ".state";

  std::vector<NamedPath> output_files;
  for (auto const& [flag, path] :
       {std::pair("--output", flags.output), std::pair("--validation-output", flags.validation_output)})
    for (char const* suffix : {"", ".json", ".partial", ".state"})
      if (!path.empty()) output_files.emplace_back(flag, std::filesystem::path(path) += suffix);
  ProgramFiles(line).check(output_files);
  check_writable(flags.output);
  if (!flags.validation_output.empty()) check_writable(flags.validation_output);

  std::string all = made.tokenizer->hash() + made.tokenizer->document_form() + "|" + flags.field + "|" +
                    std::to_string(flags.data_bytes) + "|" + shortest(flags.validation_share) + "|" +
                    name_of(made.ids);
  for (text::InputFile const& file : made.inputs.files)
    all += "|" + file.path + (file.records ? " records " : " text ") + std::to_string(file.size) + " " +
           std::to_string(file.changed);
  made.fingerprint = hash_of(all);
  made.flags = std::move(flags);
  return made;
}

}  // namespace cli
}  // namespace programs
