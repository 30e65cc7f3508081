// SPDX-License-Identifier: Apache-2.0
// Provides batches, which hold the data of one optimizer step, and the loader that makes batches from a token
// source.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/order.hpp"
#include "tessera/data/tokens.hpp"

namespace tessera {
inline namespace v0 {

/// The data of one optimizer step on one rank. `tokens` and `targets` have the shape (A,B,T): accumulation
/// index, sequence, time. A negative target is masked: it adds no loss, and the mean of the loss does not
/// count it.
struct Batch {
  int accumulation = 1;                 ///< A, number of this rank's micro-batches in this step
  int batch = 1;                        ///< B, number of sequences in a micro-batch
  int sequence = 1;                     ///< T, number of tokens in a sequence
  std::vector<std::int32_t> tokens{};   // (A,B,T)
  std::vector<std::int32_t> targets{};  // (A,B,T)
  /// The position of sequence (0,0) in the run: the number of sequences of all ranks before it. With W ranks,
  /// sequence (a,b) has position first_sample + a*W*B + b.
  std::int64_t first_sample = 0;
  std::int64_t step = 0;  ///< the number of the step, counted from 0
  /// `rank` is the rank whose share of the global batch this batch is, and `world` is the number of ranks. If
  /// `world` is 0, they are unknown. A trainer on several ranks rejects the share of another rank.
  int rank = 0, world = 0;

  /// Returns A*B*T, the number of tokens.
  std::int64_t elements() const noexcept { return std::int64_t{1} * accumulation * batch * sequence; }
  /// Returns the number of targets that are not masked.
  std::int64_t valid_tokens() const noexcept {
    std::int64_t count = 0;
    for (std::int32_t const target : targets) count += target >= 0 ? 1 : 0;
    return count;
  }
  /// Returns the inputs of micro-batch number `index`, as (B,T).
  std::span<std::int32_t const> micro_tokens(int index) const { return micro(tokens, index); }
  /// Returns the targets of micro-batch number `index`, as (B,T).
  std::span<std::int32_t const> micro_targets(int index) const { return micro(targets, index); }

 private:
  std::span<std::int32_t const> micro(std::vector<std::int32_t> const& values, int index) const {
    std::size_t const size = static_cast<std::size_t>(batch) * static_cast<std::size_t>(sequence);
    return {values.data() + static_cast<std::size_t>(index) * size, size};
  }
};

struct LoaderOptions {
  int batch = 1;         ///< B, number of sequences in a micro-batch of one rank
  int sequence = 128;    ///< T, number of tokens in a sequence
  int accumulation = 1;  ///< A, number of micro-batches of one rank in a step
  int rank = 0;          ///< the rank whose share of the global batch is read
  int world = 1;         ///< the number of ranks that share the global batch
  Order order = Order::shuffled;
  std::uint64_t seed = 1;
  std::int64_t first_step = 0;  ///< the step at which the iteration begins
  std::int64_t samples = 0;     ///< number of samples to use, from the start of the data; 0: all
  /// Whether no step contains samples of two epochs. If true, an epoch can end with a partial step, whose
  /// missing sequences are masked. If false, the remaining samples of an epoch begin the first step of the
  /// next epoch.
  bool whole_epochs = false;
};

/// Reads batches from a token source. `load(step)` depends only on the step, the options and the data. So a
/// resumed run, or a run on another number of ranks, reads the same samples. As a range, the loader yields
/// one batch for each step from `first_step` to the end of the epoch that contains `first_step`. Only one
/// thread at a time may use a loader.
///
/// A source can consist of records, which are samples of different lengths (see TokenSource::divide). A
/// record is cut to sequence + 1 tokens, or padded on the right with token 0. The targets of the padding are
/// masked, so the padding adds no loss and no gradient. Attention is causal: a position attends only to
/// earlier positions, so the padding does not affect the tokens before it and needs no attention mask.
class Loader {
 public:
  /// `source` must exist longer than the loader. Throws Error(usage) if an option is out of range, and
  /// Error(data) if the source has fewer samples than requested or none. Allocates all memory of the loader.
  Loader(TokenSource const& source, LoaderOptions options)
      : source_(&source),
        options_(checked(options, source)),
        split_{options.batch, options.accumulation, options.world},
        order_(options.order, samples_of(source, options), options.seed),
        row_(static_cast<std::size_t>(options.sequence) + 1) {
    current_.accumulation = options.accumulation;
    current_.batch = options.batch;
    current_.sequence = options.sequence;
    current_.step = -1;  // no step is loaded yet
    current_.rank = options.rank;
    current_.world = options.world;
    auto const elements = static_cast<std::size_t>(current_.elements());
    current_.tokens = std::vector<std::int32_t>(elements);
    current_.targets = std::vector<std::int32_t>(elements);
  }
  Loader(TokenSource&&, LoaderOptions) = delete;
  /// If the second argument is not a LoaderOptions, this overload makes the compiler print one short error.
  /// Without it, compilers list every constructor.
  template <class Fields = LoaderOptions>
  // clang-format off
  Loader(TokenSource const&, ...) = delete;  // tessera: a field is misspelt or has another type. Write LoaderOptions{...}, and the compiler names the field. See docs/trainer.md.
  // clang-format on

  /// Throws the errors of the constructor for these arguments. Allocates no memory.
  static void check(TokenSource const& source, LoaderOptions const& options) { checked(options, source); }

  LoaderOptions const& options() const noexcept { return options_; }
  /// Returns the number of samples in an epoch.
  std::int64_t samples() const noexcept { return order_.samples(); }
  /// Returns the number of sequences in a step, over all ranks.
  std::int64_t global_batch() const noexcept { return split_.global_batch(); }
  /// Returns the number of steps in an epoch, at least 1. With `whole_epochs`, a partial last step counts.
  /// Otherwise only full steps count, and the remaining samples begin the first step of the next epoch.
  std::int64_t steps_per_epoch() const noexcept {
    std::int64_t const steps =
        (samples() + (options_.whole_epochs ? global_batch() - 1 : 0)) / global_batch();
    return steps > 0 ? steps : 1;
  }
  /// Returns the index of the sample at the position `position` of the run.
  std::int64_t sample_at(std::int64_t position) const noexcept { return order_(position); }
  /// Returns the number of targets in a step that are not masked, over all ranks. Reads the lengths of
  /// records, but no tokens.
  std::int64_t targets_in(std::int64_t step) const {
    std::int64_t count = 0;
    for (std::int64_t sequence = 0; sequence < global_batch(); ++sequence)
      if (std::int64_t const tokens = read_of(step, sequence).tokens; tokens > 0) count += tokens - 1;
    return count;
  }

  /// Returns the batch of a step. Steps count from 0. The batch is valid until the next call. Does not
  /// allocate.
  Batch const& load(std::int64_t step) {
    std::int64_t const last = std::numeric_limits<std::int64_t>::max() / global_batch() - 1;
    if (step < 0 || step > last)
      throw_error(ErrorKind::usage, {"step ", step, " of the data does not exist, steps are 0 to ", last});
    auto const length = static_cast<std::size_t>(options_.sequence);
    std::int32_t* inputs = current_.tokens.data();
    std::int32_t* targets = current_.targets.data();
    for (int a = 0; a < options_.accumulation; ++a)
      for (int b = 0; b < options_.batch; ++b, inputs += length, targets += length) {
        Record const from = read_of(step, split_.position(0, options_.rank, a) + b);
        auto const tokens = static_cast<std::size_t>(from.tokens), given = std::min(tokens, length);
        if (tokens > 0) source_->read(from.first, {row_.data(), tokens});
        std::fill(std::copy_n(row_.begin(), given, inputs), inputs + length, 0);
        std::fill(
            std::copy(row_.begin() + 1, row_.begin() + std::max<std::ptrdiff_t>(1, from.tokens), targets),
            targets + length, -1);
      }
    current_.first_sample = position_of(step, split_.position(0, options_.rank, 0));
    current_.step = step;
    return current_;
  }

  /// An input iterator over steps. Dereferencing it loads the batch of the step, and the increment moves to
  /// the next step.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::int64_t;

    Iterator() = default;
    Iterator(Loader* loader, std::int64_t step) : loader_(loader), step_(step) {}

    Batch const& operator*() const {
      return loader_->current_.step == step_ ? loader_->current_ : loader_->load(step_);
    }
    Iterator& operator++() {
      ++step_;
      return *this;
    }
    void operator++(int) { ++step_; }
    friend bool operator==(Iterator const& a, Iterator const& b) { return a.step_ == b.step_; }

   private:
    Loader* loader_ = nullptr;
    std::int64_t step_ = 0;
  };

  Iterator begin() { return {this, options_.first_step}; }
  Iterator end() { return {this, (options_.first_step / steps_per_epoch() + 1) * steps_per_epoch()}; }

 private:
  static std::int64_t samples_of(TokenSource const& source, LoaderOptions const& options) {
    auto const records = static_cast<std::int64_t>(source.records().size());
    std::int64_t const held = records > 0 ? records : samples_in(source.size(), options.sequence);
    return options.samples > 0 && options.samples < held ? options.samples : held;
  }
  /// Returns the position in the run of a sequence. `sequence` is its number in the global batch of the step.
  /// With `whole_epochs`, the position is possibly after the end of the epoch.
  std::int64_t position_of(std::int64_t step, std::int64_t sequence) const noexcept {
    if (!options_.whole_epochs) return step * global_batch() + sequence;
    return step / steps_per_epoch() * samples() + step % steps_per_epoch() * global_batch() + sequence;
  }
  /// Returns the range of tokens of a sequence: at most options.sequence + 1 tokens. `sequence` is its number
  /// in the global batch of the step. With `whole_epochs`, the range is empty if the position is after the
  /// end of the epoch.
  Record read_of(std::int64_t step, std::int64_t sequence) const noexcept {
    if (options_.whole_epochs && step % steps_per_epoch() * global_batch() + sequence >= samples()) return {};
    std::int64_t const sample = order_(position_of(step, sequence)),
                       most = options_.sequence + std::int64_t{1};
    if (source_->records().empty()) return {sample * options_.sequence, most};
    Record const record = source_->records()[static_cast<std::size_t>(sample)];
    return {record.first, std::min(record.tokens, most)};
  }
  static LoaderOptions const& checked(LoaderOptions const& options, TokenSource const& source) {
    auto const positive = [](char const* what, std::int64_t value) {
      if (value < 1) throw_error(ErrorKind::usage, {what, " is ", value, ", it must be 1 or more"});
    };
    positive("--batch", options.batch);
    positive("--sequence", options.sequence);
    positive("--accumulation", options.accumulation);
    positive("the world", options.world);
    if (options.rank < 0 || options.rank >= options.world)
      throw_error(ErrorKind::usage, {"rank ", options.rank, " does not exist in a world of ", options.world,
                                     ", ranks are 0 to world - 1"});
    if (options.first_step < 0)
      throw_error(ErrorKind::usage, {"the first step is ", options.first_step, ", it must be 0 or more"});
    if (options.samples < 0)
      throw_error(ErrorKind::usage,
                  {"--samples is ", options.samples, ", it must be 1 or more, or 0 for all"});
    constexpr std::int64_t limit = std::numeric_limits<std::int32_t>::max();
    std::int64_t elements = 0;
    std::int64_t sequences = std::int64_t{1} * options.batch * options.accumulation;
    std::int64_t all = 0;
    if (__builtin_mul_overflow(sequences, std::int64_t{options.sequence}, &elements) || elements > limit ||
        __builtin_mul_overflow(sequences, std::int64_t{options.world}, &all) || all > limit)
      throw_error(ErrorKind::usage, {"batch ", options.batch, " x accumulation ", options.accumulation,
                                     " x sequence ", options.sequence, " on ", options.world,
                                     " ranks is more than 2147483647 tokens a rank or sequences a step"});
    std::int64_t const needed = std::int64_t{options.sequence} + 1;
    if (source.records().empty() && source.size() < needed)
      throw_error(ErrorKind::data, {source.name(), ": too little data, ", source.size(), " tokens present, ",
                                    needed, " needed for one sample of --sequence ", options.sequence,
                                    "; give more with --data or a shorter --sequence"});
    if (std::int64_t const held = samples_of(source, options); held < options.samples)
      throw_error(ErrorKind::data, {source.name(), ": --samples ", options.samples, " is more than the ",
                                    held, " samples of --sequence ", options.sequence, " that its ",
                                    source.size(), " tokens hold; give more with --data or fewer samples"});
    return options;
  }

  TokenSource const* source_;
  LoaderOptions options_;
  BatchSplit split_;
  SampleOrder order_;
  std::vector<std::int32_t> row_;  // the T+1 tokens of one sequence
  Batch current_;
};

namespace data {

using v0::Batch;
using v0::Loader;
using v0::LoaderOptions;
using v0::Order;
using v0::TokenOptions;
using v0::TokenSource;

/// Holds a token source and its loader. Used in `for (auto const& batch : data::tokens(...))`.
class TokenBatches {
 public:
  TokenBatches(TokenSource source, LoaderOptions options)
      : source_(std::make_unique<TokenSource>(std::move(source))), loader_(*source_, options) {}

