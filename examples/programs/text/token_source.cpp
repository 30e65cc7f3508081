// SPDX-License-Identifier: Apache-2.0
// Implements token_source.hpp: encodes text to tokens in memory.
#include "text/token_source.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/detail/affinity.hpp"

#include "text/pipeline.hpp"
#include "text/unicode.hpp"

namespace programs {
using namespace tessera;
namespace text {

TokenSource tokenized(Tokenizer const& tokenizer, std::vector<std::string> paths, std::string const& field,
                      int threads, TokenOptions options) {
  if (paths.empty()) paths.emplace_back(default_data_path);
  std::string name;
  for (std::string const& path : paths) name += (name.empty() ? "" : ", ") + files::path_text(path);
  Inputs const inputs = find_inputs(paths, InputFormat::by_name);
  PipelineOptions pipeline;
  pipeline.threads = threads > 0 ? threads : affinity::core_count();
  pipeline.field = field;
  Ids ids;
  std::int64_t replaced = 0;
  encode_inputs(tokenizer, inputs.files, pipeline, [&](Encoded const& block) {
    replaced += block.replaced;
    ids.insert(ids.end(), block.ids.begin(), block.ids.end());
    return true;
  });
  if (options.vocabulary == 0) options.vocabulary = tokenizer.vocabulary();
  return TokenSource::from_memory(std::move(ids), options,
                                  name + replaced_text(replaced) + " by " + tokenizer.description());
}

RecordEncoder record_encoder(std::shared_ptr<Tokenizer const> tokenizer) {
  std::shared_ptr<Encoder> const encoder = tokenizer->encoder();
  return [=, storage = std::string()](std::string_view bytes, Ids& out) mutable {
    out.insert(out.end(), tokenizer->before().begin(), tokenizer->before().end());
    encoder->encode(repaired(bytes, storage), true, out);
    out.insert(out.end(), tokenizer->behind().begin(), tokenizer->behind().end());
  };
}

}  // namespace text
}  // namespace programs
