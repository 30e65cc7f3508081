// SPDX-License-Identifier: Apache-2.0
// Opens the data that the command line names, and counts its samples and the steps of an epoch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/data/batch.hpp"
#include "tessera/io/records.hpp"
#include "tessera/io/xxhash.hpp"
#include "tessera/train/options.hpp"

#include "cli/run_flags.hpp"
#include "cli/terminal.hpp"
#include "results/results.hpp"
#include "text/token_source.hpp"

namespace programs {
using namespace tessera;
namespace cli {

using SharedTokenizer = std::shared_ptr<text::Tokenizer const>;

/// Returns a hash of the data: of the number of tokens, and of up to 65,536 tokens at the start, in the
/// middle and at the end. Each process opens the data itself. The ranks compare their hashes to check that
/// all of them have the same data.
inline std::uint64_t digest_of(TokenSource const& source) {
  std::int64_t const size = source.size(), part = std::min<std::int64_t>(size, 65536);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(3 * part));
  std::span<std::int32_t> const all(tokens);
  auto const length = static_cast<std::size_t>(part);
  source.read(0, all.first(length));
  source.read((size - part) / 2, all.subspan(length, length));
  source.read(size - part, all.last(length));
  tokens.push_back(static_cast<std::int32_t>(size >> 32));
  tokens.push_back(static_cast<std::int32_t>(static_cast<std::uint32_t>(size)));
  return XXH3_64bits(tokens.data(), tokens.size() * sizeof tokens[0]);
}

/// Returns the tokenizer that --tokenizer names; null without this flag.
inline SharedTokenizer open_tokenizer(DataFlags const& flags) {
  return flags.tokenizer.empty() ? nullptr : text::Tokenizer::open(flags.tokenizer);
}

/// Opens the data at `paths`, or the default data if `paths` is empty. `vocabulary` is the vocabulary size;
/// if it is 0, the tokenizer or the format of the data gives the size. A tokenizer, if there is one, encodes
/// text on `threads` threads.
inline TokenSource open_data(Names const& paths, DataFlags const& flags, std::int64_t vocabulary,
                             SharedTokenizer const& tokenizer, int threads) {
  if (tokenizer && flags.samples_are == SamplesAre::tokens)
    return text::tokenized(*tokenizer, paths, flags.field, threads, {vocabulary});
  RecordOptions options{.vocabulary = vocabulary, .field = flags.field, .separator = flags.separator};
  if (tokenizer) {
    if (vocabulary == 0) options.vocabulary = tokenizer->vocabulary();
    options.encode = text::record_encoder(tokenizer);
  }
  if (flags.samples_are == SamplesAre::lines) return open_lines(paths, options);
  if (flags.samples_are == SamplesAre::records) return open_records(paths, options);
  return TokenSource::open(paths, {.vocabulary = vocabulary});
}

/// The data of the rows of a table. If the models of the rows have different vocabulary sizes, this class
/// opens the data once for each size.
class DataSets {
 public:
  /// Opens the data for the vocabulary size `flags.vocabulary`. `flags` must exist as long as this object.
  DataSets(DataFlags const& flags, int threads)
      : flags_(flags), threads_(threads), tokenizer_(open_tokenizer(flags)) {
    first_ = &of(flags.vocabulary);
  }
  /// Returns the vocabulary size of the data itself: 256 for text without a tokenizer.
  std::int64_t vocabulary() const { return first_->vocabulary(); }
  TokenSource const& first() const { return *first_; }
  /// Returns the data for models with this vocabulary size.
  TokenSource const& of(std::int64_t vocabulary) {
    auto found = sources_.find(vocabulary);
    if (found == sources_.end())
      found = sources_.emplace(vocabulary, open_data(flags_.paths, flags_, vocabulary, tokenizer_, threads_))
                  .first;
    return found->second;
  }

