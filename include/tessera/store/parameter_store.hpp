// SPDX-License-Identifier: Apache-2.0
// Provides ParameterStore, which moves and changes the state of a model during a step: weights, gradients and
// optimizer state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/config.hpp"
#include "tessera/ops/accumulate.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/norm.hpp"
#include "tessera/optim/adamw.hpp"
#include "tessera/optim/finish.hpp"
#include "tessera/optim/step_state.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/store/step_memory.hpp"

namespace tessera {
inline namespace v0 {

/// Runs the schedule's entries that move or change state, such as all-gathers and optimizer updates. Its
/// functions allocate no memory during a step. On a GPU they only enqueue work. On the CPU, collectives and
/// file transfers return when they are complete. A store cannot be copied or moved, because host tasks refer
/// to it.
template <class Place, class T>
class ParameterStore {
 public:
  using S = compute_t<T>;
  using Kind = BufferKind;

  ParameterStore(StepPlan const& plan, StepMemory<Place> const& memory, Context<Place>& context,
                 comm::Transport& transport, StepRule const& rule)
      : plan_(plan),
        memory_(memory),
        context_(context),
        transport_(transport),
        rule_(rule),
        all_(plan.statistics()),
        norm_ranges_(plan.norm_ranges()),
        norms_(plan.train.schedule.entries.size()),
        updates_(plan.train.schedule.entries.size()) {
    std::byte* const ranges = state_bytes(Kind::norm_ranges);
    write(ranges, norm_ranges_.data(), norm_ranges_.size() * sizeof(NormRange));
    all_.units = reinterpret_cast<NormRange const*>(ranges);
    all_.first = state_bytes(all_.ranks > 1 ? Kind::all_partials : Kind::partials);
    place_rows();
    for (Program const* program : {&plan.train, &plan.evaluate})
      for (Entry const& entry : program->schedule.entries)
        for (bool const first : {true, false}) host_work_.push_back({*this, *program, entry, first});
  }
  ParameterStore(ParameterStore const&) = delete;
  ParameterStore& operator=(ParameterStore const&) = delete;

  /// Waits for all enqueued steps, then returns a copy of the step's scalars, such as the loss and the loss
  /// scale.
  StepState state() {
    synchronize();
    StepState copy;
    context_.read(state_address(), &copy, sizeof copy);
    return copy;
  }
  /// Returns the address of the step's scalars, in memory of the device.
  StepState* state_address() const { return reinterpret_cast<StepState*>(state_bytes(Kind::scalars)); }
  /// Returns the address of a micro-batch's loss sum and token count, in memory of the device.
  LossSum* loss_slot(int micro_batch) const {
    return own(state_bytes(Kind::partials)).losses(0) + micro_batch;
  }

  /// Begins a step: sets the step's scalars. Also sets this rank's request to end the training to `stop`, and
  /// clears this rank's record of the first gradient value that is not finite.
  void begin_step(double learning_rate, bool stop = false) {
    ops::begin_step(context_, state_address(), own(state_bytes(Kind::partials)).notes(0), rule_,
                    learning_rate, stop);
  }

  /// Runs one entry of the training or evaluation program for a micro-batch, on the current stream.
  void run(Program const& program, Entry const& entry, int micro_batch) {
    if (entry.verb == Verb::decide) {
      context_.await_copies();  // updates follow, so a running copy for a checkpoint must end first
      return ops::finish_step(context_, all_, state_address(), rule_);
    }
    bool const first = micro_batch == 0;
    if (entry.lane == Lane::disk || entry.lane == Lane::host)
      return context_.host_task(cost_of(program, entry), &HostWork::run, &host_work(program, entry, first));
    if (entry.move == Move::none) return work(context_, entry, first);
    comm::ProcessGroup const among = transport_.over(plan_.ranks_of(entry));
    if (entry.items.size() > 1) transport_.begin_group();
    for (Item const& item : entry.items) move(program, entry, item, micro_batch, among);
    if (entry.items.size() > 1) transport_.end_group();
  }

  /// Waits until all enqueued steps have ended. Throws PeerLost if another rank prevents this. On the CPU, a
  /// step has ended when its call returns.
  void synchronize() {
    transport_.await([this] { return context_.finished(); }, "the end of its steps");
  }

 private:
  // Functions that return addresses.

  std::byte* state_bytes(Kind kind) const { return memory_.train(plan_.train.find(kind, -1)); }
  /// Returns the address of the elements `part` of a flat group (the parameters of a unit) in a buffer of the
  /// training program.
  template <class U = std::byte>
  U* at(int buffer, Range part) const {
    return reinterpret_cast<U*>(memory_.train(buffer) + plan_.train.at(buffer).at(part.begin));
  }
  /// Returns the layout of one rank's statistics (losses and sums of squares) that begin at `address`.
  StepShares own(std::byte* address) const {
    StepShares own = all_;
    own.first = address;
    return own;
  }

  // Functions that move state.

  void move(Program const& program, Entry const& entry, Item const& item, int micro_batch,
            comm::ProcessGroup const& among) {
    bool const joins = entry.move == Move::all_gather || entry.move == Move::gather,
               splits = entry.move == Move::reduce_scatter || entry.move == Move::all_to_all;
    Buffer const &source = program.at(item.at(Role::source)), &target = program.at(item.at(Role::target));
    auto const address = [&](Role role) {
      return memory_.of(program)[static_cast<std::size_t>(item.at(role))];
    };
    // In an all-gather, the source holds this rank's part and the target holds all parts. In a
    // reduce-scatter, the source holds all parts and the target holds this rank's part.
    std::byte* const from = address(Role::source) + source.at(splits ? 0 : item.part.begin);
    std::byte* const to = address(Role::target) + target.at(joins ? 0 : item.part.begin);
    std::int64_t const bytes = source.bytes_of(item.part.size());
    if (entry.move == Move::copy) return copy(from, to, bytes * source.pieces);
    char const* const unit = item.of.unit < 0 ? "all units" : plan_.unit(item.of.unit).name.c_str();
    transport_.run(entry.move, bytes, from, to, {name_of(entry.verb).data(), unit, micro_batch}, among,
                   item.root, source.type, plan_.shape.shards());
  }
  /// Copies values of any format, 4 bytes at a time. `bytes` must be a multiple of 4; the function
  /// check_states ensures this for optimizer state.
  void copy(std::byte const* from, std::byte* to, std::int64_t bytes) {
    if (bytes == 0) return;
    Shape const shape{bytes / 4};
    ops::copy(context_, Tensor<float const, Place>{reinterpret_cast<float const*>(from), shape},
              Tensor<float, Place>{reinterpret_cast<float*>(to), shape});
  }

  // Functions that compute with state. `context` belongs to the device that holds the values.

  /// An entry that the host runs as a task, such as an update of offloaded state.
  struct HostWork {
    ParameterStore& store;
    Program const& program;
    Entry const& entry;
    bool first;  // the entry runs in the first micro-batch

    static void run(Context<Cpu>& host, void* data) {
      auto const& [store, program, entry, first] = *static_cast<HostWork const*>(data);
      if (entry.lane == Lane::disk)
        store.memory_.transfer(program, entry);
      else
        store.work(host, entry, first);
    }
  };
  HostWork& host_work(Program const& program, Entry const& entry, bool first) {
    auto index = static_cast<std::size_t>(&entry - program.schedule.entries.data());
    if (&program == &plan_.evaluate) index += plan_.train.schedule.entries.size();
    return host_work_[2 * index + !first];
  }
  /// Returns the FLOPs and bytes of an entry that runs on the host, for reports. For an update, counts all
  /// bytes that it reads and writes. For any other entry, counts only the bytes of its input.
  Operation cost_of(Program const& program, Entry const& entry) const {
    Item const& item = entry.items.front();
    auto const elements = static_cast<double>(item.part.size()),
               source_bytes =
                   static_cast<double>(program.at(item.source_buffer()).bytes_of(item.part.size()));
    if (entry.lane == Lane::disk) {
      bool const reads = has_addresses(program.at(item.at(Role::target)).tier);
      return {reads ? "disk_read" : "disk_write", 0.0, static_cast<double>(program.bytes_of(entry))};
    }
    if (entry.verb != Verb::update) return {"host_sums", 2.0 * elements, source_bytes};
    std::int64_t bytes = 0;
    for (Operand const& operand : item.operands)
      bytes += program.at(operand.buffer).bytes_of(item.part.size()) * (operand.reads() + operand.writes());
    return {"host_adamw", 14.0 * elements, static_cast<double>(bytes)};
  }

  template <class P>
  void work(Context<P>& context, Entry const& entry, bool first) {
    if (entry.verb == Verb::accumulate) return accumulate(context, entry, first);
    if (plan_.train.at(entry.source_buffer()).type == dtype_of<T>)
      work_on_gradients<T>(context, entry);
    else
      work_on_gradients<S>(context, entry);
  }
  template <class G, class P>
  void work_on_gradients(Context<P>& context, Entry const& entry) {
    std::size_t const index = index_of(entry);
    if (entry.verb == Verb::norm) return ops::norm_partials<G, float>(context, norms_[index]);
    if (entry.verb != Verb::update)
      throw_error(ErrorKind::failed, {"a schedule has an entry with the verb ", name_of(entry.verb),
                                      ", which the store cannot run"});
    std::int64_t const* const skip = &scalars_of(entry)->skipped;
    if (entry.at(Role::updated_weights) >= 0)
      ops::adamw<G, S, T>(context, updates_[index], skip);
    else
      ops::adamw<G, S, void>(context, updates_[index], skip);
  }
  /// Adds the received micro-batch gradients of all ranks to the sum, in rank order. If `first` is true,
  /// overwrites the old sum. If the entry has the operand `partials`, also computes the sums of squares for
  /// the gradient norm.
  template <class P>
  void accumulate(Context<P>& context, Entry const& entry, bool first) {
    Item const& item = entry.items.front();
    std::int64_t const count = item.part.size();
    if (count == 0) return;
    int const source = item.at(Role::source), gradient = item.at(Role::gradient);
    Tensor<float, P> partials;
    ops::BadNote note;
    if (entry.at(Role::partials) >= 0) {
      auto const [row, where] = norm_output(entry, item);
      partials = {row, {count / shard_alignment}};
      note = where;
    }
    ops::accumulate(context, Tensor<S, P>{at<S>(gradient, item.part), {count}},
                    at<T const>(source, item.part), plan_.train.at(source).pieces, count, first, partials,
                    note);
  }

  std::size_t index_of(Entry const& entry) const {
    return static_cast<std::size_t>(&entry - plan_.train.schedule.entries.data());
  }
  StepState* scalars_of(Entry const& entry) const {
    return reinterpret_cast<StepState*>(memory_.train(entry.at(Role::scalars)));
  }
  /// Returns two places to which a norm writes: the address of the sums of squares of an item's gradient, and
  /// the record of its first value that is not finite.
  std::pair<float*, ops::BadNote> norm_output(Entry const& entry, Item const& item) const {
    StepShares const found = own(memory_.train(entry.at(Role::partials)));
    int const number = plan_.flat(item.of).trainable_index;
    return {found.partials(0) + norm_ranges_[static_cast<std::size_t>(number)].offset,
            {found.bad(0), number, item.part.begin}};
  }

  // An entry with the verb `norm` or `update` processes several arrays in one operation. The argument of the
  // operation is a table with one row of addresses per array. Addresses never change, so the constructor
  // writes these tables once.

  void place_rows() {
    auto const& entries = plan_.train.schedule.entries;
    std::array<std::byte*, 2> next{state_bytes(Kind::rows),
                                   memory_.train(plan_.train.find(Kind::rows, -1, 1))};
    for (Entry const& entry : entries) {
      int const table = entry.at(Role::rows);
      if (table < 0) continue;
      std::byte*& destination = next[static_cast<std::size_t>(plan_.train.at(table).index)];
      if (entry.verb == Verb::norm)
        norms_[index_of(entry)] = placed(norm_rows(entry), destination);
      else
        updates_[index_of(entry)] = placed(update_rows(entry), destination);
    }
  }
  template <class Row>
  ops::Rows<Row> placed(std::vector<Row> rows, std::byte*& destination) {
    auto const numbered = ops::number_rows(std::span<Row>(rows), reinterpret_cast<Row const*>(destination));
    write(destination, rows.data(), rows.size() * sizeof(Row));
    destination += rows.size() * sizeof(Row);
    return numbered;
  }
  /// Writes bytes to memory of the device. Does nothing if the context only records operations.
  void write(std::byte* to, void const* from, std::size_t bytes) {
    if (!context_.recorder() && bytes > 0) context_.write(to, from, bytes);
  }
  std::vector<ops::NormRow> norm_rows(Entry const& entry) const {
    std::vector<ops::NormRow> rows;
    for (Item const& item : entry.items)
      if (std::int64_t const count = item.part.size()) {
        auto const [partials, note] = norm_output(entry, item);
        rows.push_back({at(item.at(Role::gradient), item.part), partials, count, 0, note});
      }
    return rows;
  }
  /// Returns the rows of an update: two for each item, for the elements with weight decay and without. The
  /// rows include padding, which the update keeps at zero.
  std::vector<ops::UpdateRow> update_rows(Entry const& entry) const {
    std::vector<ops::UpdateRow> rows;
    auto const* factors = factors_of<S>(scalars_of(entry));
    for (Item const& item : entry.items) {
      FlatLayout const& layout = plan_.flat(item.of);
      int const weights = item.at(Role::updated_weights);
      for (bool const undecayed : {false, true}) {
        Range const now =
            intersect(item.part, undecayed ? Range{layout.undecayed.begin, layout.padded} : layout.decayed);
        if (now.size() == 0) continue;
        rows.push_back({.elements = now.size(),
                        .gradient = at(item.at(Role::gradient), now),
                        .master = at(item.at(Role::master), now),
                        .weights = weights >= 0 ? at(weights, now) : nullptr,
                        .factors = factors + undecayed});
        for (Operand const& operand : item.operands)
          if (operand.role == Role::moment) rows.back().states[operand.index] = at(operand.buffer, now);
      }
    }
    return rows;
  }

  StepPlan const& plan_;
  StepMemory<Place> const& memory_;
  Context<Place>& context_;
  comm::Transport& transport_;
  StepRule const& rule_;
  StepShares all_;  // the statistics of all ranks
  std::vector<NormRange> norm_ranges_;
  std::vector<ops::Rows<ops::NormRow>> norms_;  // norms_ and updates_: one per entry of the training program
  std::vector<ops::Rows<ops::UpdateRow>> updates_;
  std::vector<HostWork> host_work_;  // two for each entry: for the first micro-batch, and for the others
};

}  // namespace v0
}  // namespace tessera
