// SPDX-License-Identifier: Apache-2.0
// Trainers as a list of types.
#pragma once

#include <type_traits>

namespace experiments {

template <class... Trainers>
struct RecipeList {
  /// Calls visit(std::type_identity<Trainer>{}) for each, in order.
  template <class Visit>
  static void for_each(Visit&& visit) {
    (visit(std::type_identity<Trainers>{}), ...);
  }
};

}  // namespace experiments