 private:
  DataFlags const& flags_;
  int threads_;
  SharedTokenizer tokenizer_;
  std::map<std::int64_t, TokenSource> sources_;
  TokenSource const* first_;
};

/// Returns whether the data is possibly JSONL, so that --field has an effect. This is so if samples are
/// records, or if a tokenizer reads the data as one stream of tokens.
inline bool reads_fields(DataFlags const& flags) {
  return flags.samples_are == SamplesAre::records ||
         (!flags.tokenizer.empty() && flags.samples_are == SamplesAre::tokens);
}

/// Throws if --field or --separator is given although it has no effect on this data.
inline void check_data_flags(CommandLine const& line, DataFlags const& flags) {
  bool const records = flags.samples_are == SamplesAre::records;
  for (char const* flag : {"--field", "--separator"})
    if (line.given(flag) && !(std::string_view(flag) == "--field" ? reads_fields(flags) : records))
      refuse(std::string(flag) + " applies only to records, but samples are " + name_of(flags.samples_are) +
             "; give --samples-are records, or leave it out");
}

/// Returns the number of samples in an epoch: `limit`, or all samples of the data if `limit` is 0. `sequence`
/// is the length of a sample in tokens.
inline std::int64_t samples_of(TokenSource const& source, std::int64_t sequence, std::int64_t limit) {
  return Loader(source, {.sequence = static_cast<int>(sequence), .samples = limit}).samples();
}

/// Returns the number of steps in an epoch. The last step is padded if there are not enough samples.
inline std::int64_t steps_of_epoch(std::int64_t samples, std::int64_t global_batch) {
  return (samples + global_batch - 1) / global_batch;
}

/// Returns a description of the samples: "lines, the first 1,000, 12 cut to 129 tokens, 38.1% of all
/// positions padding".
inline std::string samples_text(TokenSource const& source, DataFlags const& flags, std::int64_t sequence,
                                std::int64_t limit) {
  std::string text = name_of(flags.samples_are);
  if (limit > 0) text += ", the first " + grouped(limit);
  auto records = source.records();
  if (records.empty()) return text;
  std::int64_t const samples = samples_of(source, sequence, limit);
  std::int64_t cut = 0, targets = 0;
  for (Record const& record : records.first(static_cast<std::size_t>(samples))) {
    cut += record.tokens > sequence + 1 ? 1 : 0;
    targets += std::min(record.tokens - 1, sequence);
  }
  if (cut > 0) text += ", " + grouped(cut) + " cut to " + grouped(sequence + 1) + " tokens";
  double const positions = static_cast<double>(samples) * static_cast<double>(sequence);
  return text + ", " + fixed(100.0 * (1.0 - static_cast<double>(targets) / positions), 1) +
         "% of all positions padding";
}

/// Returns the loss of a step as a mean over all `positions` of its samples. The report has the mean over the
/// tokens that are not padding. Padding counts as a loss of 0.
inline double loss_with_padding(StepReport const& report, std::int64_t positions) {
  return report.loss * static_cast<double>(report.valid_tokens) / static_cast<double>(positions);
}

/// Adds up the reports of the steps of each epoch.
class EpochSums {
 public:
  /// The sums over the steps of an unfinished epoch.
  struct Part {
    std::int64_t positions = 0, valid_tokens = 0;
    double seconds = 0.0, loss = 0.0;
  };

  /// `first` is the number of steps that an earlier run has done; 0 if this run is not resumed. If a resumed
  /// run continues within an epoch, `part` holds the sums over the earlier steps of the epoch. Without
  /// `part`, the figures of this epoch cover only the remaining steps.
  EpochSums(std::int64_t samples, std::int64_t global_batch, std::int64_t sequence, std::int64_t first = 0,
            std::optional<Part> part = std::nullopt)
      : samples_(samples),
        global_batch_(global_batch),
        sequence_(sequence),
        steps_(steps_of_epoch(samples, global_batch)) {
    if (first % steps_ == 0) return;
    known_ = part.has_value();
    part_ = part.value_or(Part());
  }

  /// Returns the sums over the finished steps of the current epoch; nullopt if an earlier run did some of
  /// these steps and its sums are unknown.
  std::optional<Part> part() const { return known_ ? std::optional(part_) : std::nullopt; }
  /// Returns the number of token positions in the step `step` (the first step is 1). The last step of an
  /// epoch is possibly filled with samples that are only padding; these do not count.
  std::int64_t positions(std::int64_t step) const {
    std::int64_t const before = (step - 1) % steps_ * global_batch_;
    return std::min(global_batch_, samples_ - before) * sequence_;
  }
  /// Adds the report of a step. If the step is the last one of an epoch, returns the figures of the epoch. An
  /// unknown figure is NaN.
  std::optional<results::EpochLogRow> add(StepReport const& report) {
    part_.seconds += report.interval;
    part_.loss += report.loss * static_cast<double>(report.valid_tokens);
    part_.valid_tokens += report.valid_tokens;
    part_.positions += positions(report.step);
    if (report.step % steps_ != 0) return std::nullopt;
    Part const all = std::exchange(part_, Part());
    double const known = std::exchange(known_, true) ? 1.0 : std::numeric_limits<double>::quiet_NaN();
    return results::EpochLogRow{.epoch = report.step / steps_,
                                .steps = steps_,
                                .samples = samples_,
                                .seconds = known * all.seconds,
                                .samples_per_sec = known * static_cast<double>(samples_) / all.seconds,
                                .loss = known * all.loss / static_cast<double>(all.valid_tokens),
                                .loss_with_padding = known * all.loss / static_cast<double>(all.positions)};
  }

 private:
  std::int64_t samples_, global_batch_, sequence_, steps_;
  bool known_ = true;
  Part part_;
};

/// Returns the figures of an epoch as text: "epoch 1 | 250 steps | 52.31 s | 19.1 samples/s | loss 1.0809 |
/// with padding 0.3143". An unknown figure is "-".
inline std::string epoch_text(results::EpochLogRow const& epoch) {
  auto const number = [](double value, int digits) {
    return std::isfinite(value) ? fixed(value, digits) : std::string("-");
  };
  return "epoch " + grouped(epoch.epoch) + " | " + grouped(epoch.steps) +
         (epoch.steps == 1 ? " step | " : " steps | ") + number(epoch.seconds, 2) + " s | " +
         number(epoch.samples_per_sec, 1) + " samples/s | loss " + number(epoch.loss, 4) +
         (epoch.loss_with_padding < epoch.loss ? " | with padding " + fixed(epoch.loss_with_padding, 4)
                                               : std::string());
}

}  // namespace cli
}  // namespace programs
