// SPDX-License-Identifier: Apache-2.0
// What the second translation unit offers.
#pragma once

#include <cstddef>

std::size_t bytes_of_a_half();
