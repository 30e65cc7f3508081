// SPDX-License-Identifier: Apache-2.0
// Provides functions for tests that train TiedModel (tied_model.hpp) with typed trainers. The policies of a
// typed trainer are template arguments.
#pragma once

#include <memory>

#include "tessera/train/trainer.hpp"

#include "support/runs.hpp"
#include "support/tied_model.hpp"

namespace support {

/// Returns the settings of a training run of TiedModel. Its batches use the vocabulary of this model, and
/// `split` divides them over ranks and micro-batches.
inline Run tied_run(Spread split) {
  Run run;
  run.split = split;
  run.vocabulary = TiedModel{}.words;
  run.batch = 2;
  run.options.learning_rate = 2e-2;
  return run;
}

template <class... Policies>
Outcome train_tied(Run const& run) {
  return train(run, [](comm::Comm const& comm, TrainerOptions const& options) {
    return std::make_unique<Trainer<TiedModel, Policies...>>(TiedModel{}, comm, options);
  });
}

}  // namespace support
