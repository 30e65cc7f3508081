// SPDX-License-Identifier: Apache-2.0
// Declares the function of the second translation unit.
#pragma once

#include <cstddef>

std::size_t bytes_of_a_half();