  auto begin() { return loader_.begin(); }
  auto end() { return loader_.end(); }
  TokenSource const& source() const noexcept { return *source_; }
  Loader& loader() noexcept { return loader_; }

 private:
  std::unique_ptr<TokenSource> source_;
  Loader loader_;
};

/// Returns the batches of one epoch as a range. `path` is a file or a folder. Example: `tokens("train.bin",
/// {.batch = 8, .sequence = 1024})`.
inline TokenBatches tokens(std::string const& path, LoaderOptions options = {}, TokenOptions kind = {}) {
  return {TokenSource::open(path, kind), options};
}
/// Returns the batches of one epoch, from several files or folders. If `paths` is empty, reads
/// `default_data_path`.
inline TokenBatches tokens(std::span<std::string const> paths, LoaderOptions options = {},
                           TokenOptions kind = {}) {
  return {TokenSource::open(paths, kind), options};
}
inline TokenBatches tokens(std::initializer_list<std::string> paths, LoaderOptions options = {},
                           TokenOptions kind = {}) {
  return {TokenSource::open(paths, kind), options};
}
/// If the second argument is not a LoaderOptions, this overload makes the compiler print one short error.
/// Without it, compilers list every function.
template <class Fields = LoaderOptions>
// clang-format off
TokenBatches tokens(std::string const&, ...) = delete;  // tessera: a field is misspelt or has another type. Write LoaderOptions{...}, and the compiler names the field. See docs/trainer.md.
// clang-format on

}  // namespace data

}  // namespace v0
}  // namespace tessera
