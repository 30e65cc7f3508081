// SPDX-License-Identifier: Apache-2.0
#include "text/token_source.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "text/pipeline.hpp"

namespace tessera {
inline namespace v0 {
namespace text {

TokenSource tokenized(Tokenizer const& tokenizer, std::vector<std::string> paths, std::string const& field,
                      int threads, TokenOptions options) {
  if (paths.empty()) paths.emplace_back(default_data_path);
  std::string name;
  for (std::string const& path : paths) name += (name.empty() ? "" : ", ") + v0::detail::path_text(path);
  Inputs const inputs = find_inputs(paths, InputFormat::by_name);
  PipelineOptions pipeline;
  pipeline.threads =
      threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  pipeline.field = field;
  Ids ids;
  encode_inputs(tokenizer, inputs.files, pipeline, [&](Encoded const& block) {
    ids.insert(ids.end(), block.ids.begin(), block.ids.end());
    return true;
  });
  if (options.vocabulary == 0) options.vocabulary = tokenizer.vocabulary();
  return TokenSource::from_memory(std::move(ids), options, name + " by " + tokenizer.description());
}

}  // namespace text
}  // namespace v0
}  // namespace tessera
