// SPDX-License-Identifier: Apache-2.0
// Declares the function that second.cpp defines.
#pragma once

#include <cstddef>

std::size_t bytes_of_a_half();
